"""The seam to vLLM: the files whose names begin with `engine` touch its moving parts.

Everything else imports vLLM's names from here. Written for vLLM 0.32, read against 0.33; where
the written guides of 2025 call a hook by another name, the docstring at its definition says so.
"""

import logging
from typing import Any

import torch
from torch import nn

from vllm_raster_model.engine_version import require_vllm

require_vllm()  # before the imports below fail for a reason that says nothing

from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from vllm.config import VllmConfig
from vllm.config.multimodal import MultiModalDummyOptions
from vllm.distributed import get_tensor_model_parallel_world_size
from vllm.inputs import MultiModalDataDict, MultiModalInput
from vllm.model_executor.layers.attention import MMEncoderAttention
from vllm.model_executor.layers.linear import (
    ColumnParallelLinear,
    LinearBase,
    QKVParallelLinear,
    RowParallelLinear,
)
from vllm.model_executor.layers.pooler import Pooler, PoolingParamsUpdate
from vllm.model_executor.layers.pooler.tokwise import AllPool
from vllm.model_executor.model_loader.weight_utils import default_weight_loader
from vllm.model_executor.models.interfaces import (
    IsAttentionFree,
    MultiModalEmbeddings,
    SupportsLoRA,
    SupportsMultiModal,
)
from vllm.model_executor.models.interfaces_base import attn_type
from vllm.model_executor.models.module_mapping import MultiModelKeys
from vllm.model_executor.models.utils import init_vllm_registered_model
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.inputs import (
    MultiModalFieldConfig,
    MultiModalKwargsItems,
    PlaceholderRange,
)
from vllm.multimodal.parse import (
    ImageSize,
    ModalityDataItems,
    MultiModalDataItems,
    MultiModalDataParser,
    ProcessorBatchItems,
)
from vllm.multimodal.processing import (
    BaseDummyInputsBuilder,
    BaseMultiModalProcessor,
    BaseProcessingInfo,
    ProcessorInputs,
    PromptIndexTargets,
    PromptInsertion,
    PromptReplacement,
    PromptUpdate,
    PromptUpdateDetails,
    TimingContext,
)
from vllm.multimodal.processing.processor import PromptIndex
from vllm.v1.pool.metadata import PoolingMetadata

from vllm_raster_model.errors import RasterModelError, telling_of

# Under vLLM's own logger, so that it is shown where and how vLLM's lines are.
logger = logging.getLogger("vllm.raster.model")


