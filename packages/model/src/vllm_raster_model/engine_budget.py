"""The sixth part of the seam: how many tokens a step takes, and how many windows a prompt.

Written for vLLM 0.32; what stands on it is `SchedulerConfig` and `ModelConfig.max_model_len`.
"""

from vllm.config import ModelConfig

from vllm_raster_model.config import RasterConfig
from vllm_raster_model.engine import VllmConfig, configuration, logger

PROMPT_PIXELS = 1024 * 1024
"""Of all windows of a prompt, of all dates: four of 512 × 512. What a prompt costs by itself, by
benchmarks/overhead.py 4 ms for one of such a window, is shared by them; a network that needs a
second for one has a step last some."""
PROMPT_WINDOWS = 16
"""No more than so many, however small they are."""

_BUDGETS = (2048, 4096)
"""Tokens a step that vLLM chooses on a CPU, for a server and offline, of one worker
(`EngineArgs.get_batch_defaults`)."""


def set_budget(vllm_config: VllmConfig, side_by_side: int, steps: int = 1) -> None:
    """Lets a prompt hold several windows, and a step as many as are computed side by side.

    vLLM does not split prompts of a model without a cache of keys and values, but chooses the
    budget before it knows, and would wait forever for room for one that is longer: so a step takes
    at least one window. What was asked for by a flag wins: `--max-num-batched-tokens`,
    `--max-model-len` and `--limit-mm-per-prompt`.

    Args:
        vllm_config: Of an engine for the class without a language model.
        side_by_side: Windows that a CPU computes at once; 0 for other devices, whose memory
            bounds a step by vLLM's own budget.
        steps: Under way at once.
    """
    config: RasterConfig = configuration(vllm_config)
    model, scheduler = vllm_config.model_config, vllm_config.scheduler_config
    wanted = min(_windows(config, side_by_side), _allowed(model))
    budget = scheduler.max_num_batched_tokens
    if side_by_side and budget in _BUDGETS:
        budget = max(budget, config.prompt_tokens(wanted), side_by_side * config.prompt_tokens(1))
    if budget < (least := config.prompt_tokens(1)):
        logger.info("A step takes %s tokens, not %s: a window is not split.", least, budget)
        budget = least
    longest = None if model.original_max_model_len in {None, -1} else model.max_model_len
    room = budget if longest is None else min(budget, longest)
    config.max_images = max(
        n for n in range(1, wanted + 1) if n == 1 or config.prompt_tokens(n) <= room
    )
    if longest is None:
        model.max_model_len = config.prompt_tokens(config.max_images)
    scheduler.max_num_batched_tokens = scheduler.max_num_encoder_input_tokens = budget
    # What windows give is kept until their step has ended.
    scheduler.encoder_cache_size = steps * budget


def _windows(config: RasterConfig, side_by_side: int) -> int:
    """How many windows a prompt is to hold."""
    contract = config.contract
    pixels = contract.input.frames * contract.tile.size**2
    return max(side_by_side, min(PROMPT_WINDOWS, PROMPT_PIXELS // pixels))


def _allowed(model: ModelConfig) -> int:
    limits = model.multimodal_config
    return max(1, limits.get_limit_per_prompt("image")) if limits else 1
