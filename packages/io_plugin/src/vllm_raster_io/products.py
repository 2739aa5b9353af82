"""What is made of a network's scores: class ids, probabilities, values."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vllm_raster_io.contract import OutputContract
from vllm_raster_io.maps import RasterMap, rgb
from vllm_raster_io.options import Product
from vllm_raster_io.resampling import Taps, resampled

Array = npt.NDArray[Any]
Scores = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

_STRIP_VALUES = 2**20
"""Scores that are looked at in one go: a few MiB, whatever the size of the scene."""
STEPS = 254
"""Steps from a probability of 0 to one of 1 in a byte, whose greatest value is left for nodata."""


@dataclass(frozen=True)
class ScoreField:
    """The scores of a map, and which of its pixels are invalid.

    Attributes:
        scores: (channels, rows, columns); made into what comes of them, where that is possible.
        invalid: (height, width) of the map.
        back: What brings the scores' rows and columns to the map's; None where they are.
    """

    scores: Scores
    invalid: Mask
    back: tuple[Taps, Taps] | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the map."""
        return (len(self.scores), *self.invalid.shape)

    def strips(self) -> Iterator[tuple[slice, Scores]]:
        """Rows of the map from the top, each with its scores (channels, rows, width)."""
        channels, height, width = self.shape
        step = max(1, _STRIP_VALUES // (channels * width))
        for begin in range(0, height, step):
            rows = slice(begin, min(begin + step, height))
            if self.back is None:
                yield rows, self.scores[:, rows]
            else:
                down, used = self.back[0].part(rows.start, rows.stop)
                yield rows, resampled(self.scores[:, used], down, self.back[1])

    def room(self) -> Scores:
        """An array for values of the whole map: that of the scores themselves, if it fits."""
        return self.scores if self.back is None else np.empty(self.shape, np.float32)


def make_product(
    product: Product, field: ScoreField, output: OutputContract, dtype: str = "float32"
) -> RasterMap:
    """The map of a kind; the field's scores may be used up.

    Args:
        product: Which kind, one that the checkpoint gives.
        field: The scores.
        output: Names, units and colours.
        dtype: Of probabilities, `float32` or `uint8`.
    """
    if product == "classes":
        return class_map(field, output)
    if product == "probabilities":
        return probability_map(field, output, dtype)
    return value_map(field, output)


def class_dtype(classes: int) -> npt.DTypeLike:
    """The smallest integer type for ids from 0, with its greatest value left for nodata."""
    kinds = (np.uint8, np.uint16, np.uint32)
    return next(one for one in kinds if classes <= np.iinfo(one).max)


def class_map(field: ScoreField, output: OutputContract) -> RasterMap:
    """The class of the greatest score, the first of equal ones, as it is numbered."""
    channels, height, width = field.shape
    dtype = class_dtype(channels)
    nodata = np.iinfo(dtype).max
    ids = np.empty((1, height, width), dtype)
    for rows, scores in field.strips():
        # argmax makes a copy of what it is given, and answers in 64 bits.
        ids[0, rows] = scores.argmax(axis=0)
    ids[0, field.invalid] = nodata
    return RasterMap(
        ids,
        nodata,
        ("class",),
        colours=tuple(rgb(one.color) for one in output.classes),
        tags=({f"CLASS_{i}": one.name for i, one in enumerate(output.classes)},),
    )


def probability_map(field: ScoreField, output: OutputContract, dtype: str) -> RasterMap:
    """The probability of each class, a band each: the scores' softmax."""
    pixels: Array = field.room() if dtype == "float32" else np.empty(field.shape, np.uint8)
    for rows, scores in field.strips():
        pixels[:, rows] = _as(dtype, _softmax(scores))
    return _probabilities(pixels, field.invalid, [one.name for one in output.classes])


def confidence_map(field: ScoreField, dtype: str) -> RasterMap:
    """The probability of each pixel's class, which is the greatest; leaves the scores."""
    _, height, width = field.shape
    pixels = np.empty((1, height, width), dtype)
    for rows, scores in field.strips():
        pixels[0, rows] = _as(dtype, _softmax(scores).max(axis=0))
    return _probabilities(pixels, field.invalid, ["confidence"])


def value_map(field: ScoreField, output: OutputContract) -> RasterMap:
    """The scores as they are: values, an image, or logits."""
    pixels = field.room()
    if field.back is not None:
        for rows, scores in field.strips():
            pixels[:, rows] = scores
    pixels[:, field.invalid] = np.nan
    if output.kind == "classes":
        return RasterMap(pixels, np.nan, tuple(one.name for one in output.classes))
    return RasterMap(
        pixels,
        np.nan,
        tuple(one.name for one in output.bands),
        units=tuple(one.unit or "" for one in output.bands),
    )


def class_counts(raster: RasterMap, classes: int) -> list[int]:
    """How often each class stands on a map of ids."""
    # Row by row: bincount works on a copy in 64 bits, and lets no other thread run.
    found = np.zeros(classes, dtype=np.int64)
    for row in raster.pixels[0]:
        found += np.bincount(row[row < classes], minlength=classes)
    return [int(one) for one in found]


def _probabilities(pixels: Array, invalid: Mask, names: list[str]) -> RasterMap:
    if pixels.dtype == np.uint8:
        pixels[:, invalid] = STEPS + 1
        return RasterMap(pixels, STEPS + 1, tuple(names), scale=1 / STEPS)
    pixels[:, invalid] = np.nan
    return RasterMap(pixels, np.nan, tuple(names))


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