class VllmLayers:
    """vLLM's parallel layers, as `vllm_raster_model.networks.layers.Layers`."""

    def __init__(self) -> None:
        self.parallel_size = get_tensor_model_parallel_world_size()

    def column(self, inputs: int, outputs: int, *, prefix: str) -> nn.Module:
        """See `Layers.column`."""
        return _runnable(ColumnParallelLinear(inputs, outputs, return_bias=False, prefix=prefix))

    def row(self, inputs: int, outputs: int, *, prefix: str) -> nn.Module:
        """See `Layers.row`."""
        return _runnable(RowParallelLinear(inputs, outputs, return_bias=False, prefix=prefix))

    def qkv(self, width: int, heads: int, *, prefix: str) -> nn.Module:
        """See `Layers.qkv`."""
        head_width = width // heads
        return _runnable(
            QKVParallelLinear(width, head_width, heads, return_bias=False, prefix=prefix)
        )

    def attention(self, heads: int, head_width: int, *, prefix: str) -> nn.Module:
        """See `Layers.attention`."""
        return MMEncoderAttention(heads // self.parallel_size, head_width, prefix=prefix)


def _runnable(layer: LinearBase) -> LinearBase:
    """Has a layer compute as PyTorch does on a CPU.

    What vLLM would replace that by, once the weights are loaded, keeps what it computes on in one
    place for all threads: two windows side by side would get each other's. And a trial at the
    start, before that, can call it.
    """
    layer.cpu_linear = nn.functional.linear
    layer._cpu_skip_gemm_dispatch = True
    return layer


def load_parameter(parameter: torch.Tensor, weight: torch.Tensor) -> None:
    """Copies a weight from disk into a parameter, or into its part of it on this device.

    Raises:
        ValueError: The shapes do not fit.
    """
    # vLLM's own loaders cut off what is too much.
    sizes = (1, get_tensor_model_parallel_world_size())
    if len(weight.shape) != len(parameter.shape) or any(
        whole not in (part * size for size in sizes)
        for whole, part in zip(weight.shape, parameter.shape, strict=True)
    ):
        raise ValueError(f"{tuple(weight.shape)} does not fit {tuple(parameter.shape)}")
    getattr(parameter, "weight_loader", default_weight_loader)(parameter, weight)


def merge_cells(
    embeddings: torch.Tensor, cells: MultiModalEmbeddings, is_cell: torch.Tensor
) -> torch.Tensor:
    """Writes the cells over the tokens that stand for them, in place.

    The guides' `merge_multimodal_embeddings`; vLLM's own puts all cells together first.

    Raises:
        ValueError: There are more cells than tokens for them, or fewer.
    """
    places = is_cell.nonzero()[:, 0].to(embeddings.device)
    counts = [len(one) for one in cells]
    if sum(counts) != len(places):
        raise ValueError(f"There are {sum(counts)} cells for {len(places)} tokens")
    for place, one in zip(places.split(counts), cells, strict=True):
        embeddings.index_copy_(0, place, one.to(embeddings.dtype))
    return embeddings


def language_model(vllm_config: VllmConfig, text_config: Any, prefix: str) -> nn.Module:
    """A causal language model out of vLLM's registry, by its own configuration.

    Raises:
        RasterModelError: It is none of those of vLLM that are built like Llama.
    """
    architecture = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[text_config.model_type]
    with telling_of("text_config"):
        model = init_vllm_registered_model(
            vllm_config, hf_config=text_config, architectures=[architecture], prefix=prefix
        )
    # What weights and adapters are loaded by.
    for name in ("model", "embedding_modules", "packed_modules_mapping"):
        if not hasattr(model, name):
            raise RasterModelError(
                f"text_config has model_type {text_config.model_type!r}, whose class in vLLM, "
                f"{type(model).__name__}, has no `{name}`: it cannot be served inside. Llama and "
                "Qwen3 are known to work"
            )
    return model


def batch_tokens(vllm_config: VllmConfig) -> int:
    """The most tokens that one step may take."""
    return int(vllm_config.scheduler_config.max_num_batched_tokens)


def configuration(vllm_config: VllmConfig) -> Any:
    """The checkpoint's own configuration."""
    return vllm_config.model_config.hf_config


__all__ = [
    "MULTIMODAL_REGISTRY",
    "AllPool",
    "BaseDummyInputsBuilder",
    "BaseMultiModalProcessor",
    "BaseProcessingInfo",
    "ImageSize",
    "IsAttentionFree",
    "LinearBase",
    "ModalityDataItems",
    "MultiModalDataDict",
    "MultiModalDataItems",
    "MultiModalDataParser",
    "MultiModalDummyOptions",
    "MultiModalEmbeddings",
    "MultiModalFieldConfig",
    "MultiModalInput",
    "MultiModalKwargsItems",
    "MultiModelKeys",
    "PlaceholderRange",
    "Pooler",
    "PoolingMetadata",
    "PoolingParamsUpdate",
    "ProcessorBatchItems",
    "ProcessorInputs",
    "PromptIndex",
    "PromptIndexTargets",
    "PromptInsertion",
    "PromptReplacement",
    "PromptUpdate",
    "PromptUpdateDetails",
    "SupportsLoRA",
    "SupportsMultiModal",
    "TimingContext",
    "VllmConfig",
    "VllmLayers",
    "attn_type",
    "batch_tokens",
    "configuration",
    "language_model",
    "load_parameter",
    "logger",
    "merge_cells",
]
