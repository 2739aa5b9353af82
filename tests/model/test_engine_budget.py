"""How many tokens a step takes, and how many windows a prompt."""

from types import SimpleNamespace
from typing import Any

import pytest

from vllm_raster_model.engine_budget import PROMPT_WINDOWS, set_budget

from .checkpoints import make_config
from .serving import Serving, engine_config


def budget_of(
    config: Any, budget: int, side_by_side: int = 2, **asked: Any
) -> tuple[int, int, int, int]:
    """What is set: images a prompt, its tokens, those of a step, and those that are kept."""
    limits = SimpleNamespace(get_limit_per_prompt=lambda _: asked.get("images", 999))
    longest = asked.get("longest")
    model = SimpleNamespace(
        hf_config=config,
        multimodal_config=limits,
        original_max_model_len=longest,
        max_model_len=longest or config.max_position_embeddings,
    )
    names = ("max_num_batched_tokens", "max_num_encoder_input_tokens", "encoder_cache_size")
    scheduler = SimpleNamespace(**dict.fromkeys(names, budget))
    whole: Any = SimpleNamespace(model_config=model, scheduler_config=scheduler)
    set_budget(whole, side_by_side, steps=2)
    assert scheduler.max_num_encoder_input_tokens == scheduler.max_num_batched_tokens
    return (
        config.max_images,
        model.max_model_len,
        scheduler.max_num_batched_tokens,
        scheduler.encoder_cache_size,
    )


def tile(size: int, cell: int = 16, frames: int = 1) -> Any:
    """A configuration whose tiles have so many pixels a side."""
    return make_config(tile={"size": size, "multiple_of": cell}, input={"frames": frames})


@pytest.mark.parametrize(
    ("size", "cell", "frames", "side_by_side", "images", "tokens", "step"),
    [
        # 32 × 33 tokens and one between two; 2**20 pixels are four windows.
        (512, 16, 1, 2, 4, 4 * 1057 + 63, 4291),
        (512, 16, 3, 2, 2, 2 * 1057 + 63, 2 * 1120),
        (512, 16, 3, 1, 1, 1057 + 63, 2048),
        (512, 16, 1, 8, 8, 8 * 1057 + 63, 8 * 1120),
        # Small windows are many; these have 8 × 9 tokens.
        (128, 16, 1, 2, 16, 16 * 73 + 63, 2048),
        # Of these one alone has 4160 tokens.
        (1024, 16, 1, 1, 1, 4161 + 63, 4224),
        (1024, 16, 1, 2, 2, 2 * 4161 + 63, 2 * 4224),
    ],
)
def test_a_cpu_takes_as_many_as_it_computes_at_once(
    size: int, cell: int, frames: int, side_by_side: int, images: int, tokens: int, step: int
) -> None:
    found = budget_of(tile(size, cell, frames), 2048, side_by_side)
    assert found == (images, tokens, step, 2 * step)


@pytest.mark.parametrize(
    ("budget", "images", "step"),
    [(2048, 1, 2048), (8192, 4, 8192), (2200, 2, 2200), (2176, 1, 2176), (1000, 1, 1120)],
)
def test_other_devices_and_flags_keep_the_budget(budget: int, images: int, step: int) -> None:
    """But a step takes a window at least: vLLM would wait forever for room for it."""
    expected = (images, images * 1057 + 63, step, 2 * step)
    assert budget_of(tile(512), budget, side_by_side=0) == expected
    if budget != 2048:  # which on a CPU is vLLM's own choice
        assert budget_of(tile(512), budget) == expected


@pytest.mark.parametrize(
    ("asked", "images", "longest"),
    [
        ({"images": 1}, 1, 1120),
        ({"images": 3}, 3, 3 * 1057 + 63),
        ({"images": 0}, 1, 1120),
        ({"longest": 1120}, 1, 1120),
        ({"longest": 3000}, 2, 3000),
        ({"longest": 100}, 1, 100),
        ({"longest": -1}, 4, 4 * 1057 + 63),
    ],
)
def test_flags_win(asked: dict[str, int], images: int, longest: int) -> None:
    found = budget_of(tile(512), 2048, **asked)
    assert found[:2] == (images, longest)
    assert found[2] >= 2 * 1120  # as many windows a step as are computed side by side


def test_it_may_be_set_twice() -> None:
    config = tile(512)
    first = budget_of(config, 2048)
    assert budget_of(config, first[2]) == first


def test_what_the_engine_is_started_with(enlarge: Serving) -> None:
    config, model = enlarge.config, enlarge.vllm_config.model_config
    assert config.max_images == PROMPT_WINDOWS
    assert model.max_model_len == config.prompt_tokens(PROMPT_WINDOWS)
    assert enlarge.vllm_config.scheduler_config.max_num_batched_tokens >= model.max_model_len


@pytest.mark.parametrize(
    ("flags", "images"),
    [({"limit_mm_per_prompt": {"image": 3}}, 3), ({"max_model_len": 84}, 1)],
)
def test_flags_of_the_engine(enlarge: Serving, flags: dict[str, Any], images: int) -> None:
    found = engine_config(enlarge.checkpoint, **flags).model_config
    assert found.hf_config.max_images == images
    assert found.max_model_len == found.hf_config.prompt_tokens(images)


def test_a_step_that_is_too_small(enlarge: Serving) -> None:
    found = engine_config(enlarge.checkpoint, max_num_batched_tokens=20, max_num_seqs=4)
    least = found.model_config.hf_config.prompt_tokens(1)
    assert found.scheduler_config.max_num_batched_tokens == least
    assert found.model_config.max_model_len == least


def test_a_checkpoint_does_not_keep_it(enlarge: Serving) -> None:
    assert enlarge.config.max_images > 1
    assert "max_images" not in enlarge.config.to_dict()
