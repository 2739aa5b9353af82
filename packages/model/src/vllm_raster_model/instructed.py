"""The served class with a language model inside: the prompt's text says what is mapped.

The embedding of a cell is wider than the language model: what the model is to see of the cell
comes first, then the features of the cell's pixels, which travel beside it in a buffer with a
row a token, and are joined with the hidden states again for the dense head to read.

Adapters (LoRA) are vLLM's own, and reach the language model: its linear layers and its table of
words, of which it says itself what vLLM has joined.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from vllm_raster_model.engine import (
    MULTIMODAL_REGISTRY,
    LinearBase,
    MultiModalEmbeddings,
    MultiModelKeys,
    SupportsLoRA,
    SupportsMultiModal,
    VllmConfig,
    VllmLayers,
    batch_tokens,
    configuration,
    language_model,
    merge_cells,
)
from vllm_raster_model.engine_adapters import AdapterNames, keep_adapters_apart
from vllm_raster_model.errors import WeightsError
from vllm_raster_model.head import CellProjector, DenseHead
from vllm_raster_model.multimodal import (
    RasterDummyInputs,
    RasterMultiModalProcessor,
    RasterProcessingInfo,
)
from vllm_raster_model.plain import RasterForImageToImage
from vllm_raster_model.pooler import MapPooler
from vllm_raster_model.predictor import WindowPredictor, predicted_cells
from vllm_raster_model.weights import load_language_model, load_strictly

_LANGUAGE_MODEL = "language_model."
_PARTS = {
    "predictor": "a part of the vision encoder",
    "projector": "the projector",
    "head": "a part of the dense head",
}


@MULTIMODAL_REGISTRY.register_processor(
    RasterMultiModalProcessor, info=RasterProcessingInfo, dummy_inputs=RasterDummyInputs
)
class InstructedRasterForImageToImage(nn.Module, SupportsMultiModal, SupportsLoRA):
    """A vision encoder, a projector, a causal language model and a dense head."""

    is_pooling_model = True
    allow_patterns_overrides = RasterForImageToImage.allow_patterns_overrides

    get_placeholder_str = RasterForImageToImage.get_placeholder_str

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        self.config = config = configuration(vllm_config)
        name = f"{prefix}." if prefix else ""
        self.width: int = config.text_config.hidden_size
        with self._mark_tower_model(vllm_config, "image"):
            self.predictor = WindowPredictor(config, VllmLayers(), prefix=f"{name}predictor")
            self.projector = CellProjector(config.feature_channels, self.width)
        with self._mark_language_model(vllm_config):
            self.language_model = language_model(
                vllm_config, config.text_config, f"{name}language_model"
            )
        keep_adapters_apart()
        self.embedding_modules = self.language_model.embedding_modules
        self.hf_to_vllm_mapper = _adapter_names(self.language_model)
        self.head = DenseHead(
            self.width, config.feature_channels, config.head_units, config.contract.output.channels
        )
        self.pooler = MapPooler(config, self._decode, failed=lambda: self.predictor.failed)
        self.configure_mm_token_handling(config.text_config.vocab_size, [config.image_token_id])
        self.details: torch.Tensor
        details = torch.zeros(batch_tokens(vllm_config), config.detail_width)
        self.register_buffer("details", details, persistent=False)

    def embed_multimodal(self, **kwargs: Any) -> MultiModalEmbeddings:
        """Encodes the windows of a batch (the guides' `get_multimodal_embeddings`).

        Args:
            **kwargs: The fields that `RasterProcessor` makes, see `predicted_cells`.

        Returns:
            One (cells, width of the language model + features of a cell) a window, in order.
        """
        if not kwargs:
            return []
        cells = predicted_cells(self.predictor, kwargs)
        seen = [self.projector(one) for one in cells]
        if self.predictor.failed:
            # What is NaN beside the language model tells the pooler; within, it would spread.
            seen = [one.nan_to_num(0.0) for one in seen]
        return [torch.cat(one, dim=-1) for one in zip(seen, cells, strict=True)]

    def embed_input_ids(
        self,
        input_ids: torch.Tensor,
        multimodal_embeddings: MultiModalEmbeddings | None = None,
        *,
        is_multimodal: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Embeds the text and puts the cells in place (the guides' `get_input_embeddings`).

        What of the cells is not for the language model is kept until `forward`.
        """
        embeddings = self._embed_text_input_ids(
            input_ids, self.language_model.embed_input_ids, is_multimodal=is_multimodal
        )
        details = self.details[: len(input_ids)].zero_()
        if (
            multimodal_embeddings is None
            or len(multimodal_embeddings) == 0
            or is_multimodal is None
        ):
            return embeddings
        parts = [one.split([self.width, details.shape[1]], -1) for one in multimodal_embeddings]
        merge_cells(details, [beside for _, beside in parts], is_multimodal)
        return merge_cells(embeddings, [seen for seen, _ in parts], is_multimodal)

    def forward(
        self,
        input_ids: torch.Tensor | None,
        positions: torch.Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: torch.Tensor | None = None,
        **_: Any,
    ) -> torch.Tensor:
        """Reads the prompts of a batch.

        Returns:
            (tokens, width of the language model + features of a cell).
        """
        hidden = self.language_model(
            input_ids, positions, intermediate_tensors, inputs_embeds=inputs_embeds
        )
        return torch.cat((hidden, self.details[: len(hidden)]), dim=-1)

    def get_mm_mapping(self) -> MultiModelKeys:
        """Which parts are what; vLLM gives adapters to the language model alone."""
        return MultiModelKeys.from_string_field(
            language_model="language_model", connector="projector", tower_model="predictor"
        )

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Loads all weights, and only those.

        Raises:
            WeightsError: One is missing, unknown or of the wrong shape.
        """
        given = dict(weights)
        theirs = {name: one for name, one in given.items() if name.startswith(_LANGUAGE_MODEL)}
        ours = {name: one for name, one in given.items() if name not in theirs}
        loaded = load_strictly(self, ours.items(), apart=_LANGUAGE_MODEL) | load_language_model(
            self.language_model, theirs, self.config.text_config, _LANGUAGE_MODEL
        )
        self.predictor.settle()
        return loaded

    def _decode(self, states: torch.Tensor) -> torch.Tensor:
        """From what `forward` gives for cells to their blocks of output."""
        hidden, features = states.split([self.width, states.shape[-1] - self.width], dim=-1)
        return self.head(hidden, features)


def _adapter_names(language_model: nn.Module) -> AdapterNames:
    """How modules that an adapter names become those that vLLM has.

    PEFT names them as the model in plain PyTorch does. What an adapter has for a module that is
    not there vLLM would leave out in silence: that is refused here.
    """
    joined = language_model.packed_modules_mapping
    known, targets = set(), set()
    for name, module in language_model.model.named_modules():
        parent, dot, last = name.rpartition(".")
        theirs = joined.get(last, [last])
        known |= {f"{_LANGUAGE_MODEL}{parent}{dot}{one}" for one in theirs}
        if isinstance(module, LinearBase):
            targets |= {*theirs}

    def served(name: str) -> str:
        module, is_lora, _ = name.partition(".lora_")
        if is_lora and module in known:
            return name.replace(_LANGUAGE_MODEL, f"{_LANGUAGE_MODEL}model.", 1)
        part = _PARTS.get(module.partition(".")[0], "which the language model does not have")
        if not is_lora:
            part = "which it was to replace as a whole"
        raise WeightsError(
            f"The adapter has weights for {module!r}, {part}. An adapter may have them for layers "
            f"of the language model alone: make it with target_modules={sorted(targets)}, or some "
            "of these"
        )

    return AdapterNames(served)
