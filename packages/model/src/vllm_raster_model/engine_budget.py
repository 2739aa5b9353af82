"""The sixth part of the seam: how many tokens a step takes, and how many windows a prompt.

Written for vLLM 0.32; what stands on it is `SchedulerConfig`, `ModelConfig.max_model_len` and
`Scheduler.schedule`.
"""

from functools import cache
from typing import Any

from vllm.config import ModelConfig
from vllm.v1.core.sched.scheduler import Scheduler

from vllm_raster_model.config import RasterConfig
from vllm_raster_model.contract import RasterContract
from vllm_raster_model.engine import VllmConfig, configuration, logger

USUAL_PIXELS = 1024 * 1024
"""Of all windows of a usual prompt, of all dates: four of 512 × 512. What a prompt costs by itself,
by benchmarks/overhead.py 4 ms for one of such a window, is shared by them; a network that needs a
second for one has a step last some."""
PROMPT_BYTES = 96 * 2**20
"""Of the windows of the longest prompt, in single precision, and of their maps. Whoever sees a
network to be fast may send such."""
PROMPT_TOKENS = 2**16
"""Of the longest prompt, if it is of several windows: vLLM has a table of as many for each prompt
that may be in a step, 256 usually."""
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

    There is room for the longest prompt, but on a CPU several take no more of a step than usual
    ones; see `let_long_prompts_have_steps`.

    Args:
        vllm_config: Of an engine for the class without a language model.
        side_by_side: Windows that a CPU computes at once; 0 for other devices, whose memory
            bounds a step by vLLM's own budget.
        steps: Under way at once.
    """
    config: RasterConfig = configuration(vllm_config)
    model, scheduler = vllm_config.model_config, vllm_config.scheduler_config
    allowed = _allowed(model)
    most = min(_most_windows(config), allowed)
    usual = min(_usual_windows(config.contract, side_by_side), most)
    budget = scheduler.max_num_batched_tokens
    # As vLLM lowers it where few prompts may be in a step.
    lowered = scheduler.max_num_seqs * model.max_model_len
    if side_by_side and budget in {*_BUDGETS, lowered}:
        step = max(budget, config.prompt_tokens(usual), side_by_side * config.prompt_tokens(1))
        budget = max(step, config.prompt_tokens(most))
        if scheduler.max_num_scheduled_tokens is None:
            scheduler.max_num_scheduled_tokens = step
    if budget < (least := config.prompt_tokens(1)):
        logger.info("A step takes %s tokens, not %s: a window is not split.", least, budget)
        budget = least
    longest = None if model.original_max_model_len in {None, -1} else model.max_model_len
    room = budget if longest is None else min(budget, longest)
    config.max_images = _fitting(config, most, room)
    config.usual_images = min(usual, config.max_images)
    if longest is None:
        model.max_model_len = config.prompt_tokens(config.max_images)
    scheduler.max_num_batched_tokens = scheduler.max_num_encoder_input_tokens = budget
    logger.info(
        "Windows in a prompt: %d, of a fast network up to %d; tokens in a step: %d.",
        config.usual_images,
        config.max_images,
        scheduler.max_num_scheduled_tokens or budget,
    )
    # What windows give is kept until their step has ended.
    scheduler.encoder_cache_size = steps * budget


def _usual_windows(contract: RasterContract, side_by_side: int) -> int:
    """How many windows a prompt is to hold of which nothing is known."""
    pixels = contract.input.frames * contract.tile.size**2
    return max(1, side_by_side, min(PROMPT_WINDOWS, USUAL_PIXELS // pixels))


def _most_windows(config: RasterConfig) -> int:
    """How many it may hold."""
    contract = config.contract
    pixels = len(contract.input.bands) * contract.input.frames * contract.tile.multiple_of**2
    window = 4 * config.largest_grid.cells * max(pixels, contract.cell_width)
    tokens = PROMPT_TOKENS // config.prompt_tokens(1)
    return max(1, min(PROMPT_WINDOWS, PROMPT_BYTES // window, tokens))


def _fitting(config: RasterConfig, most: int, room: int) -> int:
    return max(n for n in range(1, most + 1) if n == 1 or config.prompt_tokens(n) <= room)


def _allowed(model: ModelConfig) -> int:
    limits = model.multimodal_config
    return max(1, limits.get_limit_per_prompt("image")) if limits else 1


@cache
def let_long_prompts_have_steps() -> None:
    """Has a prompt that is longer than a step is to be have one for itself; once a process.

    vLLM would have it wait for ever, or, with a step as long as such a prompt, put as many usual
    ones into each: those of a slow network, whose other clients would wait for all of them.
    """
    schedule = Scheduler.schedule

    def schedule_whole_prompts(self: Scheduler, *args: Any, **kwargs: Any) -> Any:
        step = self.scheduler_config.max_num_scheduled_tokens
        if step is not None and not self.scheduler_config.enable_chunked_prefill:
            first = self.waiting.peek_request().num_tokens if self.waiting else 0
            self.max_num_scheduled_tokens = max(step, first)
        return schedule(self, *args, **kwargs)

    Scheduler.schedule = schedule_whole_prompts
