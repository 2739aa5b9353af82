"""Image items that are read when they are needed: in vLLM's renderer threads, not before."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Loaded = tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]


class WindowSource:
    """Reads one window, for its pixels and its mask, and keeps neither that was given out.

    So a window is read once, unless one of them is asked for twice.
    """

    def __init__(self, load: Callable[[], Loaded]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._loaded: dict[int, npt.NDArray[Any]] = {}

    def get(self, part: int) -> npt.NDArray[Any]:
        """The pixels (0) or the mask (1)."""
        with self._lock:
            if part not in self._loaded:
                self._loaded = dict(enumerate(self._load()))
            return self._loaded.pop(part)


class LazyArray:
    """Has the shape and type of an array, and becomes one when numpy asks for it."""

    def __init__(
        self, source: WindowSource, part: int, shape: tuple[int, ...], dtype: npt.DTypeLike
    ) -> None:
        self._source, self._part = source, part
        self.shape = shape
        self.dtype = np.dtype(dtype)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return np.array(_in_order(self._source.get(self._part)), dtype=dtype, copy=copy)


def _in_order(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An array as it is, or copied where PyTorch would not take it.

    To numpy one that is turned along a single row is in order, whatever the distance to the next.
    """
    forward = array.flags.c_contiguous and all(step >= 0 for step in array.strides)
    return array if forward else array.copy()


def lazy_item(
    load: Callable[[], Loaded], shape: tuple[int, ...], dtype: npt.DTypeLike
) -> dict[str, Any]:
    """An image item whose pixels and mask are read together, when the first is asked for.

    Args:
        load: Gives pixels of `shape` and the mask (height, width).
        shape: (bands, height, width) of the pixels.
        dtype: Type of the pixels.
    """
    source = WindowSource(load)
    return {
        "pixel_values": LazyArray(source, 0, shape, dtype),
        "valid": LazyArray(source, 1, shape[-2:], np.bool_),
    }
