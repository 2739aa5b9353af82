"""Putting the maps of a scene's windows together.

Each window moves the mean of those before it by its part of the weights so far: so where windows
agree the map is what they say to the last bit, also where a single one covers a pixel.

Windows are laid row by row, whatever the order they come in, and rows of the map that no later
one covers are handed on at once: no more is kept than one row of windows covers.
"""

from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from vllm_raster_io.blending import Profile, Share, axis_shares
from vllm_raster_io.errors import TilingError
from vllm_raster_io.tiling import Tiling, Window

Array = npt.NDArray[Any]
TakeRows = Callable[[int, Array], None]
"""Is given the first of some rows of a map, and what is in them: (channels, rows, width)."""


class Mosaic:
    """Makes the weighted mean of the maps of a scene's windows, which is the map of the scene.

    The windows may come in any order, each once; one that comes early waits, so that the map does
    not depend on the order. Scores are blended; class ids are for others to take from them, or
    are laid as they are, where nothing is blended. A score that is not finite spreads no further
    than its own window.

    Args:
        tiling: How the scene was cut.
        take: Is given the map's rows from the top, each once, as soon as nothing more comes to
            them; they are its own until it returns, and are used again then.
        channels: Channels of every map, at least 1.
        upscale: Pixels of a map to a step of the tiling along each axis, at least 1.
        profile: "linear" and "cosine" fade from a window to its neighbour over all that both
            cover, "gaussian" too, the more the nearer to their middles; "none" lets each pixel
            come from one window, with the seam in the middle.
        dtype: Of the rows: float32, or an integer type where windows do not overlap.

    Raises:
        TilingError: A value is outside its range.
    """

    def __init__(
        self,
        tiling: Tiling,
        take: TakeRows,
        channels: int,
        upscale: int = 1,
        profile: Profile = "linear",
        dtype: npt.DTypeLike = np.float32,
    ) -> None:
        for name, value in (("channels", channels), ("upscale", upscale)):
            if value < 1:
                raise TilingError(f"{name} is {value}, but must be at least 1")
        if profile not in get_args(Profile):
            known = ", ".join(get_args(Profile))
            raise TilingError(f"profile is {profile!r}, but must be one of {known}")
        self._tiling, self._take = tiling, take
        self._window_shape = (
            channels,
            tiling.rows.length * upscale,
            tiling.columns.length * upscale,
        )
        self._rows = axis_shares(tiling.rows, upscale, profile)
        self._columns = axis_shares(tiling.columns, upscale, profile)
        step = tiling.step
        self._row_index = {start * step: i for i, start in enumerate(tiling.rows.starts())}
        self._column_index = {start * step: i for i, start in enumerate(tiling.columns.starts())}
        self._fed = np.zeros((len(self._rows), len(self._columns)), np.bool_)
        self._waiting: dict[int, Array] = {}
        self._laid = 0
        # Of the rows that one row of windows covers; what is above them was handed on.
        size = (self._window_shape[1], tiling.columns.size * upscale)
        self._strip = np.empty((channels, *size), dtype)
        self._weights = np.empty(size if profile != "none" else (), np.float32)

    def feed(self, window: Window, scores: npt.ArrayLike) -> None:
        """Adds the map of one window.

        Args:
            window: A window of the tiling that has not been fed yet.
            scores: Its map (channels, height * upscale, width * upscale), the window's height and
                width in steps of the tiling. It is left as it is, and kept until its turn.

        Raises:
            TilingError: The window is none of the tiling's or came before, or the map has
                another shape.
        """
        index = self._locate(window)
        scores = np.asarray(scores)
        if scores.shape != self._window_shape:
            raise TilingError(
                f"the map of {window} has the shape {scores.shape}, "
                f"but must have {self._window_shape}"
            )
        self._fed[index] = True
        self._waiting[index[0] * len(self._columns) + index[1]] = scores
        while (laid := self._waiting.pop(self._laid, None)) is not None:
            row, column = divmod(self._laid, len(self._columns))
            self._lay(row, column, laid)
            self._laid += 1
            if column + 1 == len(self._columns):
                self._hand_on(row)

    def end(self) -> None:
        """Says that all windows have come, so that all rows were handed on.

        Raises:
            TilingError: Some window has not been fed.
        """
        if not self._fed.all():
            missing = np.flatnonzero(~self._fed)
            first = self._tiling.windows()[missing[0]]
            raise TilingError(
                f"{missing.size} of {self._fed.size} windows were not fed, the first is {first}"
            )

    def _locate(self, window: Window) -> tuple[int, int]:
        row = self._row_index.get(window.row)
        column = self._column_index.get(window.column)
        known = window == self._tiling.window_at(window.row, window.column)
        if row is None or column is None or not known:
            raise TilingError(f"{window} is no window of {self._tiling}")
        if self._fed[row, column]:
            raise TilingError(f"{window} was fed before")
        return row, column

    def _lay(self, row: int, column: int, scores: Array) -> None:
        """Lays a window over those above it and to the left."""
        rows, columns = self._rows[row], self._columns[column]
        part = np.asarray(scores[:, rows.window, columns.window], self._strip.dtype)
        place = self._strip[:, : part.shape[1], columns.scene]
        if not self._weights.ndim:
            place[...] = part
            return
        weights = np.outer(rows.weights, columns.weights)
        before = self._weights[: part.shape[1], columns.scene]
        above, left = _covered(self._rows, row), _covered(self._columns, column)
        for covered in (np.s_[:above, :], np.s_[above:, :left]):
            _move(place[:, *covered], part[:, *covered], before[covered], weights[covered])
        # What is new there is the mean of one, to the last bit.
        place[:, above:, left:] = part[:, above:, left:]
        before[above:, left:] = weights[above:, left:]

    def _hand_on(self, row: int) -> None:
        """Gives away the rows that are finished with a row of windows, and moves up the others."""
        first, end = self._rows[row].scene.start, self._rows[row].scene.stop
        last = row + 1 == len(self._rows)
        done = (end if last else self._rows[row + 1].scene.start) - first
        self._take(first, self._strip[:, :done])
        rest = end - first - done
        for one in (self._strip, self._weights):
            if rest and one.ndim:
                one[..., :rest, :] = one[..., done : done + rest, :]


def _covered(shares: list[Share], index: int) -> int:
    """Over how many pixels at its begin a window of an axis lies over the one before."""
    return shares[index - 1].scene.stop - shares[index].scene.start if index else 0


def _move(mean: Array, part: Array, before: Array, weights: npt.NDArray[np.float32]) -> None:
    """Takes a window into a mean and into the weights that went into it before, in place."""
    before += weights
    share = weights / before
    with np.errstate(invalid="ignore"):
        difference = part - mean
    if not np.isfinite(difference).all():
        # Equal infinities have no difference, and no difference is none.
        np.copyto(difference, 0, where=part == mean)
    difference *= share
    mean += difference
