"""Cutting a scene into overlapping windows.

The windows form a grid, so each axis is cut by itself. Along an axis longer than the tile,
every window has exactly the tile's length and the spare overlap is shared out evenly: the last
window is moved in, never cut off and never outside. An axis that fits into one tile is one
window of its own length; to pad it is the network's business.

Where one pixel of the map stands for a block of the scene's, windows start and end with a block:
an axis is then counted in blocks, and only the last window of a scene that does not end with one
is a few pixels shorter.
"""

from dataclasses import dataclass
from itertools import pairwise

from vllm_raster_io.errors import TilingError


@dataclass(frozen=True)
class Window:
    """A rectangle of a scene, in pixels of the scene.

    Attributes:
        row: First row, counted from the top.
        column: First column, counted from the left.
        height: Number of rows.
        width: Number of columns.
    """

    row: int
    column: int
    height: int
    width: int

    @property
    def slices(self) -> tuple[slice, slice]:
        """Rows and columns, to index an array (..., height, width) of the scene."""
        return (
            slice(self.row, self.row + self.height),
            slice(self.column, self.column + self.width),
        )


@dataclass(frozen=True)
class Axis:
    """One axis of a scene and how it is cut, in steps of the tiling: pixels, or blocks of them.

    Attributes:
        size: Steps of the scene along the axis.
        tile: Greatest length of a window in steps.
        overlap: Least number of steps that neighbouring windows share.
    """

    size: int
    tile: int
    overlap: int

    @property
    def length(self) -> int:
        """Length in steps that all windows have."""
        return min(self.size, self.tile)

    def __len__(self) -> int:
        spare = self.size - self.length
        return 1 + -(-spare // (self.tile - self.overlap))

    def starts(self) -> list[int]:
        """First step of each window, strictly increasing from 0."""
        spare = self.size - self.length
        steps = len(self) - 1
        return [spare * step // steps for step in range(steps + 1)] if steps else [0]


@dataclass(frozen=True)
class Tiling:
    """The fewest windows that cover a scene with at least a given overlap.

    Nothing is built before it is asked for: `len` is arithmetic, so that a limit on the number
    of windows can be checked first.

    Attributes:
        height: Rows of the scene, at least 1.
        width: Columns of the scene, at least 1.
        tile: Greatest side of a window in pixels, at least 1.
        overlap: Pixels that neighbouring windows share at least, from 0 to `tile` - 1. Taken as
            the next multiple of `step` that leaves a window one step of its own.
        step: Windows start at multiples of so many pixels; the tile is a multiple of it.

    Raises:
        TilingError: A value is outside its range.
    """

    height: int
    width: int
    tile: int
    overlap: int
    step: int = 1

    def __post_init__(self) -> None:
        for name in ("height", "width", "tile", "step"):
            value = getattr(self, name)
            if value < 1:
                raise TilingError(f"{name} is {value}, but must be at least 1")
        if not 0 <= self.overlap < self.tile:
            raise TilingError(
                f"overlap is {self.overlap}, but must be at least 0 "
                f"and less than the tile, which is {self.tile}"
            )
        if self.tile % self.step:
            raise TilingError(f"tile is {self.tile}, but must be a multiple of step={self.step}")

    @property
    def rows(self) -> Axis:
        """The vertical axis."""
        return self._axis(self.height)

    @property
    def columns(self) -> Axis:
        """The horizontal axis."""
        return self._axis(self.width)

    def __len__(self) -> int:
        return len(self.rows) * len(self.columns)

    def windows(self) -> list[Window]:
        """All windows, row by row from the top left; the first starts at (0, 0)."""
        rows = [start * self.step for start in self.rows.starts()]
        columns = [start * self.step for start in self.columns.starts()]
        return [self.window_at(row, column) for row in rows for column in columns]

    @property
    def overlaps(self) -> bool:
        """Whether any two windows share a pixel."""
        return any(
            after - before < axis.length
            for axis in (self.rows, self.columns)
            for before, after in pairwise(axis.starts())
        )

    def window_at(self, row: int, column: int) -> Window:
        """The window that starts at a pixel, where one does."""
        side = self.tile
        return Window(row, column, min(side, self.height - row), min(side, self.width - column))

    def _axis(self, size: int) -> Axis:
        tile = self.tile // self.step
        overlap = min(-(-self.overlap // self.step), tile - 1)
        return Axis(-(-size // self.step), tile, overlap)
