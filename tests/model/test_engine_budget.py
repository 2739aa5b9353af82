"""How many tokens a step takes, and how many windows a prompt."""

from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.core.sched.request_queue import FCFSRequestQueue
from vllm.v1.core.sched.scheduler import Scheduler

from vllm_raster_model.engine_budget import (
    PROMPT_WINDOWS,
    let_long_prompts_have_steps,
    set_budget,
)
from vllm_raster_model.registration import register

from .checkpoints import make_config
from .serving import Serving, engine_config


def budget_of(
    config: Any, budget: int, side_by_side: int = 2, **asked: Any
) -> tuple[int, int, int, int | None, int]:
    """What is set: images of a usual prompt, and at most; tokens of that, and of a usual step.

    And of the longest step.
    """
    limits = SimpleNamespace(get_limit_per_prompt=lambda _: asked.get("images", 999))
    longest = asked.get("longest")
    model = SimpleNamespace(
        hf_config=config,
        multimodal_config=limits,
        original_max_model_len=longest,
        max_model_len=longest or config.max_position_embeddings,
    )
    names = ("max_num_batched_tokens", "max_num_encoder_input_tokens", "encoder_cache_size")
    scheduler = SimpleNamespace(
        **dict.fromkeys(names, budget),
        max_num_scheduled_tokens=asked.get("step"),
        max_num_seqs=asked.get("prompts", 256),
    )
    whole: Any = SimpleNamespace(model_config=model, scheduler_config=scheduler)
    set_budget(whole, side_by_side, steps=2)
    assert scheduler.max_num_encoder_input_tokens == scheduler.max_num_batched_tokens
    assert scheduler.encoder_cache_size == 2 * scheduler.max_num_batched_tokens
    return (
        config.usual_images,
        config.max_images,
        model.max_model_len,
        scheduler.max_num_scheduled_tokens,
        scheduler.max_num_batched_tokens,
    )


def tile(size: int, cell: int = 16, frames: int = 1, channels: int = 2) -> Any:
    """A configuration whose tiles have so many pixels a side; their windows have three bands."""
    return make_config(
        tile={"size": size, "multiple_of": cell},
        input={"frames": frames},
        output={"classes": [{"name": f"class {i}"} for i in range(channels)]},
    )


def tokens(windows: int, of_one: int = 32 * 33) -> int:
    """Of a prompt: those of its windows, one between two, and 64 of text."""
    return windows * (of_one + 1) + 63


@pytest.mark.parametrize(
    ("config", "side_by_side", "usual", "most", "step", "longest"),
    [
        # 2**20 pixels are four windows, and 96 MiB of three numbers of four bytes 32.
        (tile(512), 2, 4, 16, tokens(4), tokens(16)),
        (tile(512), 8, 8, 16, 8 * tokens(1), tokens(16)),
        # Of three dates, 10; and 6 where a map has 16 channels.
        (tile(512, frames=3), 2, 2, 10, 2 * tokens(1), tokens(10)),
        (tile(512, frames=3), 1, 1, 10, 2048, tokens(10)),
        (tile(512, channels=16), 2, 4, 6, tokens(4), tokens(6)),
        (tile(512, channels=60), 2, 1, 1, 2 * tokens(1), 2 * tokens(1)),
        # Of 512 × 513 tokens, which vLLM has room for in each of 256 prompts.
        (tile(512, cell=1), 2, 1, 1, 2 * tokens(1, 512 * 513), 2 * tokens(1, 512 * 513)),
        (tile(512, cell=4), 2, 3, 3, 3 * 128 * 129 + 2 + 64, 3 * 128 * 129 + 2 + 64),
        # Small windows are many; these have 8 × 9 tokens.
        (tile(128), 2, 16, 16, 2048, 2048),
        # Of these one alone has 4160 tokens.
        (tile(1024), 1, 1, 8, tokens(1, 4160), tokens(8, 4160)),
        (tile(1024), 2, 2, 8, 2 * tokens(1, 4160), tokens(8, 4160)),
    ],
)
def test_a_cpu_takes_as_many_as_it_computes_at_once(
    config: Any, side_by_side: int, usual: int, most: int, step: int, longest: int
) -> None:
    found = budget_of(config, 2048, side_by_side)
    assert found == (usual, most, config.prompt_tokens(most), step, longest)


