"""How much each window counts where it overlaps with others.

The windows form a grid, so a window's weights are the product of a row's and a column's. Along
each axis the weights of all windows that cover a pixel are made to sum to one.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from vllm_raster_io.tiling import Axis

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
