"""Loading weights strictly: what is missing or unknown stops the start and is named."""

from collections.abc import Iterable

import torch
from torch import nn

from vllm_raster_model.engine import load_parameter
from vllm_raster_model.errors import WeightsError

_NAMED_AT_MOST = 20


def load_strictly(module: nn.Module, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
    """Loads weights into the parameters and buffers of the same names.

    Returns:
        The names, which are all there are.

    Raises:
        WeightsError: The names are not the same, or a shape is not.
    """
    wanted = module.state_dict(keep_vars=True)
    loaded: set[str] = set()
    unknown: list[str] = []
    for name, weight in weights:
        if name not in wanted:
            unknown.append(name)
            continue
        try:
            load_parameter(wanted[name], weight)
        except (AssertionError, RuntimeError, ValueError) as error:
            raise WeightsError(
                f"Weight {name!r} has shape {tuple(weight.shape)} on disk and does not fit the "
                f"network's {tuple(wanted[name].shape)}"
            ) from error
        loaded.add(name)
    missing = sorted(wanted.keys() - loaded)
    if missing or unknown:
        raise WeightsError(
            "The weights are not those of this network. "
            f"Missing: {_listed(missing)}. Unknown: {_listed(sorted(unknown))}. "
            "Check vision_config and the raster block of config.json against the checkpoint."
        )
    return loaded


def _listed(names: list[str]) -> str:
    if not names:
        return "none"
    rest = len(names) - _NAMED_AT_MOST
    return ", ".join(names[:_NAMED_AT_MOST]) + (f" and {rest} more" if rest > 0 else "")
