"""How many windows share a prompt, by how fast they come back."""

import base64
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_raster_io.pace import PROMPT_SECONDS, Pace, PromptSize

from ..factories import make_raster
from .processors import IMAGE_TOKEN, Tokenizer, processor_of
from .scenes import raster_block


class Clock:
    """Shows the seconds that it is told."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pace(clock: Clock) -> Pace:
    return Pace(clock)


def test_counts_what_comes_in_a_second(pace: Pace, clock: Clock) -> None:
    assert pace.numbers_a_second == 0
    with pace.request():
        clock.seconds += 2
        pace.came(300)
        assert pace.numbers_a_second == 150
        clock.seconds += 1
        pace.came(600)
    assert pace.numbers_a_second == 300


def test_of_all_requests_together(pace: Pace, clock: Clock) -> None:
    with pace.request():
        clock.seconds += 1
        with pace.request():
            clock.seconds += 1
            pace.came(300)
        pace.came(300)
    assert pace.numbers_a_second == 300


def test_idle_time_does_not_count(pace: Pace, clock: Clock) -> None:
    for _ in range(2):
        with pace.request():
            clock.seconds += 1
            pace.came(300)
        clock.seconds += 1000
    assert pace.numbers_a_second == 300


def test_what_was_before_counts_on(pace: Pace, clock: Clock) -> None:
    """A small scene between two large ones does not have all of it forgotten."""
    for numbers, seconds in ((3000, 1), (1, 0.5), (3000, 1)):
        with pace.request():
            clock.seconds += seconds
            pace.came(numbers)
        clock.seconds += 1000
    assert pace.numbers_a_second == pytest.approx(6001 / 2.5)


def test_a_request_that_fails_is_over(pace: Pace, clock: Clock) -> None:
    def fail() -> None:
        clock.seconds += 2
        raise ValueError("lost")

    with pytest.raises(ValueError, match="lost"), pace.request():
        fail()
    clock.seconds += 1000
    with pace.request():
        clock.seconds += 1
        pace.came(300)
    assert pace.numbers_a_second == 100


def test_what_is_long_ago_is_forgotten(pace: Pace, clock: Clock) -> None:
    with pace.request():
        for _ in range(100):
            clock.seconds += 1
            pace.came(1000)
        assert pace.numbers_a_second == pytest.approx(1000)
        for _ in range(20):
            clock.seconds += 1
            pace.came(10)
    assert 10 < pace.numbers_a_second < 100


def test_all_at_once_is_no_error(pace: Pace) -> None:
    with pace.request():
        pace.came(300)
    assert pace.numbers_a_second > 0


@pytest.mark.parametrize(
    ("numbers_a_second", "windows"),
    [(0, 4), (1e6, 4), (1e6 * 5 / PROMPT_SECONDS, 5), (1e6 * 9.9 / PROMPT_SECONDS, 9), (1e12, 16)],
)
def test_more_of_a_fast_network(
    pace: Pace, clock: Clock, numbers_a_second: float, windows: int
) -> None:
    with pace.request():
        clock.seconds += 1
        pace.came(int(numbers_a_second))
    assert pace.prompt_size(4, 16).windows(10**6) == windows


@given(st.integers(1, 20), st.integers(1, 20), st.floats(0, 1e12), st.integers(1, 10**9))
def test_never_fewer_than_usual(usual: int, more: int, numbers: float, window: int) -> None:
    found = PromptSize(usual, usual + more, numbers).windows(window)
    assert usual <= found <= usual + more
    assert found == usual or found * window <= numbers


def test_without_a_word_each_window_has_a_prompt() -> None:
    assert PromptSize().windows(1) == 1


@pytest.mark.parametrize(
    ("told", "fast", "prompts"),
    [
        ({"max_images": 16, "usual_images": 4}, False, 4),
        ({"max_images": 16, "usual_images": 4}, True, 1),
        # A model package that says nothing of what is usual, or has no room.
        ({"max_images": 4}, False, 4),
        ({"max_images": 4}, True, 4),
        ({}, True, 16),
    ],
)
def test_prompts_of_a_request(told: dict[str, int], fast: bool, prompts: int) -> None:
    config = SimpleNamespace(raster=raster_block(size=32), image_token_id=IMAGE_TOKEN, **told)
    processor = processor_of(config, Tokenizer())
    if fast:
        with processor.pace.request():
            processor.pace.came(10**9)
    content = make_raster(values=np.ones((4, 128, 128), np.uint16))
    data = {"data": base64.b64encode(content).decode(), "overlap": 0}
    assert len(processor.pre_process(processor.parse_data(data))) == prompts
