"""Where the windows of a scene lie."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_raster_io.errors import RasterIOError, TilingError
from vllm_raster_io.tiling import Axis, Tiling, Window

SIZES = [1, 5, 15, 16, 17, 63, 64, 65, 511, 513]

tilings = st.integers(1, 40).flatmap(
    lambda tile: st.builds(
        Tiling, st.integers(1, 150), st.integers(1, 150), st.just(tile), st.integers(0, tile - 1)
    )
)


def test_windows_are_row_major() -> None:
    assert Tiling(10, 7, 6, 2).windows() == [
        Window(0, 0, 6, 6),
        Window(0, 1, 6, 6),
        Window(4, 0, 6, 6),
        Window(4, 1, 6, 6),
    ]


def test_slices_cut_the_window_out() -> None:
    scene = np.arange(100).reshape(10, 10)
    np.testing.assert_array_equal(scene[Window(2, 5, 2, 3).slices], [[25, 26, 27], [35, 36, 37]])


@pytest.mark.parametrize(
    ("size", "overlap", "starts"),
    [
        (1, 0, [0]),
        (15, 4, [0]),
        (16, 4, [0]),
        (17, 4, [0, 1]),
        (28, 4, [0, 12]),
        (29, 4, [0, 6, 13]),
        (32, 0, [0, 16]),
        (33, 0, [0, 8, 17]),
        (40, 4, [0, 12, 24]),
        (20, 15, [0, 1, 2, 3, 4]),
    ],
)
def test_starts_along_an_axis(size: int, overlap: int, starts: list[int]) -> None:
    assert Axis(size, tile=16, overlap=overlap).starts() == starts


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("overlap", [0, 8, 63])
def test_sizes_around_the_tile(size: int, overlap: int) -> None:
    for tiling in (Tiling(size, 65, 64, overlap), Tiling(1, size, 64, overlap)):
        assert_tiles(tiling)


@settings(derandomize=True, deadline=None)
@given(tilings)
def test_any_scene(tiling: Tiling) -> None:
    assert_tiles(tiling)


def assert_tiles(tiling: Tiling) -> None:
    windows = tiling.windows()
    assert len(tiling) == len(windows) == len(set(windows))
    assert [(w.row, w.column) for w in windows] == list(
        product(tiling.rows.starts(), tiling.columns.starts())
    )
    shape = (min(tiling.height, tiling.tile), min(tiling.width, tiling.tile))
    assert {(w.height, w.width) for w in windows} == {shape}
    for axis in (tiling.rows, tiling.columns):
        assert_cuts(axis)


def assert_cuts(axis: Axis) -> None:
    starts = axis.starts()
    assert starts[0] == 0
    assert starts[-1] + axis.length == axis.size
    steps = [right - left for left, right in pairwise(starts)]
    assert all(1 <= step <= axis.length - axis.overlap for step in steps)
    if steps:
        assert axis.length == axis.tile
        assert max(steps) - min(steps) <= 1  # evenly
        # One window less would not reach the end.
        reach = len(steps) * axis.tile - (len(steps) - 1) * axis.overlap
        assert reach < axis.size


def test_every_pixel_is_covered() -> None:
    tiling = Tiling(65, 130, 32, 5)
    cover = np.zeros((65, 130), int)
    for window in tiling.windows():
        cover[window.slices] += 1
    assert cover.min() == 1
    assert cover[0, 0] == cover[0, -1] == cover[-1, 0] == cover[-1, -1] == 1


def test_a_strip_of_one_row() -> None:
    windows = Tiling(1, 300, 128, 16).windows()
    assert windows == [Window(0, 0, 1, 128), Window(0, 86, 1, 128), Window(0, 172, 1, 128)]


def test_counting_builds_nothing() -> None:
    assert len(Tiling(10**8, 10**8, 2, 1)) == (10**8 - 1) ** 2


@pytest.mark.parametrize("overlap", [-1, 16, 17])
def test_overlap_out_of_range(overlap: int) -> None:
    with pytest.raises(TilingError, match=f"overlap is {overlap}, .* less than .* 16"):
        Tiling(100, 100, 16, overlap)


@pytest.mark.parametrize("name", ["height", "width", "tile"])
@pytest.mark.parametrize("value", [0, -3])
def test_sizes_out_of_range(name: str, value: int) -> None:
    sizes = {"height": 100, "width": 100, "tile": 16, "overlap": 0, name: value}
    with pytest.raises(RasterIOError, match=f"{name} is {value}, but must be at least 1"):
        Tiling(**sizes)
