"""Which side of a picture is up, as cameras write it: Exif's tag 274, as in TIFF 6.0."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vllm_raster_io.chunks import exif_of_chunks
from vllm_raster_io.codestreams import exif_of_boxes
from vllm_raster_io.directories import ORIENTATION, first_directory
from vllm_raster_io.files import Content
from vllm_raster_io.formats import JPEG, JPEG_2000, PNG, TIFF, WEBP, Format
from vllm_raster_io.riff import exif_of_riff
from vllm_raster_io.segments import exif_of_segments
from vllm_raster_io.tiling import Window

_EXIF: dict[str, Callable[[Content], Content]] = {
    TIFF.name: lambda content: content,
    PNG.name: exif_of_chunks,
    JPEG.name: exif_of_segments,
    WEBP.name: exif_of_riff,
    JPEG_2000.name: exif_of_boxes,
}


@dataclass(frozen=True)
class Orientation:
    """How a picture as it is stored becomes upright: first swapped, then mirrored.

    Attributes:
        number: As Exif counts them, from 1 (as stored) to 8.
        transposed: Whether rows and columns change places.
        flipped_rows: Whether the first row becomes the last.
        flipped_columns: Whether the first column becomes the last.
    """

    number: int = 1
    transposed: bool = False
    flipped_rows: bool = False
    flipped_columns: bool = False

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the upright picture."""
        return (width, height) if self.transposed else (height, width)

    def stored(self, window: Window, height: int, width: int) -> Window:
        """Where the pixels of a window are stored.

        Args:
            window: Of the upright picture.
            height: Of the upright picture.
            width: Of the upright picture.
        """
        row, column = window.row, window.column
        if self.flipped_rows:
            row = height - row - window.height
        if self.flipped_columns:
            column = width - column - window.width
        if self.transposed:
            return Window(column, row, window.width, window.height)
        return Window(row, column, window.height, window.width)

    def upright(self, pixels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Turns stored pixels (…, height, width)."""
        if self.transposed:
            pixels = pixels.swapaxes(-1, -2)
        rows, columns = (slice(None, None, -1 if one else 1)
                         for one in (self.flipped_rows, self.flipped_columns))  # fmt: skip
        return np.ascontiguousarray(pixels[..., rows, columns])


AS_STORED = Orientation()
_ORIENTATIONS = {
    one.number: one
    for one in (
        AS_STORED,
        Orientation(2, flipped_columns=True),
        Orientation(3, flipped_rows=True, flipped_columns=True),
        Orientation(4, flipped_rows=True),
        Orientation(5, transposed=True),
        Orientation(6, transposed=True, flipped_columns=True),
        Orientation(7, transposed=True, flipped_rows=True, flipped_columns=True),
        Orientation(8, transposed=True, flipped_rows=True),
    )
}


def orientation_of(content: Content, form: Format) -> Orientation:
    """What a file says of itself; as stored, where it says nothing or what cannot be."""
    find = _EXIF.get(form.name)
    number = first_directory(find(content)).get(ORIENTATION, 1) if find else 1
    return _ORIENTATIONS.get(number, AS_STORED)
