"""The grid of cells: its tokens, and the way from a map to cells and back."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_raster_model.grid import Grid

IMAGE, ROW = 4, 5
BOTH = (IMAGE, ROW)

sides = st.integers(1, 12)
grids = st.builds(Grid, sides, sides)
text = st.lists(st.integers(6, 21), max_size=9)
quick = settings(derandomize=True, deadline=None)


@pytest.mark.parametrize(
    ("height", "width", "minimum", "grid"),
    [
        (1, 1, 1, Grid(1, 1)),
        (16, 32, 1, Grid(1, 2)),
        (17, 32, 1, Grid(2, 2)),
        (512, 511, 1, Grid(32, 32)),
        (1, 300, 1, Grid(1, 19)),
        (1, 300, 2, Grid(2, 19)),
        (1, 1, 3, Grid(3, 3)),
    ],
)
def test_covers_a_window(height: int, width: int, minimum: int, grid: Grid) -> None:
    assert Grid.covering(height, width, cell=16, minimum=minimum) == grid


@quick
@given(st.integers(1, 600), st.integers(1, 600), st.integers(1, 64), st.integers(1, 4))
def test_is_the_smallest_that_covers(height: int, width: int, cell: int, minimum: int) -> None:
    grid = Grid.covering(height, width, cell=cell, minimum=minimum)
    for count, length in ((grid.rows, height), (grid.columns, width)):
        assert count >= minimum
        assert count * cell >= length
        assert count == minimum or (count - 1) * cell < length


def test_tokens_of_two_rows_and_three_columns() -> None:
    grid = Grid(2, 3)
    assert grid.token_ids(*BOTH) == [4, 4, 4, 5, 4, 4, 4, 5]
    assert (grid.cells, grid.tokens) == (6, 8)


@quick
@given(grids)
def test_counts_are_those_of_its_tokens(grid: Grid) -> None:
    ids = grid.token_ids(*BOTH)
    assert len(ids) == grid.tokens
    assert ids.count(IMAGE) == grid.cells
    assert ids.count(ROW) == grid.rows


@quick
@given(grids, text, text)
def test_is_read_from_its_tokens(grid: Grid, before: list[int], after: list[int]) -> None:
    ids = before + grid.token_ids(*BOTH) + after
    place = slice(len(before), len(before) + grid.tokens)
    assert Grid.read_all(ids, *BOTH) == [(place, grid)]
    assert Grid.read_all(torch.tensor(ids, dtype=torch.int32), *BOTH) == [(place, grid)]


@quick
@given(st.lists(grids, min_size=2, max_size=4))
def test_several_are_read_from_their_tokens(several: list[Grid]) -> None:
    ids = [id_ for grid in several for id_ in (*grid.token_ids(*BOTH), 1)]
    read = Grid.read_all(ids, *BOTH)
    assert [grid for _, grid in read] == several
    assert [ids[place] for place, _ in read] == [grid.token_ids(*BOTH) for grid in several]


@pytest.mark.parametrize(
    "ids",
    [
        [],
        [0, 0, 0],
        [7, 8],
        [4],
        [5],
        [5, 4],
        [4, 4, 5, 5],
        [4, 5, 5],
        [4, 4, 5, 4, 5],
        [4, 5, 4, 4, 5],
        [4, 4, 5, 4, 4, 5, 4],
        [4, 4, 5, 4, 4, 5, 5],
        [5, 4, 4, 5, 4, 4],
        [4, 4, 5, 7, 4, 4],
        [4, 7, 4, 5],
    ],
)
def test_nothing_is_read_from_what_is_no_grid(ids: list[int]) -> None:
    assert Grid.read_all(ids, *BOTH) == []
    assert Grid.read_all(torch.tensor(ids, dtype=torch.int64), *BOTH) == []


def test_cells_of_two_rows_and_three_columns() -> None:
    # Two channels of four rows and six columns: the cells are 2 × 2 pixels.
    raster = torch.arange(48.0).view(2, 4, 6)
    by_hand = [
        [0, 1, 6, 7, 24, 25, 30, 31],
        [2, 3, 8, 9, 26, 27, 32, 33],
        [4, 5, 10, 11, 28, 29, 34, 35],
        [12, 13, 18, 19, 36, 37, 42, 43],
        [14, 15, 20, 21, 38, 39, 44, 45],
        [16, 17, 22, 23, 40, 41, 46, 47],
    ]
    cells = Grid(2, 3).cells_of(raster)
    np.testing.assert_array_equal(cells, by_hand)
    assert torch.equal(Grid(2, 3).map_of(torch.tensor(by_hand), 2), raster)


@quick
@given(grids, st.integers(1, 4), st.integers(1, 5))
def test_cells_and_map_are_inverse(grid: Grid, channels: int, block: int) -> None:
    shape = (channels, grid.rows * block, grid.columns * block)
    raster = torch.arange(np.prod(shape)).view(shape)
    cells = grid.cells_of(raster)
    assert cells.shape == (grid.cells, channels * block * block)
    assert torch.equal(grid.map_of(cells, channels), raster)
    for i, cell in enumerate(cells):
        top, left = i // grid.columns * block, i % grid.columns * block
        assert torch.equal(cell, raster[:, top : top + block, left : left + block].flatten())
