"""An open file of whatever format: its bands as they are stored."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from rasterio.enums import ColorInterp

from vllm_raster_io.closing import Closing
from vllm_raster_io.tiling import Window

WIDE = ("int64", "uint64")
"""Types of whole numbers that floats, in which GDAL mostly tells nodata, do not hold."""

Palette = Mapping[int, tuple[int, int, int, int]]
"""Red, green, blue and opacity, each from 0 to 255, of each value of a band."""


class Stored(Closing):
    """One open file. Bands are counted from 0.

    Attributes:
        height: Rows.
        width: Columns.
        count: Bands, alpha bands among them.
        dates: How many dates the file itself says that its bands are of.
        dtypes: Type of each band.
        nodata: The value of each band that stands for nothing.
        descriptions: Name of each band.
        interpretations: What each band shows.
        scaling: Factor and offset that the file declares for each band.
        structure: What GDAL tells of the file's own form.
        palette: Colours of the only band's values.
        place: The georeference, and tags, as rasterio's datasets tell them.
    """

    height: int
    width: int
    count: int
    dates: int = 1
    dtypes: Sequence[np.dtype[Any]]
    nodata: Sequence[float | None]
    descriptions: Sequence[str | None]
    interpretations: Sequence[ColorInterp]
    scaling: Sequence[tuple[float, float]]
    structure: Mapping[str, str]
    palette: Palette | None
    place: Any

    @abstractmethod
    def tags(self, index: int | None = None) -> dict[str, str]:
        """Metadata of the file or of a band."""

    @abstractmethod
    def bits(self, index: int) -> int:
        """How many bits of a band's type its values take."""

    @abstractmethod
    def block_bytes(self) -> int:
        """What must be held to read any one pixel."""

    def take_nodata(self, value: float | None) -> None:
        """Has a value be invalid in place of the file's own; None for no value. Masks stay."""
        self.nodata = [value] * self.count

    @abstractmethod
    def read(
        self, window: Window, bands: Sequence[int], masks: Sequence[int] = ()
    ) -> tuple[npt.NDArray[Any], list[npt.NDArray[Any]]]:
        """Reads bands of a window.

        Args:
            window: Lies within the raster.
            bands: Which, in the order wanted.
            masks: Bands that mask the others where they are 0.

        Returns:
            Pixels (bands, height, width), and whatever masks them where it is 0, each
            (height, width).
        """


def validity(
    pixels: npt.NDArray[Any],
    masks: Sequence[npt.NDArray[Any]],
    nodata: Sequence[float | None],
) -> npt.NDArray[np.bool_]:
    """Whether each pixel (height, width) may be used.

    One may not be if any of its bands is nodata, NaN, infinite or masked there.

    Args:
        pixels: (bands, height, width).
        masks: Each (height, width); 0 where pixels are masked.
        nodata: The value of each band that stands for nothing.
    """
    valid = np.ones(pixels.shape[1:], dtype=np.bool_)
    for mask in masks:
        valid &= mask > 0
    for band, value in zip(pixels, nodata, strict=True):
        _exclude(valid, band, value)
    return valid


def _exclude(valid: npt.NDArray[np.bool_], band: npt.NDArray[Any], nodata: float | None) -> None:
    """Takes a band's nodata, NaN and infinite pixels out of the valid ones, in place."""
    if band.dtype.kind == "f":
        # The network's numbers have 32 bits: what is beyond them is infinite to it.
        with np.errstate(over="ignore"):
            valid &= np.isfinite(band.astype(np.float32, copy=False))
    if nodata is None or not np.isfinite(float(nodata)):
        return
    if band.dtype.kind in "iu":
        limits = np.iinfo(band.dtype)
        if nodata == float(limits.max):
            nodata = limits.max  # which a float of 64 bits rounds up
        if nodata != int(nodata) or not limits.min <= nodata <= limits.max:
            return  # no pixel of this type can have that value
        nodata = int(nodata)
    with np.errstate(over="ignore"):
        valid &= band != band.dtype.type(nodata)
