"""Layers that compute in a shorter type than float32, where their network allows it.

Not by `torch.autocast`: it rounds every weight anew for every batch, and does not reach the layers
of the serving engine, which keep their weights in a form of their own. Here weights are rounded
once, before the engine sees to them, and a layer is given its input in the type of its weights.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle


def short_parts(network: nn.Module) -> tuple[str, ...]:
    """Names of the parts of a network whose layers may compute in a shorter type; often none.

    A network says so by its attribute `short_parts`. What such a part is given and what it gives
    may be of either type; all else of the network stays in float32.
    """
    return tuple(getattr(network, "short_parts", ()))


class Shortened:
    """A network's layers in a shorter type: within a `with` block, or from `keep` on.

    Args:
        network: With its weights loaded, in float32.
        dtype: bfloat16 or float16.
    """

    def __init__(self, network: nn.Module, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._layers = list(_layers(network))
        parameters = {one for layer in self._layers for one in layer.parameters(recurse=False)}
        self._whole = {one: one.data for one in parameters}
        self._short = {one: one.data.to(dtype) for one in parameters}
        self._hooks: list[RemovableHandle] = []

    def __enter__(self) -> None:
        for parameter, data in self._short.items():
            parameter.data = data
        self._hooks = [one.register_forward_pre_hook(self._rounded) for one in self._layers]

    def __exit__(self, *_: object) -> None:
        for parameter, data in self._whole.items():
            parameter.data = data
        for hook in self._hooks:
            hook.remove()

    def keep(self) -> None:
        """Leaves the network so, and lets its float32 weights go."""
        self.__enter__()
        self._whole = {}

    def _rounded(self, _: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        return (given[0].to(self.dtype), *given[1:])


def _layers(network: nn.Module) -> Iterator[nn.Module]:
    """Linear layers and convolutions of any kind: what has a matrix of weights, or more."""
    for name in short_parts(network):
        for module in network.get_submodule(name).modules():
            weight = getattr(module, "weight", None)
            if isinstance(weight, torch.Tensor) and weight.ndim >= 2:
                yield module
