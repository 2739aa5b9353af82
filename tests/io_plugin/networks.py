"""A made-up network: each pixel of its map depends on one pixel of the scene."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from vllm_raster_io.contract import RasterContract

from .scenes import Array

_CELL = 16


class PixelNetwork:
    """Answers windows as the served networks do: in whole cells, so padded below and right.

    The bands count differently, so that another order of them gives another map.
    """

    def __init__(self, contract: RasterContract) -> None:
        self._output = contract.output

    def __call__(self, item: Mapping[str, Any]) -> Array:
        """The scores or values of a window (channels, height, width), with rubbish beyond it."""
        scores = self.scores(np.asarray(item["pixel_values"]))
        cell = _CELL * self._output.upscale
        missing = [(0, -size % cell) for size in scores.shape[1:]]
        return np.pad(scores, [(0, 0), *missing], constant_values=1e9)

    def scores(self, pixels: Array) -> Array:
        """What is made of pixels of any extent."""
        upscale, channels = self._output.upscale, self._output.channels
        weights = 2 * np.arange(len(pixels)) + 1
        mixed = np.tensordot(weights, pixels.astype(np.int64), axes=1)
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