@pytest.mark.parametrize(
    ("budget", "usual", "most", "step"),
    [
        (2048, 1, 1, 2048),
        (8192, 4, 7, 8192),
        (2200, 2, 2, 2200),
        (2176, 1, 1, 2176),
        (1000, 1, 1, 1120),
        (2**17, 4, 16, 2**17),
    ],
)
def test_other_devices_and_flags_keep_the_budget(
    budget: int, usual: int, most: int, step: int
) -> None:
    """But a step takes a window at least: vLLM would wait forever for room for it."""
    expected = (usual, most, tokens(most), None, step)
    assert budget_of(tile(512), budget, side_by_side=0) == expected
    if budget != 2048:  # which on a CPU is vLLM's own choice
        assert budget_of(tile(512), budget) == expected


@pytest.mark.parametrize("config", [tile(2048), tile(1024, frames=3), tile(512, channels=200)])
def test_a_prompt_has_a_window(config: Any) -> None:
    """However large it is, and also where no threads ask for more."""
    usual, most, *_ = budget_of(config, 2**17, side_by_side=0)
    assert usual == 1
    assert most >= 1


@pytest.mark.parametrize(
    ("asked", "usual", "most", "longest"),
    [
        ({"images": 1}, 1, 1, tokens(1)),
        ({"images": 3}, 3, 3, tokens(3)),
        ({"images": 7}, 4, 7, tokens(7)),
        ({"images": 0}, 1, 1, tokens(1)),
        ({"longest": 1120}, 1, 1, 1120),
        ({"longest": 3000}, 2, 2, 3000),
        ({"longest": 8000}, 4, 7, 8000),
        ({"longest": 100}, 1, 1, 100),
        ({"longest": -1}, 4, 16, tokens(16)),
    ],
)
def test_flags_win(asked: dict[str, int], usual: int, most: int, longest: int) -> None:
    found = budget_of(tile(512), 2048, **asked)
    assert found[:3] == (usual, most, longest)
    # As many windows a step as are computed side by side.
    assert found[3] is not None
    assert 2 * tokens(1) <= found[3] <= found[4]


def test_a_step_that_was_asked_for() -> None:
    assert budget_of(tile(512), 2048, step=500)[3:] == (500, tokens(16))


@pytest.mark.parametrize("prompts", [1, 2])
def test_few_prompts_at_once_are_as_long(prompts: int) -> None:
    """Whose step vLLM makes as short as so many prompts, of which it takes each for one window."""
    found = budget_of(tile(512), prompts * tokens(1), prompts=prompts)
    assert found == budget_of(tile(512), 2048)


def test_it_may_be_set_twice() -> None:
    config = tile(512)
    first = budget_of(config, 2048)
    assert budget_of(config, first[4]) == (*first[:3], None, first[4])


@pytest.mark.parametrize(
    ("step", "waiting", "chunked", "room"),
    [
        (100, [], False, 100),
        (100, [30, 400], False, 100),
        # The first is longer than a step: it has one for itself.
        (100, [400, 30, 900], False, 400),
        (100, [100, 400], False, 100),
        # A prompt that is read in parts has no need of it.
        (100, [400], True, 100),
        (None, [400], False, 700),
    ],
)
def test_a_long_prompt_has_a_step(
    monkeypatch: pytest.MonkeyPatch, step: int | None, waiting: list[int], chunked: bool, room: int
) -> None:
    monkeypatch.setattr(Scheduler, "schedule", lambda self: self.max_num_scheduled_tokens)
    let_long_prompts_have_steps.__wrapped__()
    config = SimpleNamespace(max_num_scheduled_tokens=step, enable_chunked_prefill=chunked)
    queue: Any = FCFSRequestQueue([SimpleNamespace(num_tokens=one) for one in waiting])
    made: Any = SimpleNamespace(
        scheduler_config=config, waiting=queue, max_num_scheduled_tokens=step or 700
    )
    assert Scheduler.schedule(made) == room
    # And the step after it is as usual.
    queue.clear()
    assert Scheduler.schedule(made) == (step or 700)


def test_steps_are_chosen_by_it_once() -> None:
    register()
    before = Scheduler.schedule
    register()
    assert Scheduler.schedule is before


def test_what_the_engine_is_started_with(enlarge: Serving) -> None:
    config, model = enlarge.config, enlarge.vllm_config.model_config
    assert config.max_images == config.usual_images == PROMPT_WINDOWS
    assert model.max_model_len == config.prompt_tokens(PROMPT_WINDOWS)
    assert enlarge.vllm_config.scheduler_config.max_num_batched_tokens >= model.max_model_len


@pytest.mark.parametrize(
    ("flags", "images"),
    [
        ({"limit_mm_per_prompt": {"image": 3}}, 3),
        ({"max_model_len": 84}, 1),
        # For which vLLM chooses a shorter step by itself.
        ({"max_num_seqs": 1}, PROMPT_WINDOWS),
    ],
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
    assert not {"max_images", "usual_images"} & enlarge.config.to_dict().keys()
