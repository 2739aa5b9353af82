"""The configuration of a checkpoint, as config.json holds it."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from inspect import signature
from typing import Any

from transformers import AutoConfig, PreTrainedConfig

from vllm_raster_model.contract import RasterContract
from vllm_raster_model.errors import ContractError, telling_of
from vllm_raster_model.grid import Grid
from vllm_raster_model.language import language_config, refuse_misspelt
from vllm_raster_model.networks import network_class
from vllm_raster_model.overlays import laid_over
from vllm_raster_model.tokenizer import DIGIT_TOKEN_IDS, ROW_TOKEN

_TEXT_TOKENS = 64
"""Room in the prompt for what stands beside the images."""
_KEY_TOKENS = 8
"""Of them, the IO processor's key of a request."""


class RasterConfig(PreTrainedConfig):
    """A dense network, the `raster` block, and the tokens that stand for the image.

    Attributes:
        vision_config: The network's configuration; its `model_type` names the network.
        raster: The `raster` block, see `vllm_raster_model.contract.RasterContract`.
        image_token_id: Id of `<image>`, which also stands for each cell.
        row_token_id: Id of the token that ends a row of cells.
        image_end_token_id: Id of the token that comes after the last row; None for no token.
        answer_token_id: Id of the token that ends every prompt; None for no token.
        digit_token_ids: Ids of the digits 0 to f, in which the IO processor writes its keys where
            it has no tokenizer to ask; None where there is always one.
        io_processor_plugin: The IO processor that vLLM loads for the checkpoint.
    """

    model_type = "raster"
    max_images = 1
    """Images that one prompt may hold; an engine may let it be more."""
    usual_images = 1
    """Images that a prompt is to hold of a network of which it is not known how fast it is."""
    image_after_text = False
    """Where an image goes that the prompt does not name: behind its text, or in front."""
    sub_configs = {"vision_config": AutoConfig}  # noqa: RUF012 - transformers' own annotation

    def __init__(
        self,
        vision_config: dict[str, Any] | PreTrainedConfig | None = None,
        raster: dict[str, Any] | None = None,
        image_token_id: int = 4,
        row_token_id: int = 5,
        image_end_token_id: int | None = None,
        answer_token_id: int | None = None,
        digit_token_ids: Sequence[int] | None = DIGIT_TOKEN_IDS,
        vocab_size: int = 22,
        io_processor_plugin: str | None = "raster",
        **kwargs: Any,
    ) -> None:
        refuse_misspelt("config.json", kwargs, _keys(type(self)))
        if isinstance(vision_config, dict):
            vision_config = _network_config(vision_config)
        if not isinstance(vision_config, PreTrainedConfig | None):
            raise ContractError(f"vision_config must be a json object, got {vision_config!r:.80}")
        self.vision_config: PreTrainedConfig | None = vision_config
        self.raster = raster
        self.image_token_id = image_token_id
        self.row_token_id = row_token_id
        self.image_end_token_id = image_end_token_id
        self.answer_token_id = answer_token_id
        self.digit_token_ids = None if digit_token_ids is None else list(digit_token_ids)
        self.vocab_size = vocab_size
        self.io_processor_plugin = io_processor_plugin
        self._check_tokens()
        if raster is not None:
            self._derive()
        super().__init__(**{k: v for k, v in kwargs.items() if k not in _DERIVED})

    def __setattr__(self, name: str, value: Any) -> None:
        """Lays a part of a `raster` block over the one there is: `--hf-overrides` gives parts."""
        known = self.__dict__.get("raster")
        if name != "raster" or known is None or not isinstance(value, Mapping):
            super().__setattr__(name, value)
            return
        super().__setattr__(name, laid_over(known, value))
        self.__dict__.pop("contract", None)
        self._derive()

    def _check_tokens(self) -> None:
        """The grid is read from a prompt's tokens, so that none of its own may stand for others."""
        grid = {name: getattr(self, name) for name in ("image_token_id", "row_token_id")}
        around = {name: getattr(self, name) for name in ("image_end_token_id", "answer_token_id")}
        around = {name: one for name, one in around.items() if one is not None}
        for name, one in (grid | around).items():
            _require_whole(name, one, 0)
        if len({*grid.values()}) < len(grid) or {*grid.values()} & {*around.values()}:
            raise ContractError(
                "image_token_id and row_token_id must differ from each other and from the other "
                f"tokens, got {grid | around}"
            )

    def _derive(self) -> None:
        if self.contract.instructions is not None:
            raise ContractError(
                "raster.instructions is for checkpoints with a language model: leave it out of "
                f"one of model_type {self.model_type!r}"
            )
        # What vLLM asks of a text model: the width of its embeddings, the longest prompt.
        self.hidden_size = self.contract.cell_width
        self.max_position_embeddings = self.prompt_tokens(1)
        self.num_hidden_layers = 0
        self.num_attention_heads = 1

    @cached_property
    def contract(self) -> RasterContract:
        """The `raster` block, read and checked.

        Raises:
            ContractError: There is none, or it is not usable.
        """
        if self.raster is None:
            raise ContractError("config.json has no `raster` block")
        return RasterContract.parse(self.raster)

    @property
    def image_channels(self) -> int:
        """Channels of what the network gives: those of the map."""
        return self.contract.output.channels

    def grid(self, height: int, width: int) -> Grid:
        """The grid of cells over a window of this many pixels."""
        tile = self.contract.tile
        return Grid.covering(height, width, cell=tile.multiple_of, minimum=tile.minimum_cells)

    def image_tokens(self, height: int, width: int) -> list[int]:
        """A window of this many pixels as it stands in a prompt."""
        tokens = self.grid(height, width).token_ids(self.image_token_id, self.row_token_id)
        return tokens if self.image_end_token_id is None else [*tokens, self.image_end_token_id]

    def prompt_tokens(self, images: int) -> int:
        """Room that a prompt needs which holds so many of the largest windows."""
        # Something stands between two images.
        return images * (self._tile_tokens + 1) - 1 + _TEXT_TOKENS

    @property
    def _tile_tokens(self) -> int:
        return self.largest_grid.tokens + (self.image_end_token_id is not None)

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
        if whole["digit_token_ids"] == list(DIGIT_TOKEN_IDS):
            whole["digit_token_ids"] = None
        for name in ("image_end_token_id", "answer_token_id", "digit_token_ids"):
            if whole[name] is None:
                del whole[name]
        return whole


