"""Reading numpy's own files (.npy): plain numbers, never objects."""

import ast
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
from rasterio.enums import ColorInterp
from rasterio.transform import Affine

from vllm_raster_io.errors import RasterError
from vllm_raster_io.files import Content, SceneFile
from vllm_raster_io.limits import LIMITS, Tally
from vllm_raster_io.quoting import cut
from vllm_raster_io.stored import Stored
from vllm_raster_io.tiling import Window

_MAGIC_BYTES = 6
_LONGEST_HEADER = 4096
_DTYPE = re.compile(r"[<>=|]?(?:b1|[iu][1248]|f[248])")
_SHAPES = "(height, width), (bands, height, width) or (bands, dates, height, width)"


class NoPlace:
    """Stands for the georeference of a file that has none, as rasterio's datasets tell it."""

    crs = None
    transform = Affine.identity()
    gcps: tuple[list[Any], None] = ([], None)
    rpcs = None

    def tags(self, bidx: int = 0, ns: str | None = None) -> dict[str, str]:
        """None at all."""
        return {}


@dataclass(frozen=True)
class _Header:
    """What stands before the numbers.

    Attributes:
        shape: (bands, dates, height, width).
        strides: Bytes from one number to the next along each axis.
        start: Where the numbers begin.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, int, int, int]
    strides: tuple[int, ...]
    start: int
    told: tuple[int, ...]

    @classmethod
    def of(cls, content: Content) -> "_Header":
        text, start = _header_text(content)
        try:
            said = ast.literal_eval(text)
        except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
            said = None
        if not isinstance(said, dict) or said.keys() != {"descr", "fortran_order", "shape"}:
            raise RasterError("The NumPy file's header cannot be read: it is damaged")
        dtype, shape = _plain_type(said["descr"]), said["shape"]
        whole = isinstance(shape, tuple) and all(type(one) is int for one in shape)
        if not whole or type(said["fortran_order"]) is not bool:
            raise RasterError("The NumPy file's header cannot be read: it is damaged")
        if not 2 <= len(shape) <= 4 or min(shape) < 1:
            raise RasterError(f"An array must be {_SHAPES}, got the shape {cut(str(shape))}")
        strides = _strides(shape, dtype.itemsize, said["fortran_order"])
        missing = [len(shape) == 2, len(shape) < 4]
        bands, dates = (1, 1) if missing[0] else (shape[0], 1 if missing[1] else shape[1])
        full = (bands, dates, *shape[-2:])
        steps = (0 if missing[0] else strides[0], 0 if missing[1] else strides[1], *strides[-2:])
        return cls(dtype, full, steps, start, shape)

    @property
    def bytes(self) -> int:
        size = self.dtype.itemsize
        for one in self.shape:
            size *= one
        return size


def check_array(content: Content, tally: Tally) -> None:
    """Compares what the header claims with the limits, and with what is there.

    Args:
        content: The file.
        tally: Not changed.

    Raises:
        RasterError: It is damaged, or holds something else than plain numbers.
        LimitError: It is larger than allowed.
    """
    header = _Header.of(content)
    bands, dates, height, width = header.shape
    LIMITS.check("pixels", height * width)
    LIMITS.check("bands", bands * dates)
    held = len(content) - header.start
    if held != header.bytes:
        raise RasterError(
            f"The NumPy file is damaged: an array of the shape {header.told} and the type "
            f"{header.dtype.name} has {header.bytes} bytes, but {held} come after the header"
        )


class ArrayFile(Stored):
    """An open .npy file, whose numbers are read where they lie.

    Args:
        file: The file, which this closes.

    Raises:
        RasterError: It is damaged, or holds something else than plain numbers.
    """

    place = NoPlace()
    structure = MappingProxyType({})
    palette = None

    def __init__(self, file: SceneFile) -> None:
        self._file = file
        self._content: Content | None = file.content
        self._header = header = _Header.of(file.content)
        bands, self.dates, self.height, self.width = header.shape
        self.count = bands * self.dates
        kind = np.dtype(np.uint8) if header.dtype.kind == "b" else header.dtype.newbyteorder("=")
        self.dtypes = [kind] * self.count
        self.nodata: list[float | None] = [None] * self.count
        self.descriptions: list[str | None] = [None] * self.count
        self.interpretations = [ColorInterp.undefined] * self.count
        self.scaling = [(1.0, 0.0)] * self.count

    def tags(self, index: int | None = None) -> dict[str, str]:
        """None at all."""
        return {}

    def bits(self, index: int) -> int:
        """Of each number."""
        return self.dtypes[index].itemsize * 8

    def block_bytes(self) -> int:
        """Nothing is decompressed."""
        return 0

    def read(
        self, window: Window, bands: Sequence[int], masks: Sequence[int] = ()
    ) -> tuple[npt.NDArray[Any], list[npt.NDArray[Any]]]:
        """Reads bands of a window; nothing masks an array.

        Raises:
            RasterError: The file was closed, or has become shorter.
        """
        if self._content is None:
            raise RasterError("The raster cannot be read: it is closed")
        shape = (len(bands), window.height, window.width)
        pixels = np.empty(shape, self._header.dtype)
        for target, band in zip(pixels, bands, strict=True):
            self._read_band(self._content, target, band, window)
        if pixels.dtype.kind == "b":
            pixels = (pixels.view(np.uint8) != 0).view(np.uint8)
        return pixels.astype(self.dtypes[0], copy=False), []

    def close(self) -> None:
        """Gives the memory back."""
        self._content = None
        self._file.close()

    def _read_band(
        self, content: Content, target: npt.NDArray[Any], band: int, window: Window
    ) -> None:
        header = self._header
        # Bands are counted as in other files: one date after the other.
        date, number = divmod(band, header.shape[0])
        start = header.start + number * header.strides[0] + date * header.strides[1]
        down, across = header.strides[2:]
        start += window.row * down + window.column * across
        # Line by line along the axis in which neighbours lie closer together.
        lines, step, near = (target, down, across) if across <= down else (target.T, across, down)
        length = (lines.shape[1] - 1) * near + header.dtype.itemsize
        for i, line in enumerate(lines):
            at = start + i * step
            raw = content[at : at + length]
            if len(raw) < length:
                raise RasterError("The NumPy file has become shorter while it was read")
            line[:] = np.ndarray(line.shape, header.dtype, raw, 0, (near,))


def _header_text(content: Content) -> tuple[str, int]:
    at = _MAGIC_BYTES
    version = bytes(content[at : at + 2])
    if len(version) < 2 or version[0] not in (1, 2, 3):
        raise RasterError(
            "The NumPy file cannot be opened: it is cut off, or of a version other than 1, 2 and 3"
        )
    form = "<H" if version[0] == 1 else "<I"
    start = at + 2 + struct.calcsize(form)
    field = bytes(content[at + 2 : start])
    length = struct.unpack(form, field)[0] if len(field) == struct.calcsize(form) else 0
    text = bytes(content[start : start + min(length, _LONGEST_HEADER)])
    if not 0 < length <= _LONGEST_HEADER or len(text) < length:
        raise RasterError(
            "The NumPy file cannot be opened: its header is cut off, or longer than the "
            f"{_LONGEST_HEADER} bytes that are allowed"
        )
    return text.decode("utf-8" if version[0] == 3 else "latin-1", "replace").strip(), start + length


def _plain_type(told: object) -> np.dtype[Any]:
    if isinstance(told, str) and _DTYPE.fullmatch(told):
        return np.dtype(told)
    raise RasterError(
        "An array must be of whole numbers of 8 to 64 bits, floats of 16 to 64, or truth values, "
        f"got {cut(repr(told))}: store it with one of these types"
    )


def _strides(shape: Sequence[int], size: int, fortran: bool) -> tuple[int, ...]:
    strides = []
    for one in shape if fortran else reversed(shape):
        strides.append(size)
        size *= one
    return tuple(strides if fortran else reversed(strides))
