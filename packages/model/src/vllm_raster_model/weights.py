"""Loading weights strictly: what is missing or unknown stops the start and is named."""

from collections.abc import Iterable, Mapping

import torch
from torch import nn
from transformers import AutoModel, PreTrainedConfig

from vllm_raster_model.engine import load_parameter
from vllm_raster_model.errors import WeightsError

_NAMED_AT_MOST = 20


Weights = Iterable[tuple[str, torch.Tensor]]


def load_strictly(module: nn.Module, weights: Weights, apart: str | None = None) -> set[str]:
    """Loads weights into the parameters and buffers of the same names.

    Args:
        module: What to load them into.
        weights: Each with its name.
        apart: What begins like this is loaded by someone else.

    Returns:
        The names, which are all there are.

    Raises:
        WeightsError: The names are not the same, or a shape is not.
    """
    wanted = {
        name: one
        for name, one in module.state_dict(keep_vars=True).items()
        if apart is None or not name.startswith(apart)
    }
    loaded: set[str] = set()
    unknown: list[str] = []
    for name, weight in weights:
        if name not in wanted:
            unknown.append(name)
            continue
        try:
            load_parameter(wanted[name], weight)
        except (AssertionError, RuntimeError, ValueError) as error:
            raise _misfit(name, weight, wanted[name]) from error
        loaded.add(name)
    _check(wanted.keys() - loaded, unknown)
    return loaded


def load_language_model(
    model: nn.Module, given: Mapping[str, torch.Tensor], config: PreTrainedConfig, prefix: str
) -> set[str]:
    """Loads a causal language model of vLLM's from the weights of its base model.

    vLLM's loader joins what the layers have joined, and would not notice a missing part of it.
    The head that gives words is not used, and need not be there.

    Args:
        model: What to load them into.
        given: The weights by their names: the prefix, then what transformers calls it.
        config: Of the language model.
        prefix: What all names begin with.

    Returns:
        The names of the parameters that were loaded, with the prefix.

    Raises:
        WeightsError: The names are not the same as those of transformers, or a shape is not.
    """
    with torch.device("meta"):
        whole = AutoModel.from_config(config).state_dict()
    wanted = {prefix + name: one for name, one in whole.items()}
    _check(wanted.keys() - given.keys(), given.keys() - wanted.keys())
    for name, weight in given.items():
        if weight.shape != wanted[name].shape:
            raise _misfit(name, weight, wanted[name])
    loaded = model.load_weights(
        (f"model.{name.removeprefix(prefix)}", one) for name, one in given.items()
    )
    parameters = {name for name, _ in model.named_parameters() if not name.startswith("lm_head.")}
    _check(parameters - loaded, [])
    return {prefix + name for name in loaded}


def _misfit(name: str, weight: torch.Tensor, wanted: torch.Tensor) -> WeightsError:
    return WeightsError(
        f"Weight {name!r} has shape {tuple(weight.shape)} on disk and does not fit the "
        f"network's {tuple(wanted.shape)}"
    )


def _check(missing: Iterable[str], unknown: Iterable[str]) -> None:
    if missing or unknown:
        raise WeightsError(
            "The weights are not those of this network. "
            f"Missing: {_listed(sorted(missing))}. Unknown: {_listed(sorted(unknown))}. "
            "Check config.json against the checkpoint."
        )


def _listed(names: list[str]) -> str:
    if not names:
        return "none"
    rest = len(names) - _NAMED_AT_MOST
    return ", ".join(names[:_NAMED_AT_MOST]) + (f" and {rest} more" if rest > 0 else "")
