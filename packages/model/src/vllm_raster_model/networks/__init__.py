"""The networks behind the served classes, one file a network, found by their `model_type`.

A network is a module that takes normalised windows and gives scores; see
`vllm_raster_model.networks.prithvi_dense` for one, and `NETWORKS` for how it is named.
"""

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from torch import nn
from transformers import PreTrainedConfig

from vllm_raster_model.contract import RasterContract
from vllm_raster_model.errors import ContractError, telling_of
from vllm_raster_model.networks.layers import Layers, TorchLayers

NETWORKS: dict[str, str] = {
    "prithvi_dense": "vllm_raster_model.networks.prithvi_dense:PrithviDense",
    "prithvi_mae": "vllm_raster_model.networks.prithvi_mae:PrithviMAE",
}
"""Class path of each network by the `model_type` of its configuration."""

ENTRY_POINTS = "vllm_raster.networks"
"""Group of entry points by which other packages add theirs, each under its `model_type`."""


def network_class(model_type: str) -> Any:
    """The class of the network that goes by this `model_type`.

    Raises:
        ContractError: No network goes by that name.
    """
    added = entry_points(group=ENTRY_POINTS)
    if model_type not in NETWORKS and model_type in added.names:
        return added[model_type].load()
    if model_type not in NETWORKS:
        raise ContractError(
            f"vision_config.model_type must be one of {sorted({*NETWORKS, *added.names})}, got "
            f"{model_type!r}: a package of yours may add it as an entry point of {ENTRY_POINTS!r}"
        )
    module, name = NETWORKS[model_type].split(":")
    return getattr(import_module(module), name)


def build_network(
    config: PreTrainedConfig | None,
    contract: RasterContract,
    layers: Layers,
    prefix: str = "network",
    channels: int | None = None,
) -> nn.Module:
    """Builds the network that a configuration describes, out of the given layers.

    Args:
        config: The network's own configuration.
        contract: The `raster` block.
        layers: What it is made of.
        prefix: Its name in the model.
        channels: Channels that it gives; those of the map, unless something reads them first.

    Raises:
        ContractError: There is no configuration, or it describes no network.
    """
    if config is None:
        raise ContractError("config.json has no `vision_config`")
    made = network_class(config.model_type)
    with telling_of("vision_config"):
        return made(config, contract, layers, prefix, channels)


__all__ = ["ENTRY_POINTS", "NETWORKS", "Layers", "TorchLayers", "build_network", "network_class"]
