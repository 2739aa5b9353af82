"""The configuration of a checkpoint, as config.json holds it."""

from functools import cached_property
from typing import Any

from transformers import AutoConfig, PreTrainedConfig

from vllm_raster_model.contract import RasterContract
from vllm_raster_model.errors import ContractError
from vllm_raster_model.grid import Grid
from vllm_raster_model.networks import network_class

_TEXT_TOKENS = 64
"""Room in the prompt for what stands beside the image."""


class RasterConfig(PreTrainedConfig):
    """A dense network, the `raster` block, and the tokens that stand for the image.

    Attributes:
        vision_config: The network's configuration; its `model_type` names the network.
        raster: The `raster` block, see `vllm_raster_model.contract.RasterContract`.
        image_token_id: Id of `<image>`, which also stands for each cell.
        row_token_id: Id of the token that ends a row of cells.
        io_processor_plugin: The IO processor that vLLM loads for the checkpoint.
    """

    model_type = "raster"
    sub_configs = {"vision_config": AutoConfig}  # noqa: RUF012 - transformers' own annotation

    def __init__(
        self,
        vision_config: dict[str, Any] | PreTrainedConfig | None = None,
        raster: dict[str, Any] | None = None,
        image_token_id: int = 4,
        row_token_id: int = 5,
        vocab_size: int = 22,
        io_processor_plugin: str | None = "raster",
        **kwargs: Any,
    ) -> None:
        if isinstance(vision_config, dict):
            vision_config = _network_config(vision_config)
        self.vision_config: PreTrainedConfig | None = vision_config
        self.raster = raster
        self.image_token_id = image_token_id
        self.row_token_id = row_token_id
        self.vocab_size = vocab_size
        self.io_processor_plugin = io_processor_plugin
        if raster is not None:
            # What vLLM asks of a text model: the width of its embeddings, the longest prompt.
            self.hidden_size = self.contract.cell_width
            self.max_position_embeddings = self.largest_grid.tokens + _TEXT_TOKENS
            self.num_hidden_layers = 0
            self.num_attention_heads = 1
        super().__init__(**{k: v for k, v in kwargs.items() if k not in _DERIVED})

    @cached_property
    def contract(self) -> RasterContract:
        """The `raster` block, read and checked.

        Raises:
            ContractError: There is none, or it is not usable.
        """
        if self.raster is None:
            raise ContractError("config.json has no `raster` block")
        return RasterContract.parse(self.raster)

    def grid(self, height: int, width: int) -> Grid:
        """The grid of cells over a window of this many pixels."""
        tile = self.contract.tile
        return Grid.covering(height, width, cell=tile.multiple_of, minimum=tile.minimum_cells)

    @property
    def largest_grid(self) -> Grid:
        """The grid over the largest window."""
        return self.grid(self.contract.tile.size, self.contract.tile.size)

    def to_dict(self) -> dict[str, Any]:
        """As config.json holds it: without what follows from the `raster` block."""
        whole = {k: v for k, v in super().to_dict().items() if k not in (*_DERIVED, "contract")}
        if self.vision_config is not None:
            network = self.vision_config.to_diff_dict()
            whole["vision_config"] = {"model_type": self.vision_config.model_type, **network}
        return whole


def _network_config(stored: dict[str, Any]) -> PreTrainedConfig:
    """The configuration of a network; transformers would keep a misspelt key and say nothing."""
    config_class = network_class(stored.get("model_type", "")).config_class
    known = config_class().to_dict()
    if unknown := sorted(stored.keys() - known.keys()):
        raise ContractError(
            f"vision_config has the unknown keys {unknown}; there are {sorted(known)}"
        )
    config: PreTrainedConfig = config_class(**stored)
    return config


_DERIVED = ("hidden_size", "max_position_embeddings", "num_hidden_layers", "num_attention_heads")
