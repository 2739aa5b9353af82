"""A scene as the network sees it: the part asked for, in pixels of the size asked for."""

import math
from typing import Any

import numpy as np

from vllm_raster_io.limits import LIMITS
from vllm_raster_io.regions import Region
from vllm_raster_io.resampling import Taps, resampled_where_valid
from vllm_raster_io.series import Series
from vllm_raster_io.tiling import Window
from vllm_raster_io.units import Units
from vllm_raster_io.windows import Loaded

_STRIP_BYTES = 2**25
"""Bytes of the scene that are brought to another size in one go, at 8 a number."""

_ROUNDING = 1e-6
"""Part of a pixel for which there is none more."""


class View:
    """Reads windows of a series' region, and learns which of the scene's pixels are invalid.

    Args:
        series: The scene.
        region: What part of it, and how large the network's pixels are.
        units: How its numbers become the checkpoint's; None where they are.

    Attributes:
        height: Rows of the network's pixels.
        width: Columns of the network's pixels.
        invalid: Which pixels of the region are invalid, in the scene's own size, (rows, columns);
            known where windows were read.

    Raises:
        LimitError: There would be too many pixels.
    """

    def __init__(self, series: Series, region: Region, units: Units | None = None) -> None:
        self._series, self._window, self._units = series, region.window, units
        self._ratios = region.ratios
        self.resamples = region.ratios != (1.0, 1.0)
        size = (region.window.height, region.window.width)
        # The last pixel may reach beyond the region, but not for what is only rounding.
        self.height, self.width = (
            max(1, math.ceil(one / ratio - _ROUNDING))
            for one, ratio in zip(size, region.ratios, strict=True)
        )
        LIMITS.check("pixels", self.height * self.width)
        if self.resamples:
            self._rows, self._columns = (
                Taps.between(one, 1.0, new, ratio)
                for one, new, ratio in zip(
                    size, (self.height, self.width), region.ratios, strict=True
                )
            )
        # Zeros, for they cost nothing before they are written; read windows set what is not valid.
        self.invalid = np.zeros(size, dtype=np.bool_)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the pixels."""
        changed = self.resamples or self._units is not None
        return np.dtype(np.float32) if changed else self._series.dtype

    def shape(self, window: Window) -> tuple[int, ...]:
        """Shape of a window's pixels: (bands, height, width), with frames in between if several."""
        return self._series.shape(window)

    def read(self, window: Window) -> Loaded:
        """Reads a window of the network's pixels.

        Returns:
            Pixels of the type and shape told, and whether each may be used (height, width).

        Raises:
            RasterError: A file is damaged.
        """
        pixels, valid = self._resampled(window) if self.resamples else self._read(window)
        if self._units is None:
            return pixels, valid
        pixels = self._units.apply(pixels)
        return pixels, valid & np.isfinite(pixels).reshape(-1, *valid.shape).all(axis=0)

    def in_scene(self, window: Window) -> tuple[float, float]:
        """Row and column of the middle of a window, in the scene's pixels from its corner.

        Of a last window that reaches beyond the region, it is the middle of what lies within.
        """
        ends = zip(
            (window.row, window.column),
            (window.height, window.width),
            self._ratios,
            (self._window.height, self._window.width),
            strict=True,
        )
        row, column = (
            (first * ratio + min((first + count) * ratio, size)) / 2
            for first, count, ratio, size in ends
        )
        return self._window.row + row, self._window.column + column

    def _read(self, window: Window) -> Loaded:
        """A window of the region in the scene's own pixels."""
        moved = Window(
            window.row + self._window.row,
            window.column + self._window.column,
            window.height,
            window.width,
        )
        pixels, valid = self._series.read(moved)
        np.logical_not(valid, out=self.invalid[window.slices])
        return pixels, valid

    def _resampled(self, window: Window) -> Loaded:
        """In strips, for a window of large pixels is many times as large in the scene's."""
        columns, across = self._columns.part(window.column, window.column + window.width)
        pixels = np.empty(self.shape(window), np.float32)
        valid = np.empty((window.height, window.width), np.bool_)
        bands = math.prod(pixels.shape[:-2])
        row_bytes = (across.stop - across.start) * bands * 8 * max(1.0, self._ratios[0])
        step = max(1, int(_STRIP_BYTES / row_bytes))
        for begin in range(0, window.height, step):
            end = min(begin + step, window.height)
            rows, down = self._rows.part(window.row + begin, window.row + end)
            part = Window(
                down.start, across.start, down.stop - down.start, across.stop - across.start
            )
            taken, usable = self._read(part)
            pixels[..., begin:end, :], valid[begin:end] = resampled_where_valid(
                taken.astype(np.float64), usable, rows, columns
            )
        return pixels, valid
