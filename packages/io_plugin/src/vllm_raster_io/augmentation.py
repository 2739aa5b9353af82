"""Windows seen mirrored and turned, and their maps brought back and averaged."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Augment = Literal["none", "flips", "flips_rotations"]
"""The window as it is; and mirrored along each axis and both; and all of these turned by 90°."""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Symmetry:
    """One of the eight ways to lay a rectangle on itself or on its side.

    Attributes:
        rows: Whether the order of rows is turned round.
        columns: Whether that of columns is.
        turned: Whether rows then become columns.
    """

    rows: bool = False
    columns: bool = False
    turned: bool = False

    def apply(self, values: Array) -> Array:
        """An array (…, height, width) laid so; not a copy."""
        values = values[..., :: -1 if self.rows else 1, :: -1 if self.columns else 1]
        return values.swapaxes(-1, -2) if self.turned else values

    def undo(self, values: Array) -> Array:
        """An array laid so, as it was before; not a copy."""
        values = values.swapaxes(-1, -2) if self.turned else values
        return values[..., :: -1 if self.rows else 1, :: -1 if self.columns else 1]

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of what is laid so."""
        return (width, height) if self.turned else (height, width)


_FLIPS = tuple(Symmetry(rows, columns) for rows in (False, True) for columns in (False, True))
SYMMETRIES: dict[Augment, tuple[Symmetry, ...]] = {
    "none": (Symmetry(),),
    "flips": _FLIPS,
    "flips_rotations": (*_FLIPS, *(Symmetry(one.rows, one.columns, True) for one in _FLIPS)),
}
"""The ways of each kind, as the window is first."""


def whole_blocks(values: Array, block: int) -> Array:
    """An array (…, height, width) mirrored at its last row and column to whole blocks.

    What is laid otherwise would else have its blocks at other places.
    """
    for axis in (-2, -1):
        size = values.shape[axis]
        if more := -size % block:
            period = max(1, 2 * (size - 1))
            places = np.arange(size + more) % period
            values = np.take(values, np.minimum(places, period - places) % size, axis)
    return values


def averaged(maps: Sequence[Array]) -> npt.NDArray[np.float32]:
    """The mean of maps of one shape; of equal ones that value, to the last bit."""
    if len(maps) == 1:
        return np.asarray(maps[0], np.float32)
    total = np.zeros(maps[0].shape, np.float64)
    for one in maps:
        total += one
    total /= len(maps)
    return total.astype(np.float32)
