"""A made-up network: each pixel of its map depends on one pixel of the scene, or on one block."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from vllm_raster_io.contract import RasterContract

from .scenes import Array

_CELL = 16


class PixelNetwork:
    """Answers windows as the served networks do: in whole cells, so padded below and right.

    The bands, their frames and the pixels of a block count differently, so that another order of
    them gives another map. A block that is cut off is filled by reflection.
    """

    def __init__(self, contract: RasterContract) -> None:
        self._output = contract.output

    def __call__(self, item: Mapping[str, Any]) -> Array:
        """The scores or values of a window (channels, height, width), with rubbish beyond it."""
        scores = self.scores(np.asarray(item["pixel_values"]))
        cell = _CELL * self._output.upscale // self._output.downscale
        missing = [(0, -size % cell) for size in scores.shape[1:]]
        return np.pad(scores, [(0, 0), *missing], constant_values=1e9)

    def scores(self, pixels: Array) -> Array:
        """What is made of pixels (bands[, frames], height, width) of any extent."""
        upscale, channels = self._output.upscale, self._output.channels
        pixels = pixels.reshape(-1, *pixels.shape[-2:])
        weights = 2 * np.arange(len(pixels)) + 1
        mixed = np.tensordot(weights, pixels.astype(np.int64), axes=1)
        mixed = _blocks(mixed, self._output.downscale)
        mixed = mixed.repeat(upscale, axis=0).repeat(upscale, axis=1)
        # So that the pixels that one becomes differ.
        row, column = np.indices(mixed.shape)
        mixed += row % upscale + 5 * (column % upscale)
        if self._output.kind == "classes":
            return (mixed % channels == np.arange(channels)[:, None, None]).astype(np.float32)
        return np.stack([mixed / (i + 7) for i in range(channels)]).astype(np.float32)

    def ids(self, pixels: Array) -> Array:
        """The classes of pixels of any extent."""
        return self.scores(pixels).argmax(axis=0)


def _blocks(values: Array, side: int) -> Array:
    rows, columns = (_reflected(size, -(-size // side) * side) for size in values.shape)
    whole = values[np.ix_(rows, columns)]
    blocks = whole.reshape(len(rows) // side, side, len(columns) // side, side)
    weights = np.arange(side * side).reshape(side, side) + 1
    return np.einsum("rycx,yx->rc", blocks, weights)


def _reflected(size: int, target: int) -> Array:
    period = max(1, 2 * (size - 1))
    position = np.arange(target) % period
    return np.minimum(position, period - position) if size > 1 else position * 0
