"""Bringing rasters to pixels of another size, along one axis after the other.

A pixel of the new raster that is greater than the old ones is their mean, each weighted by how
much of it lies within; one that is smaller lies between the middles of the nearest two. Both
rasters begin at the same corner. Means are taken step by step, each weight relative to those
before: so the mean of equal numbers is that number, to the last bit.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Taps:
    """What each new pixel of an axis takes from the old ones.

    Attributes:
        places: (new, taps), the old pixels, in order of place.
        weights: (new, taps) from 0 to 1; more than 0 in sum.
    """

    places: npt.NDArray[np.intp]
    weights: npt.NDArray[np.float64]

    @classmethod
    def between(cls, old: int, old_size: float, new: int, new_size: float) -> "Taps":
        """Those of an axis.

        Args:
            old: Number of old pixels.
            old_size: Their size, in any unit.
            new: Number of new pixels; they reach into the old ones.
            new_size: Their size.
        """
        ratio = new_size / old_size
        if ratio <= 1:
            middles = (np.arange(new) + 0.5) * ratio - 0.5
            first = np.floor(middles)
            after = middles - first
            places = np.stack([first, first + 1], axis=1)
            weights = np.stack([1 - after, after], axis=1)
        else:
            begins = np.arange(new) * ratio
            places = np.floor(begins)[:, None] + np.arange(int(np.ceil(ratio)) + 1)
            overlap = np.minimum(places + 1, (begins + ratio)[:, None])
            weights = np.clip(overlap - np.maximum(places, begins[:, None]), 0, 1)
            weights[places >= old] = 0
            # What is but rounding brings in a pixel that touches the new one.
            weights[weights < 1e-9] = 0
        return cls(np.clip(places, 0, old - 1).astype(np.intp), weights)

    def part(self, begin: int, end: int) -> tuple["Taps", slice]:
        """Those of some new pixels, and which old ones they take, from which they count."""
        places, weights = self.places[begin:end], self.weights[begin:end]
        used = places[weights > 0]
        first, last = int(used.min()), int(used.max())
        return Taps(np.clip(places - first, 0, last - first), weights), slice(first, last + 1)

    def reach(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """The first old pixel that each new one takes, and the one behind its last; both rise."""
        used = self.weights > 0
        first = np.where(used, self.places, np.iinfo(np.intp).max).min(axis=1)
        return first, np.where(used, self.places, -1).max(axis=1) + 1

    def mean(
        self, values: Array, weights: Array | None = None, *, axis: int
    ) -> tuple[Array, Array | None]:
        """Weighted means along an axis.

        Args:
            values: The old pixels.
            weights: Of each of them, at least 0, of a shape that fits; all alike without.
            axis: Which axis, counted from the last: -1 or -2.

        Returns:
            The new pixels, 0 where no old one has a weight, and the sums of weights.
        """
        shape = (-1,) + (1,) * (-axis - 1)
        mean: Array | None = None
        total: Array = np.zeros(1)
        for place, weight in zip(self.places.T, self.weights.T, strict=True):
            if not weight.any():
                continue
            given = weight.reshape(shape)
            if weights is not None:
                given = given * np.take(weights, place, axis=axis)
            total = total + given
            share = np.divide(given, total, out=np.zeros_like(total), where=total > 0)
            taken = np.take(values, place, axis=axis)
            if mean is None:
                mean = np.where(share > 0, taken, 0).astype(values.dtype, copy=False)
                continue
            # Equal infinities have no difference; what has no weight counts for nothing.
            differs = (share > 0) & (taken != mean)
            with np.errstate(invalid="ignore"):
                mean += np.where(differs, (taken - mean) * share, 0).astype(values.dtype)
        assert mean is not None
        return mean, None if weights is None else total


def resampled(values: Array, rows: Taps, columns: Taps) -> Array:
    """A raster (…, old rows, old columns) in new pixels."""
    across, _ = columns.mean(values, axis=-1)
    down, _ = rows.mean(across, axis=-2)
    return down


def resampled_where_valid(
    values: Array, valid: npt.NDArray[np.bool_], rows: Taps, columns: Taps
) -> tuple[Array, npt.NDArray[np.bool_]]:
    """A raster in new pixels, made of its valid pixels (old rows, old columns) alone.

    Returns:
        The raster, and its valid pixels: those into which a valid one enters.
    """
    across, weights = columns.mean(values, valid.astype(np.float64), axis=-1)
    down, weights = rows.mean(across, weights, axis=-2)
    assert weights is not None
    return down, weights > 0
