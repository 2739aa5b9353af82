"""Putting the maps of a scene's windows together.

The windows form a grid, so a window's weights are the product of a row's and a column's. Along
each axis the weights of all windows that cover a pixel are made to sum to one beforehand. Each
window moves the mean of those before it by its part of the weights so far: so where windows agree
the map is what they say to the last bit, also where a single one covers a pixel.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from vllm_raster_io.errors import TilingError
from vllm_raster_io.tiling import Axis, Tiling, Window

Profile = Literal["none", "linear", "cosine", "gaussian"]
"""How weights fall off across an overlap: a hard seam in its middle, straight, or smoothly; or
from the middle of the window, as a bell of a standard deviation of an eighth of its length."""

_DEVIATIONS = 8
"""Standard deviations of the bell in the length of a window."""


@dataclass(frozen=True)
class Share:
    """What one window gives to the scene along one axis, in pixels of the map.

    Attributes:
        window: The part of the window that counts.
        scene: Where that part lies in the scene.
        weights: Float32 weight of each pixel of that part, in (0, 1].
    """

    window: slice
    scene: slice
    weights: npt.NDArray[np.float32]


def axis_shares(axis: Axis, upscale: int, profile: Profile) -> list[Share]:
    """The shares of an axis' windows, in order; at every pixel the weights sum to one.

    Args:
        axis: The axis as it is cut.
        upscale: Pixels of the map to a step of the axis.
        profile: "none" gives each pixel to one window; otherwise each window counts as a whole.
    """
    starts = [start * upscale for start in axis.starts()]
    length = axis.length * upscale
    ends = [start + length for start in starts]
    if profile == "none":
        seams = [(left + right) // 2 for left, right in zip(ends[:-1], starts[1:], strict=True)]
        bounds = zip(starts, [0, *seams], [*seams, ends[-1]], strict=True)
        return [
            Share(slice(a - start, b - start), slice(a, b), np.ones(b - a, np.float32))
            for start, a, b in bounds
        ]
    overlaps = [left - right for left, right in zip(ends[:-1], starts[1:], strict=True)]
    tapers = [
        _taper(length, before, after, profile)
        for before, after in zip([0, *overlaps], [*overlaps, 0], strict=True)
    ]
    # Two neighbours sum to one as they are, but a great overlap brings in their neighbours too.
    total = np.zeros(ends[-1])
    for start, taper in zip(starts, tapers, strict=True):
        total[start : start + length] += taper
    scenes = [slice(start, start + length) for start in starts]
    return [
        Share(slice(0, length), scene, (taper / total[scene]).astype(np.float32))
        for scene, taper in zip(scenes, tapers, strict=True)
    ]


def _taper(length: int, before: int, after: int, profile: Profile) -> npt.NDArray[np.float64]:
    """Weights of one window: 1, but rising over the overlap before, falling over that after.

    A bell is the same whatever the overlaps.
    """
    if profile == "gaussian":
        # At its ends it is 3e-4: a window without neighbours there still counts in full.
        position = (np.arange(length) + 0.5) / length - 0.5
        bell: npt.NDArray[np.float64] = np.exp(-0.5 * (position * _DEVIATIONS) ** 2)
        return bell
    weights = np.ones(length)
    weights[:before] *= _ramp(before, profile)
    weights[length - after :] *= _ramp(after, profile)[::-1]
    return weights


def _ramp(length: int, profile: Profile) -> npt.NDArray[np.float64]:
    """Rises within (0, 1); with its mirror image it sums to one."""
    # Taken in the middle of each pixel, so that it is symmetric and never 0.
    position = (np.arange(length) + 0.5) / length
    return position if profile == "linear" else np.sin(position * (np.pi / 2)) ** 2


class Mosaic:
    """Makes the weighted mean of the maps of a scene's windows, which is the map of the scene.

    The windows may come in any order, each once. Scores are blended; class ids are for others to
    take from them, once. A score that is not finite spreads no further than its own window.

    Args:
        tiling: How the scene was cut.
        channels: Channels of every map, at least 1.
        upscale: Pixels of a map to a step of the tiling along each axis, at least 1.
        profile: "linear" and "cosine" fade from a window to its neighbour over all that both
            cover, "gaussian" too, the more the nearer to their middles; "none" lets each pixel
            come from one window, with the seam in the middle.

    Raises:
        TilingError: A value is outside its range.
    """

    def __init__(
        self, tiling: Tiling, channels: int, upscale: int = 1, profile: Profile = "linear"
    ) -> None:
        for name, value in (("channels", channels), ("upscale", upscale)):
            if value < 1:
                raise TilingError(f"{name} is {value}, but must be at least 1")
        if profile not in get_args(Profile):
            known = ", ".join(get_args(Profile))
            raise TilingError(f"profile is {profile!r}, but must be one of {known}")
        self._tiling = tiling
        self._window_shape = (
            channels,
            tiling.rows.length * upscale,
            tiling.columns.length * upscale,
        )
        self._blends = profile != "none"
        self._rows = axis_shares(tiling.rows, upscale, profile)
        self._columns = axis_shares(tiling.columns, upscale, profile)
        step = tiling.step
        self._row_index = {start * step: i for i, start in enumerate(tiling.rows.starts())}
        self._column_index = {start * step: i for i, start in enumerate(tiling.columns.starts())}
        self._fed = np.zeros((len(self._rows), len(self._columns)), np.bool_)
        size = (tiling.rows.size * upscale, tiling.columns.size * upscale)
        self._mean = np.zeros((channels, *size), np.float32)
        self._weights = np.zeros(size if self._blends else (), np.float32)

    def feed(self, window: Window, scores: npt.ArrayLike) -> None:
        """Adds the map of one window.

        Args:
            window: A window of the tiling that has not been fed yet.
            scores: Its map (channels, height * upscale, width * upscale), the window's height and
                width in steps of the tiling, taken as float32. It is left as it is.

        Raises:
            TilingError: The window is none of the tiling's or came before, or the map has
                another shape.
        """
        index = self._locate(window)
        scores = np.asarray(scores, np.float32)
        if scores.shape != self._window_shape:
            raise TilingError(
                f"the map of {window} has the shape {scores.shape}, "
                f"but must have {self._window_shape}"
            )
        rows, columns = self._rows[index[0]], self._columns[index[1]]
        part = scores[:, rows.window, columns.window]
        place = self._mean[:, rows.scene, columns.scene]
        if self._blends:
            weights = self._weights[rows.scene, columns.scene]
            _move(place, part, weights, np.outer(rows.weights, columns.weights))
        else:
            place[...] = part
        self._fed[index] = True

    def data(self) -> npt.NDArray[np.float32]:
        """The map of the scene (channels, steps * upscale along each axis), not a copy.

        Raises:
            TilingError: Some window has not been fed.
        """
        if not self._fed.all():
            missing = np.flatnonzero(~self._fed)
            first = self._tiling.windows()[missing[0]]
            raise TilingError(
                f"{missing.size} of {self._fed.size} windows were not fed, the first is {first}"
            )
        return self._mean

    def _locate(self, window: Window) -> tuple[int, int]:
        row = self._row_index.get(window.row)
        column = self._column_index.get(window.column)
        known = window == self._tiling.window_at(window.row, window.column)
        if row is None or column is None or not known:
            raise TilingError(f"{window} is no window of {self._tiling}")
        if self._fed[row, column]:
            raise TilingError(f"{window} was fed before")
        return row, column


def _move(
    mean: npt.NDArray[np.float32],
    part: npt.NDArray[np.float32],
    before: npt.NDArray[np.float32],
    weights: npt.NDArray[np.float32],
) -> None:
    """Takes a window into a mean and into the weights that went into it before, in place."""
    before += weights
    share = weights / before
    # Equal infinities have no difference, and no difference is none.
    with np.errstate(invalid="ignore"):
        difference = part - mean
    np.copyto(difference, 0, where=part == mean)
    difference *= share
    mean += difference
