"""Rows of scores on their way from the network's pixels to the map's."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vllm_raster_io.products import MapMaker
from vllm_raster_io.resampling import Taps, resampled

Array = npt.NDArray[Any]

STRIP_VALUES = 2**20
"""Scores that are made into a map in one go: a few MiB, whatever the size of the scene."""


class Strips:
    """Gives rows of scores to those who make maps of them, in pieces of a few MiB.

    Args:
        makers: They make the maps.
        width: Columns of the map.
        back: What brings the scores' rows and columns to the map's; None where they are. No more
            rows are kept than the next one of the map is made of.
    """

    def __init__(
        self, makers: Sequence[MapMaker], width: int, back: tuple[Taps, Taps] | None = None
    ) -> None:
        self._makers, self._width, self._back = makers, width, back
        if back is not None:
            self._begins, self._ends = back[0].reach()
            self._kept: Array | None = None
            self._first = self._made = 0

    def take(self, first: int, scores: Array) -> None:
        """Takes the next rows of scores.

        Args:
            first: How many came before them.
            scores: (channels, rows, columns of the scores); not kept.
        """
        if self._back is None:
            step = self._step(len(scores))
            for begin in range(0, scores.shape[1], step):
                self._give(first + begin, scores[:, begin : begin + step])
            return
        kept = scores if self._kept is None else np.concatenate([self._kept, scores], axis=1)
        self._make_rows(kept, first + scores.shape[1])
        used = self._begins[self._made] if self._made < len(self._begins) else self._first
        self._kept = kept[:, used - self._first :].copy()
        self._first = int(used)

    def _make_rows(self, kept: Array, had: int) -> None:
        """Makes the rows of the map for which all rows of scores are there.

        Args:
            kept: Rows of scores from `_first`.
            had: How many rows of scores have come.
        """
        assert self._back is not None
        rows, columns = self._back
        ready = int(np.searchsorted(self._ends, had, side="right"))
        step = self._step(len(kept))
        for begin in range(self._made, ready, step):
            end = min(begin + step, ready)
            down, used = rows.part(begin, end)
            part = kept[:, used.start - self._first : used.stop - self._first]
            self._give(begin, resampled(part, down, columns))
        self._made = ready

    def _step(self, channels: int) -> int:
        return max(1, STRIP_VALUES // (channels * self._width))

    def _give(self, first: int, scores: Array) -> None:
        for one in self._makers:
            one.take(first, scores)
