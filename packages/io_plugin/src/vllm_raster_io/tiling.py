"""Cutting a scene into overlapping windows.

The windows form a grid, so each axis is cut by itself. Along an axis longer than the tile,
every window has exactly the tile's length and the spare overlap is shared out evenly: the last
window is moved in, never cut off and never outside. An axis that fits into one tile is one
window of its own length; to pad it is the network's business.
"""

from dataclasses import dataclass

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
    """One axis of a scene and how it is cut.

    Attributes:
        size: Pixels of the scene along the axis.
        tile: Greatest length of a window in pixels.
        overlap: Least number of pixels that neighbouring windows share.
    """

    size: int
    tile: int
    overlap: int

    @property
    def length(self) -> int:
        """Length in pixels that all windows have."""
        return min(self.size, self.tile)

    def __len__(self) -> int:
        spare = self.size - self.length
        return 1 + -(-spare // (self.tile - self.overlap))

    def starts(self) -> list[int]:
        """First pixel of each window, strictly increasing from 0."""
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
        overlap: Pixels that neighbouring windows share at least, from 0 to `tile` - 1.

    Raises:
        TilingError: A value is outside its range.
    """

    height: int
    width: int
    tile: int
    overlap: int

    def __post_init__(self) -> None:
        for name in ("height", "width", "tile"):
            value = getattr(self, name)
            if value < 1:
                raise TilingError(f"{name} is {value}, but must be at least 1")
        if not 0 <= self.overlap < self.tile:
            raise TilingError(
                f"overlap is {self.overlap}, but must be at least 0 "
                f"and less than the tile, which is {self.tile}"
            )

    @property
    def rows(self) -> Axis:
        """The vertical axis."""
        return Axis(self.height, self.tile, self.overlap)

    @property
    def columns(self) -> Axis:
        """The horizontal axis."""
        return Axis(self.width, self.tile, self.overlap)

    def __len__(self) -> int:
        return len(self.rows) * len(self.columns)

    def windows(self) -> list[Window]:
        """All windows, row by row from the top left; the first starts at (0, 0)."""
        rows, columns = self.rows, self.columns
        column_starts = columns.starts()
        return [
            Window(row, column, rows.length, columns.length)
            for row in rows.starts()
            for column in column_starts
        ]
