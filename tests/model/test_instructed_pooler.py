"""The pooler of the instructed model: which image's map, and what is made of its cells."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from vllm.config import set_current_vllm_config
from vllm.pooling_params import PoolingParams

from vllm_raster_model.grid import Grid
from vllm_raster_model.pooler import MapPooler

from .checkpoints import CELL
from .instructed import ANSWER, END, FIND, IMAGE, ROW, WATER
from .runners import Request, Runner, first_runner, second_runner, step, whole
from .serving import InstructedServing

CHANNELS = 2
WIDTH = CHANNELS * CELL**2 + 5  # more than is left once it is decoded
GRIDS = [Grid(2, 3), Grid(1, 2), Grid(3, 1)]

each_runner = pytest.mark.parametrize("runner", [first_runner, second_runner])


class Decode:
    """Makes blocks of cells' states, and remembers how many it was given."""

    def __init__(self) -> None:
        self.given: list[int] = []

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        self.given.append(len(states))
        return 1 - states[:, : CHANNELS * CELL**2]


@pytest.fixture
def decode() -> Decode:
    return Decode()


@pytest.fixture
def pooler(llama: InstructedServing, decode: Decode) -> MapPooler:
    with set_current_vllm_config(llama.vllm_config):
        return MapPooler(llama.config, decode)


def asking(runner: Runner, *asked: dict[str, Any] | None) -> Runner:
    """A runner whose requests ask for an image each, as `PoolingParams` let them."""

    def made(requests: Sequence[Request], params: PoolingParams) -> Any:
        metadata = runner(requests, params)
        metadata.pooling_params = [params.clone() for _ in requests]
        for one, extra in zip(metadata.pooling_params, asked, strict=True):
            one.extra_kwargs = extra
        return metadata

    return made


def request(*grids: Grid) -> Request:
    ids = [FIND]
    for grid in grids:
        ids += [*grid.token_ids(IMAGE, ROW), END, WATER]
    ids.append(ANSWER)
    generator = torch.Generator().manual_seed(len(ids))
    return Request(ids, torch.rand((len(ids), WIDTH), generator=generator))


def expected_map(one: Request, grids: Sequence[Grid], number: int) -> npt.NDArray[Any]:
    """The map of an image of a prompt, laid out cell by cell."""
    cells = [h.numpy() for h, i in zip(one.hidden, one.ids, strict=True) if i == IMAGE]
    before = sum(grid.cells for grid in grids[:number])
    grid = grids[number]
    found = np.empty((CHANNELS, grid.rows * CELL, grid.columns * CELL), np.float32)
    for i, cell in enumerate(cells[before : before + grid.cells]):
        top, left = i // grid.columns * CELL, i % grid.columns * CELL
        block = 1 - cell[: CHANNELS * CELL**2].reshape(CHANNELS, CELL, CELL)
        found[:, top : top + CELL, left : left + CELL] = block
    return found


@each_runner
@pytest.mark.parametrize("extra", [None, {}, {"other": 0}])
def test_the_last_image_unless_told(
    pooler: MapPooler, runner: Runner, extra: dict[str, Any] | None
) -> None:
    for count in (1, 2, 3):
        one = request(*GRIDS[:count])
        (found,) = step(pooler, asking(runner, extra), whole(one))
        np.testing.assert_array_equal(found, expected_map(one, GRIDS[:count], count - 1))


@each_runner
def test_the_image_that_is_asked_for(pooler: MapPooler, runner: Runner) -> None:
    requests = [request(*GRIDS) for _ in GRIDS] + [request(*GRIDS[:2])]
    runner = asking(runner, {"image": 0}, {"image": 2}, {"image": 1}, {"image": 0})
    found = step(pooler, runner, whole(*requests))
    for one, number, here in zip(requests, (0, 2, 1, 0), found, strict=True):
        np.testing.assert_array_equal(here, expected_map(one, GRIDS, number))


@each_runner
@pytest.mark.parametrize("number", [2, -1, 99, None, "0", 0.5, 1.0, True, [0], {}])
def test_an_image_that_there_is_not(pooler: MapPooler, runner: Runner, number: Any) -> None:
    one, other = request(*GRIDS[:2]), request(*GRIDS[:2])
    runner = asking(runner, {"image": number}, {"image": 1})
    empty, found = step(pooler, runner, whole(one, other))
    assert empty.shape == (CHANNELS, 0, 0)
    np.testing.assert_array_equal(found, expected_map(other, GRIDS[:2], 1))


@each_runner
def test_only_cells_are_decoded(pooler: MapPooler, decode: Decode, runner: Runner) -> None:
    step(pooler, runner, whole(request(GRIDS[0]), request(*GRIDS[1:])))
    assert decode.given == [GRIDS[0].cells, GRIDS[2].cells]


@each_runner
def test_prompts_in_chunks(pooler: MapPooler, runner: Runner) -> None:
    assert pooler.all_tokens.enable_chunked_prefill
    one, other = request(*GRIDS[:2]), request(GRIDS[2])
    first = asking(runner, {"image": 0}, None)
    # Chunks that end within a row, and between the two images.
    assert step(pooler, first, [(one, 3), (other, 4)]) == [None, None]
    assert step(pooler, asking(runner, {"image": 0}), [(one, 8)]) == [None]
    found = step(pooler, first, [(one, len(one.ids) - 11), (other, len(other.ids) - 4)])
    np.testing.assert_array_equal(found[0], expected_map(one, GRIDS[:2], 0))
    np.testing.assert_array_equal(found[1], expected_map(other, [GRIDS[2]], 0))


@each_runner
@pytest.mark.parametrize("again", [0, 2, 4])
def test_prompts_that_start_anew(pooler: MapPooler, runner: Runner, again: int) -> None:
    """Put off for want of memory, a prompt is read again, wholly or behind what was kept of it."""
    one, other = request(*GRIDS[:2]), request(GRIDS[2])
    assert step(pooler, runner, [(one, 3)]) == [None]
    assert step(pooler, runner, [(other, 5), (one, 4)]) == [None, None]
    one.computed = again
    assert step(pooler, runner, [(one, 6)]) == [None]
    found = step(pooler, runner, [(one, len(one.ids) - 6 - again), (other, len(other.ids) - 5)])
    np.testing.assert_array_equal(found[0], expected_map(one, GRIDS[:2], 1))
    np.testing.assert_array_equal(found[1], expected_map(other, [GRIDS[2]], 0))
    assert not one.states.hidden_states_cache


@each_runner
def test_a_prompt_that_was_not_wholly_read(pooler: MapPooler, runner: Runner) -> None:
    """What the cache of prefixes gives has no states; vLLM is told not to, but can be made to."""
    one, other = request(GRIDS[0]), request(GRIDS[2])
    one.computed = 3
    empty, found = step(pooler, runner, [(one, len(one.ids) - 3), *whole(other)])
    assert empty.shape == (CHANNELS, 0, 0)
    np.testing.assert_array_equal(found, expected_map(other, [GRIDS[2]], 0))


@each_runner
def test_prompt_without_an_image(pooler: MapPooler, decode: Decode, runner: Runner) -> None:
    (found,) = step(pooler, runner, whole(request()))
    assert found.shape == (CHANNELS, 0, 0)
    assert decode.given == []


def test_the_served_pooler_decodes_by_the_head(llama: InstructedServing) -> None:
    model = llama.model
    states = torch.rand(4, model.width + llama.config.detail_width)
    hidden, features = states[:, : model.width], states[:, model.width :]
    with torch.inference_mode():
        found = model.pooler.decode(states)
        assert torch.equal(found, llama.in_pytorch.head(hidden, features))
