"""How vLLM sees an image item: how many tokens it is, how it is prepared, where it stands."""

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from transformers import BatchFeature

from vllm_raster_model.config import RasterConfig
from vllm_raster_model.engine import (
    BaseDummyInputsBuilder,
    BaseMultiModalProcessor,
    BaseProcessingInfo,
    ImageSize,
    ModalityDataItems,
    MultiModalDataDict,
    MultiModalDataItems,
    MultiModalDataParser,
    MultiModalDummyOptions,
    MultiModalFieldConfig,
    MultiModalInput,
    MultiModalKwargsItems,
    PlaceholderRange,
    ProcessorBatchItems,
    ProcessorInputs,
    PromptIndex,
    PromptIndexTargets,
    PromptInsertion,
    PromptReplacement,
    PromptUpdate,
    PromptUpdateDetails,
    TimingContext,
)
from vllm_raster_model.errors import ContractError, ImageItemError
from vllm_raster_model.processor import ImageItem, RasterProcessor


class RasterItems(ProcessorBatchItems[ImageItem]):
    """The image items of one prompt."""

    def __init__(self, items: Sequence[ImageItem]) -> None:
        super().__init__(items, "image")

    def get_image_size(self, index: int) -> ImageSize:
        """Width and height of an item in pixels, read without reading its pixels."""
        item = self.get(index)
        shape = np.shape(item["pixel_values"]) if _is_item(item) else ()
        height, width = (0, 0, *shape)[-2:]
        return ImageSize(width=width, height=height)


def _is_item(value: object) -> bool:
    # What is none is refused by `RasterProcessor`, which says why.
    return isinstance(value, Mapping) and "pixel_values" in value


class RasterDataParser(MultiModalDataParser):
    """Takes one image item or a list of them."""

    def _parse_image_data(self, data: Any) -> ModalityDataItems[Any, Any] | None:
        if data is None:
            return None
        return RasterItems(data if isinstance(data, list | tuple) else [data])


class RasterProcessingInfo(BaseProcessingInfo):
    """Limits and sizes, all from the `raster` block."""

    def get_hf_config(self) -> RasterConfig:
        """The checkpoint's configuration."""
        return self.ctx.get_hf_config(RasterConfig)

    def get_hf_processor(self, **kwargs: object) -> RasterProcessor:
        """The checkpoint's processor; without a tokenizer, the one that its `raster` block tells.

        Raises:
            ContractError: It was not made for the `raster` block that is beside it.
        """
        contract = self.get_hf_config().contract
        if self.ctx.tokenizer is None:
            return self._processor_of_contract
        processor = self.ctx.get_hf_processor(RasterProcessor, **kwargs)
        for name, stated, wanted in (
            ("bands", processor.bands, len(contract.input.bands)),
            ("frames", processor.frames, contract.input.frames),
            ("cell", processor.cell, contract.tile.multiple_of),
            ("minimum_cells", processor.minimum_cells, contract.tile.minimum_cells),
        ):
            if stated != wanted:
                raise ContractError(
                    f"processor_config.json has {name}={stated}, but by the raster block of "
                    f"config.json it is {wanted}"
                )
        self._check_tokens(processor)
        return processor

    @cached_property
    def _processor_of_contract(self) -> RasterProcessor:
        return RasterProcessor.of(self.get_hf_config().contract)

    def _check_tokens(self, processor: RasterProcessor) -> None:
        config = self.get_hf_config()
        for name, token, stated in (
            ("image_token_id", processor.image_token, config.image_token_id),
            ("row_token_id", processor.row_token, config.row_token_id),
            ("image_end_token_id", processor.image_end_token, config.image_end_token_id),
            ("answer_token_id", processor.answer_token, config.answer_token_id),
        ):
            wanted = None if token is None else processor.tokenizer.convert_tokens_to_ids(token)
            if stated != wanted:
                raise ContractError(
                    f"config.json has {name}={stated}, but for the tokenizer {token} is {wanted}"
                )
        words, tokens = config.vocab_size, len(processor.tokenizer)
        # The image's own token is never looked up.
        if config.image_after_text and {*range(words, tokens)} - {config.image_token_id}:
            raise ContractError(
                f"The tokenizer has {tokens} tokens, but the language model's table of words has "
                f"{words} (text_config.vocab_size): the others could not be looked up. Resize the "
                "table before training"
            )

    def get_data_parser(self) -> RasterDataParser:
        """A parser of image items."""
        return RasterDataParser(expected_hidden_size=self._get_expected_hidden_size())

    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        """As many windows as the configuration has room for in a prompt."""
        return {"image": self.get_hf_config().max_images}

    def get_num_image_tokens(self, *, image_width: int, image_height: int) -> int:
        """Tokens that a window of this many pixels takes: its cells, one end a row, its end."""
        return len(self.get_hf_config().image_tokens(image_height, image_width))

    def get_image_size_with_most_features(self) -> ImageSize:
        """The largest window, a tile of the `raster` block."""
        size = self.get_hf_config().contract.tile.size
        return ImageSize(width=size, height=size)