def _keys(config_class: type[RasterConfig]) -> set[str]:
    """The keys of config.json that are this package's own."""
    own = (one for one in config_class.__mro__ if issubclass(one, RasterConfig))
    return {name for one in own for name in signature(one.__init__).parameters} - {"self", "kwargs"}


def _require_whole(name: str, value: Any, least: int) -> None:
    if type(value) is not int or value < least:
        raise ContractError(f"{name} must be a whole number from {least}, got {value!r}")


def _network_config(stored: dict[str, Any]) -> PreTrainedConfig:
    """The configuration of a network; transformers would keep a misspelt key and say nothing."""
    kind = stored.get("model_type", "")
    if not isinstance(kind, str):
        raise ContractError(f"vision_config.model_type must be a text, got {kind!r:.80}")
    config_class = network_class(kind).config_class
    known = config_class().to_dict()
    if unknown := sorted(stored.keys() - known.keys()):
        raise ContractError(
            f"vision_config has the unknown keys {unknown}; there are {sorted(known)}"
        )
    with telling_of("vision_config"):
        config: PreTrainedConfig = config_class(**stored)
    return config


_DERIVED = (
    *("hidden_size", "max_position_embeddings", "num_hidden_layers", "num_attention_heads"),
    *("max_images", "usual_images"),
)


class InstructedRasterConfig(RasterConfig):
    """A vision encoder, a language model and a dense head.

    Attributes:
        text_config: The language model's configuration, see
            `vllm_raster_model.language.language_config`.
        feature_channels: Features of a pixel that the vision encoder gives.
        head_units: Hidden units of the dense head's perceptrons.
        max_images: Images that one prompt may hold.
    """

    model_type = "instructed_raster"
    image_after_text = True
    sub_configs = {"vision_config": AutoConfig, "text_config": AutoConfig}  # noqa: RUF012

    def __init__(
        self,
        text_config: dict[str, Any] | PreTrainedConfig | None = None,
        feature_channels: int = 16,
        head_units: int = 8,
        max_images: int = 2,
        **kwargs: Any,
    ) -> None:
        # Without a `raster` block it is transformers, asking what is so by default.
        asked = text_config is not None or kwargs.get("raster") is not None
        text = language_config(text_config) if asked else None
        self.text_config: PreTrainedConfig | None = text
        self.feature_channels = feature_channels
        self.head_units = head_units
        self.max_images = max_images
        for name in ("feature_channels", "head_units", "max_images"):
            _require_whole(name, getattr(self, name), 1)
        if text is not None:
            kwargs["vocab_size"] = text.vocab_size
        kwargs["digit_token_ids"] = None  # instructions always need the tokenizer
        super().__init__(**kwargs)

    def _derive(self) -> None:
        output = self.contract.output
        if output.upscale != 1 or output.downscale != 1:
            raise ContractError(
                "An instructed model does not upscale or downscale: raster.output.upscale and "
                "downscale are 1"
            )
        instructions = self.contract.instructions
        if instructions is None:
            raise ContractError(
                "raster.instructions is missing: it says how an instructed checkpoint is told"
            )
        if ROW_TOKEN in instructions.template:
            raise ContractError(
                f"raster.instructions.template may not hold {ROW_TOKEN}, a part of the image's "
                f"grid, got {instructions.template!r}"
            )
        self._check_room()

    def _check_room(self) -> None:
        longest = getattr(self.text_config, "max_position_embeddings", None)
        if longest is not None:
            self.require_room(longest, "text_config.max_position_embeddings")

    def require_room(self, longest: int, name: str) -> None:
        """Refuses a limit that leaves no room for a tile, a word, and what stands beside them.

        Args:
            longest: Tokens that a prompt may have.
            name: Of what says so.

        Raises:
            ContractError: It is too low.
        """
        tile = self.contract.tile.size
        needed = self._tile_tokens + 1 + (self.answer_token_id is not None) + _KEY_TOKENS
        if longest < needed:
            raise ContractError(
                f"{name} is {longest}, but a tile of {tile} × {tile} pixels, one word and the "
                f"request's key are {needed} tokens: make raster.tile.size smaller, or it larger"
            )

    @property
    def image_channels(self) -> int:
        """Channels of what the network gives: features of pixels, for the head to read."""
        return self.feature_channels

    @property
    def detail_width(self) -> int:
        """Numbers of a cell that travel beside the language model: its pixels' features."""
        return self.feature_channels * self.contract.tile.multiple_of**2

    def to_dict(self) -> dict[str, Any]:
        """As config.json holds it."""
        whole = super().to_dict() | {"max_images": self.max_images}
        del whole["vocab_size"]
        return whole
