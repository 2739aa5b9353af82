"""vLLM's side of a checkpoint without an engine: configuration, processor and model."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import init_distributed_environment
from vllm.distributed.parallel_state import (
    cleanup_dist_env_and_memory,
    ensure_model_parallel_initialized,
)
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader.utils import process_weights_after_loading
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.utils import group_and_batch_mm_kwargs

from vllm_raster_model.config import RasterConfig
from vllm_raster_model.instructed import InstructedRasterForImageToImage
from vllm_raster_model.multimodal import RasterMultiModalProcessor
from vllm_raster_model.plain import RasterForImageToImage
from vllm_raster_model.registration import register

from .checkpoints import save_checkpoint
from .instructed import save_instructed

CPU = torch.device("cpu")


def engine_config(checkpoint: Path, **arguments: Any) -> VllmConfig:
    """What `vllm serve` makes of a checkpoint and of its command line."""
    register()
    return EngineArgs(model=str(checkpoint), runner="pooling", **arguments).create_engine_config()


@contextmanager
def alone(store: Path) -> Iterator[None]:
    """VLLM's groups of processes, with this one in them; `store` is where it would meet others."""
    with set_current_vllm_config(VllmConfig()):
        init_distributed_environment(1, 0, f"file://{store}", 0, "gloo")
        ensure_model_parallel_initialized(1, 1)
    yield
    cleanup_dist_env_and_memory()


def make_ready(module: nn.Module, config: VllmConfig) -> None:
    """Does what the engine does when the weights are loaded: its layers do not run before."""
    with set_current_vllm_config(config):
        process_weights_after_loading(module, config.model_config, CPU)


class Serving:
    """A checkpoint, saved in a folder and as vLLM sees it."""

    def __init__(self, folder: Path, config: RasterConfig) -> None:
        self.checkpoint = folder
        self.in_pytorch = self._save(config)
        self.vllm_config = engine_config(folder)
        self.model = self.build()
        self.model.load_weights(self.in_pytorch.state_dict().items())
        make_ready(self.model, self.vllm_config)
        self.processor = MULTIMODAL_REGISTRY.create_processor(self.vllm_config.model_config)
        assert isinstance(self.processor, RasterMultiModalProcessor)

    @property
    def config(self) -> RasterConfig:
        return self.vllm_config.model_config.hf_config

    def _save(self, config: RasterConfig) -> PreTrainedModel:
        return save_checkpoint(self.checkpoint, config)

    def build(self) -> nn.Module:
        """The served class with random weights."""
        with set_current_vllm_config(self.vllm_config):
            return RasterForImageToImage(vllm_config=self.vllm_config).eval()

    def prepare(self, prompt: str | list[int], *items: Any) -> dict[str, Any]:
        """A prompt and its image items, as they leave the renderer for the engine."""
        data = self.processor.info.parse_mm_data({"image": list(items)})
        return self.processor(prompt, data)

    @torch.inference_mode()
    def encode(self, prepared: Sequence[dict[str, Any]]) -> list[torch.Tensor]:
        """The cells of each prompt's image, batched as both of vLLM's model runners do."""
        items = [("image", item) for one in prepared for item in one["mm_kwargs"]["image"]]
        cells: list[torch.Tensor] = []
        for _, count, batch in group_and_batch_mm_kwargs(items, device=CPU):
            found = self.model.embed_multimodal(**batch)
            assert len(found) == count
            cells += found
        return cells


class InstructedServing(Serving):
    """The same of a checkpoint with a language model inside."""

    def _save(self, config: RasterConfig) -> PreTrainedModel:
        return save_instructed(self.checkpoint, config)

    def build(self) -> InstructedRasterForImageToImage:
        """The served class with random weights; its attention does not run without an engine."""
        # Each layer of attention is known by name, once.
        self.vllm_config.compilation_config.static_forward_context.clear()
        with set_current_vllm_config(self.vllm_config):
            return InstructedRasterForImageToImage(vllm_config=self.vllm_config).eval()
