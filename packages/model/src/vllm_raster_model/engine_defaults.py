"""What the engine must know before it starts; a part of the seam to vLLM."""

import os
from typing import TYPE_CHECKING

import torch
from vllm.model_executor.models.config import VerifyAndUpdateConfig
from vllm.platforms import current_platform
from vllm.triton_utils import HAS_TRITON

from vllm_raster_model.engine import VllmConfig, configuration, logger
from vllm_raster_model.engine_ahead import work_ahead
from vllm_raster_model.engine_budget import set_budget
from vllm_raster_model.engine_executor import use_processor
from vllm_raster_model.errors import RasterModelError

if TYPE_CHECKING:
    from vllm.config import ModelConfig

_RUNNER_SWITCH = "VLLM_USE_V2_MODEL_RUNNER"


class ServingDefaults(VerifyAndUpdateConfig):
    """What the engine must know before it starts.

    An entry of vLLM's `MODELS_CONFIG_MAP`, made by `vllm_raster_model.registration`.
    """

    cpu_cache_bytes = 1 << 30

    @classmethod
    def verify_and_update_model_config(cls, model_config: "ModelConfig") -> None:
        """Sets what vLLM would otherwise choose as for a text model."""
        if model_config.dtype != torch.float32:
            # Maps pass through the model's dtype: in half precision 70000 is infinite.
            logger.info("Serving in float32, not %s: it carries the maps.", model_config.dtype)
            model_config.dtype = torch.float32
        multimodal = model_config.multimodal_config
        if multimodal is not None and multimodal.mm_processor_cache_gb:
            logger.info("No multimodal processor cache: windows do not come twice.")
            multimodal.mm_processor_cache_gb = 0
        if current_platform.is_cpu() and not model_config.enforce_eager:
            logger.info("No compilation on a CPU, which would take most of the start.")
            model_config.enforce_eager = True

    @classmethod
    def verify_and_update_config(cls, vllm_config: VllmConfig) -> None:
        """On a CPU, sets the cache of keys and values, unless it is set, and the threads.

        vLLM's CPU worker would refuse to start wherever 92 % of the memory are not free.

        Raises:
            RasterModelError: Adapters are asked for where vLLM cannot apply them.
        """
        if getattr(vllm_config, "lora_config", None) and not current_platform.is_cpu():
            # vLLM's kernels would say so by an assertion without a word.
            raise RasterModelError(
                "vLLM applies LoRA adapters in float32 on a CPU only, and maps are served in "
                "float32: merge the adapter into the checkpoint's weights, or leave out "
                "--enable-lora"
            )
        require = getattr(configuration(vllm_config), "require_room", None)
        if require is not None:
            require(vllm_config.model_config.max_model_len, "--max-model-len")
        cache = vllm_config.cache_config
        if current_platform.is_cpu() and cache.kv_cache_memory_bytes is None:
            cache.kv_cache_memory_bytes = cls.cpu_cache_bytes
        if current_platform.is_cpu():
            use_processor(vllm_config)


class PlainServingDefaults(ServingDefaults):
    """The same for the class without a language model, which has no such cache."""

    cpu_cache_bytes = 1 << 20

    @classmethod
    def verify_and_update_config(cls, vllm_config: VllmConfig) -> None:
        """Also has windows share a prompt, and few threads compute them side by side, and ahead."""
        super().verify_and_update_config(vllm_config)
        if current_platform.is_cpu():
            work_ahead(vllm_config)
        else:
            set_budget(vllm_config, side_by_side=0)

    @classmethod
    def verify_and_update_model_config(cls, model_config: "ModelConfig") -> None:
        """Also asks for the model runner that is known to work, and the renderer."""
        super().verify_and_update_model_config(model_config)
        if model_config.skip_tokenizer_init and model_config.tokenizer_mode == "auto":
            # vLLM's own for models without a tokenizer: the usual one tries its chat template.
            model_config.tokenizer_mode = "terratorch"
        if HAS_TRITON and _RUNNER_SWITCH not in os.environ:
            logger.info(
                "Asking for vLLM's first model runner: no attention-free model was seen to work "
                "on the second one yet. Set %s to choose.",
                _RUNNER_SWITCH,
            )
            os.environ[_RUNNER_SWITCH] = "0"


__all__ = ["PlainServingDefaults", "ServingDefaults", "VerifyAndUpdateConfig"]
