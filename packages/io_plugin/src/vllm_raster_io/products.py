"""What is made of a network's scores: class ids, probabilities, values."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from vllm_raster_io.contract import OutputContract
from vllm_raster_io.maps import RasterMap, rgb
from vllm_raster_io.options import Product

Array = npt.NDArray[Any]
Scores = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

STEPS = 254
"""Steps from a probability of 0 to one of 1 in a byte, whose greatest value is left for nodata."""
_FEW_CLASSES = 8
"""So many are counted faster one after the other than all in one go."""
_COUNTED_ROWS = 64


class MapMaker:
    """Makes a map, row by row; nothing else is as large as the map.

    Args:
        make: What a map's bands are of scores: (channels, rows, width) to (bands, rows, width).
        shape: Bands, height and width of the map.
        dtype: Of its numbers.
        nodata: Value of its invalid pixels.
        **told: What else `RasterMap` tells.
    """

    def __init__(
        self,
        make: Callable[[Array], Array],
        shape: tuple[int, int, int],
        dtype: npt.DTypeLike,
        nodata: float,
        **told: Any,
    ) -> None:
        self._make, self._nodata, self._told = make, nodata, told
        self._pixels: Array | None = np.empty(shape, dtype)

    def take(self, first: int, scores: Array) -> None:
        """Makes some rows of the map, from their scores."""
        assert self._pixels is not None
        self._pixels[:, first : first + scores.shape[1]] = self._make(scores)

    def finish(self, invalid: Mask) -> RasterMap:
        """The map, which is kept no longer.

        Args:
            invalid: (height, width) of the map; which pixels become nodata.
        """
        assert self._pixels is not None
        pixels, self._pixels = self._pixels, None
        # An index would be made into numbers of 64 bits for each of them.
        np.copyto(pixels, self._nodata, where=invalid)
        return RasterMap(pixels, self._nodata, **self._told)


def map_maker(
    product: Product, size: tuple[int, int], output: OutputContract, dtype: str = "float32"
) -> MapMaker:
    """Makes the map of a kind.

    Args:
        product: Which kind, one that the checkpoint gives.
        size: Height and width of the map.
        output: Names, units and colours.
        dtype: Of probabilities, `float32` or `uint8`.
    """
    if product == "classes":
        return _class_maker(size, output)
    names = tuple(one.name for one in output.classes or output.bands)
    if product == "probabilities":
        return _probability_maker(_softmax, size, names, dtype)
    units = tuple(one.unit or "" for one in output.bands)
    shape = (output.channels, *size)
    return MapMaker(lambda scores: scores, shape, np.float32, np.nan, names=names, units=units)


def confidence_maker(size: tuple[int, int], dtype: str) -> MapMaker:
    """Makes a map of the probability of each pixel's class, which is the greatest."""
    return _probability_maker(
        lambda scores: _softmax(scores).max(axis=0, keepdims=True), size, ("confidence",), dtype
    )


def class_dtype(classes: int) -> npt.DTypeLike:
    """The smallest integer type for ids from 0, with its greatest value left for nodata."""
    kinds = (np.uint8, np.uint16, np.uint32)
    return next(one for one in kinds if classes <= np.iinfo(one).max)


def class_ids(scores: Array, dtype: npt.DTypeLike) -> Array:
    """The class of the greatest score, the first of equal ones; ids stay as they are.

    Args:
        scores: (channels, height, width), or (1, height, width) of ids, an integer type.
        dtype: Of the ids, (1, height, width).
    """
    if scores.dtype.kind in "iu":
        return scores.astype(dtype, copy=False)
    # argmax takes many times as long: it goes through the classes pixel by pixel.
    greatest = scores[0].copy()
    ids = np.zeros((1, *greatest.shape), dtype)
    for i in range(1, len(scores)):
        # Each id is greater than those before.
        np.maximum(ids[0], np.multiply(scores[i] > greatest, i, dtype=dtype), out=ids[0])
        np.maximum(greatest, scores[i], out=greatest)
    if np.isnan(greatest).any():
        return scores.argmax(axis=0)[np.newaxis].astype(dtype)
    return ids


def class_counts(raster: RasterMap, classes: int) -> list[int]:
    """How often each class stands on a map of ids."""
    if classes <= _FEW_CLASSES:
        # A part at a time, which the processor's cache holds.
        rows = range(0, raster.pixels.shape[1], _COUNTED_ROWS)
        parts = [raster.pixels[0, row : row + _COUNTED_ROWS] for row in rows]
        return [sum(int(np.count_nonzero(one == i)) for one in parts) for i in range(classes)]
    # Row by row: bincount works on a copy in 64 bits, and lets no other thread run.
    bytewise = raster.pixels.dtype == np.uint8
    found = np.zeros(256 if bytewise else classes, dtype=np.int64)
    for row in raster.pixels[0]:
        # A byte's other values cost less to count than to leave out.
        counted = row if bytewise else row[row < classes]
        found += np.bincount(counted, minlength=len(found))
    return [int(one) for one in found[:classes]]


def _class_maker(size: tuple[int, int], output: OutputContract) -> MapMaker:
    dtype = np.dtype(class_dtype(output.channels))
    return MapMaker(
        lambda scores: class_ids(scores, dtype),
        (1, *size),
        dtype,
        int(np.iinfo(dtype).max),
        names=("class",),
        colours=tuple(rgb(one.color) for one in output.classes),
        tags=({f"CLASS_{i}": one.name for i, one in enumerate(output.classes)},),
    )


def _probability_maker(
    make: Callable[[Scores], Scores], size: tuple[int, int], names: tuple[str, ...], dtype: str
) -> MapMaker:
    in_bytes = dtype == "uint8"
    return MapMaker(
        lambda scores: _as(dtype, make(scores)),
        (len(names), *size),
        dtype,
        STEPS + 1 if in_bytes else np.nan,
        names=names,
        scale=1 / STEPS if in_bytes else None,
    )


def _softmax(scores: Scores) -> Scores:
    # From the greatest down, so that nothing overflows.
    with np.errstate(invalid="ignore", over="ignore"):
        powers = np.exp(scores - scores.max(axis=0))
        return powers / powers.sum(axis=0)


def _as(dtype: str, probabilities: Scores) -> Array:
    if dtype == "float32":
        return probabilities
    # What is no number is no probability.
    counts = np.where(np.isnan(probabilities), STEPS + 1, np.rint(probabilities * STEPS))
    return counts.astype(np.uint8)
