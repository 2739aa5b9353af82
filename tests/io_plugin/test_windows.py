"""Image items that are read when numpy asks for them."""

import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from vllm_raster_io.windows import Loaded, lazy_item

PIXELS = np.arange(3 * 4 * 5, dtype=np.uint16).reshape(3, 4, 5)
VALID = np.arange(20).reshape(4, 5) % 3 > 0


class Reader:
    """Counts how often it is asked, and fails as often as told."""

    def __init__(self, failures: int = 0) -> None:
        self.calls = 0
        self._failures = failures

    def __call__(self) -> Loaded:
        self.calls += 1
        time.sleep(0.01)
        if self.calls <= self._failures:
            raise ValueError("cannot be read")
        return PIXELS, VALID

    def item(self) -> dict[str, Any]:
        return lazy_item(self, PIXELS.shape, PIXELS.dtype)


def test_what_is_known_before_reading() -> None:
    reader = Reader()
    item = reader.item()
    assert list(item) == ["pixel_values", "valid"]
    pixels, valid = item["pixel_values"], item["valid"]
    assert (pixels.shape, pixels.dtype, pixels.ndim) == ((3, 4, 5), np.uint16, 3)
    assert (valid.shape, valid.dtype, valid.ndim) == ((4, 5), np.bool_, 2)
    assert reader.calls == 0


@pytest.mark.parametrize("order", [("pixel_values", "valid"), ("valid", "pixel_values")])
def test_both_parts_are_read_once(order: tuple[str, str]) -> None:
    reader = Reader()
    item = reader.item()
    for times in (1, 2):  # what was given out is not kept
        found = {name: np.asarray(item[name]) for name in order}
        assert reader.calls == times
        np.testing.assert_array_equal(found["pixel_values"], PIXELS, strict=True)
        np.testing.assert_array_equal(found["valid"], VALID, strict=True)


def test_what_was_read_is_not_kept() -> None:
    pixels, valid = PIXELS.copy(), VALID.copy()
    left = [weakref.ref(pixels), weakref.ref(valid)]
    both = [(pixels, valid)]
    item = lazy_item(both.pop, PIXELS.shape, PIXELS.dtype)
    del pixels, valid
    for name in item:
        np.asarray(item[name])
    assert [one() for one in left] == [None, None]


def test_items_are_read_each_for_itself() -> None:
    readers = [Reader(), Reader()]
    items = [reader.item() for reader in readers]
    np.asarray(items[1]["valid"])
    assert [reader.calls for reader in readers] == [0, 1]


def test_other_types_and_copies() -> None:
    pixels = Reader().item()["pixel_values"]
    np.testing.assert_array_equal(
        np.asarray(pixels, np.float32), PIXELS.astype(np.float32), strict=True
    )
    copy = np.array(pixels)
    copy[:] = 0
    assert np.asarray(pixels).any()
    assert np.asarray(pixels, copy=False) is not None
    with pytest.raises(ValueError, match="copy"):
        np.asarray(pixels, np.float32, copy=False)


def test_threads_that_ask_at_once_read_once() -> None:
    count = 2
    together = threading.Barrier(count)
    reader = Reader()
    item = reader.item()

    def ask(i: int) -> np.ndarray:
        together.wait()
        return np.asarray(item["pixel_values" if i % 2 else "valid"])

    with ThreadPoolExecutor(count) as pool:
        found = list(pool.map(ask, range(count)))
    assert reader.calls == 1
    for i, array in enumerate(found):
        np.testing.assert_array_equal(array, PIXELS if i % 2 else VALID)


def test_a_failure_is_told_and_not_kept() -> None:
    reader = Reader(failures=1)
    item = reader.item()
    with pytest.raises(ValueError, match="cannot be read"):
        np.asarray(item["pixel_values"])
    np.testing.assert_array_equal(np.asarray(item["pixel_values"]), PIXELS)
