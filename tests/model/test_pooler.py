"""The pooler: maps out of the hidden states of a batch, whichever model runner calls it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from vllm.config import set_current_vllm_config
from vllm.pooling_params import PoolingParams
from vllm.v1.pool.metadata import PoolingMetadata

from vllm_raster_model.grid import Grid
from vllm_raster_model.pooler import MapPooler

from .runners import (
    TASK,
    Request,
    Runner,
    first_runner,
    first_runner_s_dummies,
    params,
    second_runner,
    second_runner_s_dummies,
    step,
    whole,
)
from .serving import Serving, engine_config

IMAGE, ROW = 4, 5
CHANNELS, BLOCK = 2, 16  # two classes, cells of 8 pixels, maps twice as large
WIDTH = CHANNELS * BLOCK**2

each_runner = pytest.mark.parametrize("runner", [first_runner, second_runner])


@pytest.fixture(scope="module", params=[True, False], ids=["chunks", "whole"])
def pooler(request: pytest.FixtureRequest, enlarge: Serving) -> MapPooler:
    """A pooler that collects prompts which come in chunks, and one that need not."""
    engine = engine_config(enlarge.checkpoint, enable_chunked_prefill=request.param)
    with set_current_vllm_config(engine):
        pooler = MapPooler(enlarge.config)
    assert pooler.all_tokens.enable_chunked_prefill == request.param
    return pooler


def ask(ids: Sequence[int]) -> Request:
    generator = torch.Generator().manual_seed(len(ids))
    return Request(list(ids), torch.rand((len(ids), WIDTH), generator=generator))


def ask_for(grid: Grid, before: Sequence[int] = (), after: Sequence[int] = ()) -> Request:
    return ask([*before, *grid.token_ids(IMAGE, ROW), *after])


def expected_map(one: Request, grid: Grid) -> npt.NDArray[Any]:
    """The map laid out cell by cell."""
    cells = [h.numpy() for h, i in zip(one.hidden, one.ids, strict=True) if i == IMAGE]
    laid_out = np.empty((CHANNELS, grid.rows * BLOCK, grid.columns * BLOCK), np.float32)
    for i, cell in enumerate(cells):
        top, left = i // grid.columns * BLOCK, i % grid.columns * BLOCK
        laid_out[:, top : top + BLOCK, left : left + BLOCK] = cell.reshape(CHANNELS, BLOCK, BLOCK)
    return laid_out


def test_task(pooler: MapPooler) -> None:
    # The one task that gives all tokens' states and that both runners accept.
    assert pooler.get_supported_tasks() == {TASK}
    assert params(pooler).requires_token_ids


@each_runner
@pytest.mark.parametrize("grid", [Grid(1, 1), Grid(2, 3), Grid(4, 1), Grid(1, 4)])
def test_map_of_one_prompt(pooler: MapPooler, runner: Runner, grid: Grid) -> None:
    one = ask_for(grid, before=[6, 7], after=[21])
    (found,) = step(pooler, runner, whole(one))
    np.testing.assert_array_equal(found, expected_map(one, grid))


@each_runner
@pytest.mark.parametrize(("answer", "dtype"), [("ids", "uint8"), ("rounded", "float16")])
def test_what_is_asked_for_of_it(
    pooler: MapPooler, runner: Runner, answer: str, dtype: str
) -> None:
    grid = Grid(2, 3)
    one = ask_for(grid)
    (found,) = step(pooler, runner, whole(one), answer)
    expected = expected_map(one, grid)
    assert found.numpy().dtype == dtype
    if answer == "ids":
        np.testing.assert_array_equal(found[0], expected.argmax(axis=0))
    else:
        below = expected - expected.max(axis=0)
        np.testing.assert_allclose(found, below, rtol=2**-11, atol=2**-24)


@each_runner
@pytest.mark.parametrize("images", [1, 2, 5])
def test_all_images_of_a_prompt(pooler: MapPooler, runner: Runner, images: int) -> None:
    grid, other = Grid(2, 3), Grid(3, 2)
    ids = [7, *grid.token_ids(IMAGE, ROW)] * images
    one, two = ask([*ids, 9, 9]), ask(other.token_ids(IMAGE, ROW))
    found, alone = step(pooler, runner, whole(one, two), image="all")
    assert found.shape == (images, CHANNELS, 2 * BLOCK, 3 * BLOCK)
    each = len(grid.token_ids(IMAGE, ROW)) + 1
    for i, here in enumerate(found):
        part = slice(i * each + 1, (i + 1) * each)
        expected = expected_map(Request(one.ids[part], one.hidden[part]), grid)
        np.testing.assert_array_equal(here, expected)
    np.testing.assert_array_equal(alone, expected_map(two, other)[None])


@each_runner
def test_all_images_of_several_sizes_have_no_common_map(pooler: MapPooler, runner: Runner) -> None:
    ids = [*Grid(2, 3).token_ids(IMAGE, ROW), 7, *Grid(3, 2).token_ids(IMAGE, ROW)]
    (found,) = step(pooler, runner, whole(ask(ids)), image="all")
    assert found.shape == (CHANNELS, 0, 0)


@each_runner
def test_rounded_beside_what_cannot_be(pooler: MapPooler, runner: Runner) -> None:
    """Scores that lie too far apart in one window are not rounded, and no other's are changed."""
    grid = Grid(1, 2)
    one = ask([*grid.token_ids(IMAGE, ROW), 7, *grid.token_ids(IMAGE, ROW)])
    one.hidden[4:] *= 1000
    (found,) = step(pooler, runner, whole(one), "rounded", image="all")
    assert found.dtype == torch.float32
    first, second = (
        expected_map(Request(one.ids[p], one.hidden[p]), grid) for p in (slice(3), slice(4, 7))
    )
    np.testing.assert_allclose(found[0], first - first.max(axis=0), rtol=2**-11, atol=2**-24)
    np.testing.assert_array_equal(found[1], second)


