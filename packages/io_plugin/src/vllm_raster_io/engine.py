"""The seam to vLLM: the one file of this package that touches its moving parts.

Everything else imports vLLM's names from here. Written for vLLM 0.32, read against 0.33.
"""

from vllm_raster_io.engine_version import require_vllm

require_vllm()  # before the imports below fail for a reason that says nothing

from vllm.config import VllmConfig
from vllm.inputs import PromptType
from vllm.outputs import PoolingRequestOutput
from vllm.plugins.io_processors.interface import IOProcessor
from vllm.pooling_params import PoolingParams
from vllm.renderers import BaseRenderer

POOLING_TASK = "token_classify"
"""The task that both of vLLM's model runners accept and that sees every token; `plugin`, which
vLLM would choose, is refused by the second one."""

__all__ = [
    "POOLING_TASK",
    "BaseRenderer",
    "IOProcessor",
    "PoolingParams",
    "PoolingRequestOutput",
    "PromptType",
    "VllmConfig",
]
