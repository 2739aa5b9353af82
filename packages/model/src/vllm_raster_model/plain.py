"""The served class without a language model: a dense network behind vLLM's scheduler."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from vllm_raster_model.engine import (
    MULTIMODAL_REGISTRY,
    IsAttentionFree,
    MultiModalEmbeddings,
    SupportsMultiModal,
    VllmConfig,
    VllmLayers,
    attn_type,
    configuration,
    merge_cells,
)
from vllm_raster_model.engine_executor import crew
from vllm_raster_model.multimodal import (
    RasterDummyInputs,
    RasterMultiModalProcessor,
    RasterProcessingInfo,
)
from vllm_raster_model.pooler import MapPooler
from vllm_raster_model.predictor import WindowPredictor, predicted_cells
from vllm_raster_model.tokenizer import IMAGE_TOKEN
from vllm_raster_model.weights import load_strictly


@attn_type("attention_free")
@MULTIMODAL_REGISTRY.register_processor(
    RasterMultiModalProcessor, info=RasterProcessingInfo, dummy_inputs=RasterDummyInputs
)
class RasterForImageToImage(nn.Module, IsAttentionFree, SupportsMultiModal):
    """A dense network as a multimodal encoder; the embedding of a cell is its block of output."""

    is_pooling_model = True
    allow_patterns_overrides = ("*.safetensors",)
    """The only files that vLLM takes weights from: it would take pickles too."""

    @classmethod
    def get_placeholder_str(cls, modality: str, i: int) -> str | None:
        """What stands for an image in a text."""
        if modality.startswith("image"):
            return IMAGE_TOKEN
        raise ValueError(f"Only images are mapped, got the modality {modality!r}")

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        self.config = configuration(vllm_config)
        self.width = self.config.contract.cell_width
        name = f"{prefix}.predictor" if prefix else "predictor"
        with self._mark_tower_model(vllm_config, "image"):
            self.predictor = WindowPredictor(self.config, VllmLayers(), prefix=name)
        self.predictor.crew = crew(vllm_config, self.predictor.network)
        self.pooler = MapPooler(
            self.config, crew=self.predictor.crew, failed=lambda: self.predictor.failed
        )

    def get_language_model(self) -> nn.Module:
        """This class itself: there is no other."""
        return self

    def embed_multimodal(self, **kwargs: Any) -> MultiModalEmbeddings:
        """Maps the windows of a batch (the guides' `get_multimodal_embeddings`).

        Args:
            **kwargs: The fields that `RasterProcessor` makes, each a tensor with a first
                dimension for the windows or a list of one tensor a window; `pixel_values` a list
                of lists of one tensor, see `RasterMultiModalProcessor`.

        Returns:
            One (cells, numbers a cell) a window, in the order of the windows.
        """
        if not kwargs:
            return []
        return predicted_cells(self.predictor, kwargs)

    def embed_input_ids(
        self,
        input_ids: torch.Tensor,
        multimodal_embeddings: MultiModalEmbeddings | None = None,
        *,
        is_multimodal: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Puts the cells in place of their tokens (the guides' `get_input_embeddings`).

        Every other token, the row ends and the text, is zero: nothing reads it.
        """
        shape = (len(input_ids), self.width)
        if multimodal_embeddings is None or is_multimodal is None:
            return torch.zeros(shape, device=input_ids.device)
        embeddings = torch.empty(shape, device=input_ids.device)
        # By their numbers: by a mask every row would be looked at.
        others = (~is_multimodal).nonzero()[:, 0].to(embeddings.device)
        embeddings.index_fill_(0, others, 0.0)
        return merge_cells(embeddings, multimodal_embeddings, is_multimodal)

    def forward(
        self,
        input_ids: torch.Tensor | None,
        positions: torch.Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: torch.Tensor | None = None,
        **_: Any,
    ) -> torch.Tensor:
        """Hands the cells on: the network has already spoken."""
        if inputs_embeds is None:
            assert input_ids is not None
            return self.embed_input_ids(input_ids)
        return inputs_embeds

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Loads all weights, and only those.

        Raises:
            WeightsError: One is missing, unknown or of the wrong shape.
        """
        loaded = load_strictly(self, weights)
        self.predictor.settle()
        return loaded
