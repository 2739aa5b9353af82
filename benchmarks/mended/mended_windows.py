"""Lets TerraTorch's server compute in another type than half precision, a plugin for vLLM.

TerraTorch 1.2.13's IO processor hands over windows in half precision whatever `--dtype` says, and
the network then refuses them. Half precision is what many CPUs have no instructions for. Here the
windows are turned into the network's own type first. vLLM finds this folder's plugin where
PYTHONPATH names the folder.
"""

from typing import Any

import torch


def register() -> None:
    """What vLLM calls in each of its processes."""
    from terratorch.vllm.utils import InferenceRunner

    compute = InferenceRunner.forward

    def forward(self: Any, **inputs: object) -> Any:
        dtype = next(self.parameters()).dtype
        for name, one in inputs.items():
            if isinstance(one, torch.Tensor) and one.is_floating_point():
                inputs[name] = one.to(dtype)
        return compute(self, **inputs)

    InferenceRunner.forward = forward