@each_runner
def test_mixed_windows_in_one_batch(pooler: MapPooler, runner: Runner) -> None:
    grids = [Grid(2, 3), Grid(3, 2), Grid(1, 1), Grid(4, 4), Grid(2, 3)]
    requests = [ask_for(grid, after=range(6, 6 + i)) for i, grid in enumerate(grids)]
    found = step(pooler, runner, whole(*requests))
    for one, grid, here in zip(requests, grids, found, strict=True):
        np.testing.assert_array_equal(here, expected_map(one, grid))


@each_runner
def test_prompts_in_chunks(enlarge: Serving, runner: Runner) -> None:
    collecting = enlarge.model.pooler  # vLLM has chunks unless told otherwise
    assert collecting.all_tokens.enable_chunked_prefill
    grids = [Grid(3, 2), Grid(1, 4), Grid(2, 2)]
    first, second, third = (ask_for(grid, after=[6, 7]) for grid in grids)
    assert step(collecting, runner, [(first, 4), *whole(second)])[0] is None
    found = step(collecting, runner, [(first, 1), (third, 5)])
    assert found == [None, None]
    found = step(collecting, runner, [(third, 3), (first, 6)])
    for one, grid, here in zip((third, first), (grids[2], grids[0]), found, strict=True):
        np.testing.assert_array_equal(here, expected_map(one, grid))
        assert not one.states.hidden_states_cache


@each_runner
def test_chunks_beside_whole_prompts(enlarge: Serving, runner: Runner) -> None:
    split, grid = ask_for(Grid(3, 2)), Grid(1, 4)
    at_once = ask_for(grid)
    _, found = step(enlarge.model.pooler, runner, [(split, 4), *whole(at_once)])
    np.testing.assert_array_equal(found, expected_map(at_once, grid))


@each_runner
@pytest.mark.parametrize("ids", [[6, 7], [ROW], [IMAGE, ROW, ROW], [IMAGE, IMAGE], [0] * 5])
def test_prompt_without_a_whole_image(pooler: MapPooler, runner: Runner, ids: list[int]) -> None:
    one, grid = ask_for(Grid(2, 1)), Grid(2, 1)
    empty, found = step(pooler, runner, whole(ask(ids), one))
    assert empty.shape == (CHANNELS, 0, 0)
    np.testing.assert_array_equal(found, expected_map(one, grid))


@pytest.mark.parametrize("runner", [first_runner_s_dummies, second_runner_s_dummies])
@pytest.mark.parametrize(("tokens", "at_most"), [(1, 4), (4, 4), (11, 4), (3, 256), (64, 1)])
def test_dummy_batches(
    pooler: MapPooler,
    runner: Callable[[int, int, PoolingParams], PoolingMetadata],
    tokens: int,
    at_most: int,
) -> None:
    found = pooler(torch.zeros(tokens, WIDTH), runner(tokens, at_most, params(pooler)))
    assert [one.shape for one in found] == [(CHANNELS, 0, 0)] * min(tokens, at_most)
