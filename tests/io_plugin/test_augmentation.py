"""Windows laid otherwise, and laid back."""

import itertools

import numpy as np
import pytest

from vllm_raster_io.augmentation import SYMMETRIES, averaged, whole_blocks

WAYS = SYMMETRIES["flips_rotations"]


def test_all_eight_are_different() -> None:
    image = np.arange(6).reshape(2, 3)
    square = np.arange(9).reshape(3, 3)
    laid = {way.apply(square).tobytes() for way in WAYS}
    turned = {np.rot90(one, k).tobytes() for one in (square, square[::-1]) for k in range(4)}
    assert laid == turned
    assert len(laid) == 8
    assert [way.apply(image).shape for way in WAYS] == [(2, 3)] * 4 + [(3, 2)] * 4


@pytest.mark.parametrize("kind", list(SYMMETRIES))
def test_as_it_is_comes_first(kind: str) -> None:
    image = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(SYMMETRIES[kind][0].apply(image), image)  # type: ignore[index]


@pytest.mark.parametrize("way", WAYS)
def test_laid_back_it_is_as_before(way: object) -> None:
    image = np.arange(2 * 4 * 5).reshape(2, 4, 5)
    laid = way.apply(image)  # type: ignore[attr-defined]
    assert laid.shape[1:] == way.size(4, 5)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(way.undo(laid), image)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("size", "block"), itertools.product([1, 2, 5, 8], [1, 4, 7]))
def test_whole_blocks_are_mirrored(size: int, block: int) -> None:
    values = np.random.default_rng(0).random((2, size, 3))
    found = whole_blocks(values, block)
    rows, columns = (-(-one // block) * block for one in (size, 3))
    mode = "reflect" if size > 1 else "edge"
    expected = np.pad(values, [(0, 0), (0, rows - size), (0, 0)], mode=mode)
    expected = np.pad(expected, [(0, 0), (0, 0), (0, columns - 3)], mode="reflect")
    np.testing.assert_array_equal(found, expected)


def test_the_mean() -> None:
    maps = [np.full((1, 2, 2), one, np.float32) for one in (1, 2, 6)]
    np.testing.assert_array_equal(averaged(maps), np.full((1, 2, 2), 3))
    alike = np.float32(0.1) * np.arange(8, dtype=np.float32).reshape(1, 2, 4)
    np.testing.assert_array_equal(averaged([alike] * 8), alike)