class RasterDummyInputs(BaseDummyInputsBuilder[RasterProcessingInfo]):
    """The worst case, with which the engine measures its memory: full tiles, all fields."""

    def get_dummy_text(self, mm_counts: Mapping[str, int]) -> str:
        """One placeholder an image, and a digit between two, which may not touch."""
        return "0".join([self.info.get_hf_processor().image_token] * mm_counts.get("image", 0))

    def get_dummy_mm_data(
        self,
        seq_len: int,
        mm_counts: Mapping[str, int],
        mm_options: MultiModalDummyOptions,
    ) -> MultiModalDataDict:
        """Largest windows in the widest type, with a mask and coordinates.

        An option for images that gives a smaller width or height is followed.
        """
        contract = self.info.get_hf_config().contract
        width, height = self.info.get_image_size_with_most_features()
        if (wanted := mm_options.get("image")) is not None:
            width = min(width, getattr(wanted, "width", None) or width)
            height = min(height, getattr(wanted, "height", None) or height)
        frames = contract.input.frames
        valid = np.ones((height, width), dtype=bool)
        valid[0, 0] = False
        item = {
            "pixel_values": np.zeros((len(contract.input.bands), frames, height, width)),
            "valid": valid,
            "temporal_coords": np.zeros((frames, 2)),
            "location_coords": np.zeros(2),
        }
        return {"image": [item] * mm_counts.get("image", 0)}


class RasterMultiModalProcessor(BaseMultiModalProcessor[RasterProcessingInfo]):
    """Prepares image items and puts their cells into the prompt."""

    requires_tokenizer = False
    """A prompt may be token ids, as those of the IO processor are."""

    def apply(self, inputs: ProcessorInputs, timing_ctx: TimingContext) -> MultiModalInput:
        """Refuses a prompt whose own tokens could be taken for a part of the grid."""
        config = self.info.get_hf_config()
        images = inputs.mm_data_items.get_all_counts().get("image", 0)
        named = inputs.prompt.count(config.image_token_id)
        rows = inputs.prompt.count(config.row_token_id)
        if named > images or rows:
            raise ImageItemError(
                f"A prompt may hold the image token {config.image_token_id} once for each image, "
                f"here {images}, and never the row token {config.row_token_id}, "
                f"got them {named} and {rows} times"
            )
        self._refuse_large_windows(inputs.mm_data_items)
        prepared = super().apply(inputs, timing_ctx)
        if config.image_end_token_id is None:
            _refuse_touching(prepared["mm_placeholders"].get("image", []))
        return prepared

    def _refuse_large_windows(self, mm_items: MultiModalDataItems) -> None:
        size = self.info.get_hf_config().contract.tile.size
        if "image" not in mm_items:
            return
        items = mm_items.get_items("image", RasterItems)
        for index in range(len(items)):
            width, height = items.get_image_size(index)
            if max(width, height) > size:
                raise ImageItemError(
                    f"A window may have {size} × {size} pixels, got {height} × {width}: the memory "
                    "for more was not set aside. Cut it into tiles"
                )

    def _call_hf_processor(
        self, hf_data: Mapping[str, object], hf_kwargs: Mapping[str, object]
    ) -> BatchFeature:
        # Not through vLLM's wrapper: it would cast coordinates to the model's type, and put the
        # pixels into the message of any error.
        prepared = self.info.get_hf_processor()(**hf_data)
        # Each window in a list of its own: vLLM would stack those of one shape, whichever request
        # they come from, and cast them all to the type of the first.
        prepared["pixel_values"] = [[window] for window in prepared["pixel_values"]]
        return prepared

    def _get_mm_fields_config(
        self, hf_inputs: BatchFeature, hf_processor_mm_kwargs: Mapping[str, object]
    ) -> Mapping[str, MultiModalFieldConfig]:
        return {name: MultiModalFieldConfig.batched("image") for name in hf_inputs}

    def _get_prompt_updates(
        self,
        mm_items: MultiModalDataItems,
        hf_processor_mm_kwargs: Mapping[str, object],
        out_mm_kwargs: MultiModalKwargsItems,
    ) -> Sequence[PromptUpdate]:
        """`<image>` becomes its grid; an image that the prompt does not name goes to its place.

        That is in front, or behind the text, where there is a language model to read it first.
        """
        config = self.info.get_hf_config()

        def grid(index: int) -> PromptUpdateDetails:
            width, height = mm_items.get_items("image", RasterItems).get_image_size(index)
            tokens = config.image_tokens(height, width)
            # As `select_token_id` would, which looks at every token of every window again.
            mask = _cell_mask(tuple(tokens), config.image_token_id)
            return PromptUpdateDetails(tokens, lambda _: mask)

        return [
            PromptReplacement("image", target=[config.image_token_id], replacement=grid),
            PromptInsertion("image", target=_place(config), insertion=grid),
        ]

    def _postprocess_prompt(self, prompt: list[int]) -> list[int]:
        """Appends the token that opens the answer, where the checkpoint has one.

        The guides' `_apply_hf_processor_tokens_only`.
        """
        answer = self.info.get_hf_config().answer_token_id
        return prompt if answer is None else [*prompt, answer]


@lru_cache(maxsize=64)
def _cell_mask(tokens: tuple[int, ...], cell_token_id: int) -> torch.Tensor:
    return torch.tensor(tokens) == cell_token_id


def _refuse_touching(places: Sequence[PlaceholderRange]) -> None:
    for one, other in pairwise(places):
        if one.offset + one.length == other.offset:
            raise ImageItemError(
                "Two images may not touch in a prompt, for this checkpoint has no token that ends "
                "one (image_end_token_id): put a word between them"
            )


def _place(config: RasterConfig) -> PromptIndex:
    """Where an image goes that the prompt does not name."""
    if not config.image_after_text:
        return PromptIndexTargets.start()
    # The token that opens the answer is there already.
    behind = 0 if config.answer_token_id is None else 1
    return PromptIndex(
        lambda prompt, start_idx=0: len(prompt) - behind,
        lambda tokenizer, prompt, start_idx=0: len(prompt),
    )
