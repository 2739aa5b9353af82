"""What a TIFF says of itself before its first pixel, measured before GDAL reads it.

GDAL goes through all directories of a file when it opens it, and takes a time that grows with
the square of the number of metadata items: a minute for 5 MB of them.
"""

import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from vllm_raster_io.files import Content
from vllm_raster_io.limits import LIMITS, Tally

WIDTH, HEIGHT, PHOTOMETRIC, ORIENTATION, SAMPLES = 256, 257, 262, 274, 277
ROWS_PER_STRIP, PLANAR, TILE_WIDTH, TILE_HEIGHT = 278, 284, 322, 323
_GDAL_METADATA, _GDAL_NODATA = 42112, 42113
_SEPARATE = 2
_LONGEST_NUMBER = 64
_SIZES = {1: 1, 3: 2, 4: 4, 16: 8}
"""Bytes of the numbers of a tag: of the types BYTE, SHORT, LONG, LONG8."""
_MOST_ENTRIES = 2**16 - 1  # GDAL takes a directory with more for no directory


def check_directories(content: Content, tally: Tally) -> None:
    """Counts the directories of a TIFF, the bytes of their metadata, and their blocks.

    Where the file is cut off or out of order the count ends, and GDAL says what is wrong.

    Args:
        content: The file.
        tally: What is counted is added to it.

    Raises:
        LimitError: There are more than allowed.
    """
    for entries in _directories(content):
        tally["directories"] += 1
        LIMITS.check("directories", tally["directories"])
        lengths = entries["count"][entries["tag"] == _GDAL_METADATA]
        tally["metadata_bytes"] += int(np.minimum(lengths, len(content)).sum())
        LIMITS.check("metadata_bytes", tally["metadata_bytes"])
        tags = _values(entries)
        LIMITS.check("pixels", tags.get(HEIGHT, 0) * tags.get(WIDTH, 0))
        tally["blocks"] += _blocks(tags)
        LIMITS.check("blocks", tally["blocks"])


def first_directory(content: Content) -> dict[int, int]:
    """The whole numbers of the first directory of a TIFF, by the numbers of their tags.

    Those that are one number and stand in the directory itself, as most do.
    """
    for entries in _directories(content):
        return _values(entries)
    return {}


def exact_nodata(content: Content) -> int | None:
    """GDAL's nodata of a TIFF, if it is a whole number, with all the digits that the file has.

    rasterio writes 64 bits as a float, 1.8446744073709552e+19, of which GDAL reads the 1.
    """
    for entries in _directories(content):
        for entry in entries[entries["tag"] == _GDAL_NODATA]:
            start, length = int(entry["at"]), min(int(entry["count"]), _LONGEST_NUMBER)
            text = bytes(content[start : start + length])
            if length <= entry["at"].itemsize:  # it stands in the field itself
                text = entry["at"].tobytes()[:length]
            return _whole_number(text.partition(b"\0")[0])
        return None
    return None


def _whole_number(text: bytes) -> int | None:
    with suppress(ValueError):
        return int(text)
    with suppress(ValueError):
        number = float(text)
        return int(number) if number.is_integer() else None
    return None


@dataclass(frozen=True)
class _Layout:
    """How numbers stand in a file: TIFF or BigTIFF, of either byte order."""

    offset: str
    count: str
    first: int
    entry: np.dtype[np.void]

    @classmethod
    def of(cls, content: Content) -> Self:
        order = "<" if bytes(content[:2]) == b"II" else ">"
        version = _number(content, f"{order}H", 2)
        offset, count, first = ("Q", "Q", 8) if version == 43 else ("I", "H", 4)
        number = f"{order}u{struct.calcsize(order + offset)}"
        fields = [("tag", f"{order}u2"), ("type", f"{order}u2"), ("count", number), ("at", number)]
        return cls(order + offset, order + count, first, np.dtype(fields))


def _directories(content: Content) -> Iterator[npt.NDArray[np.void]]:
    """The entries of each directory of the chain, which may lead back into itself."""
    seen: set[int] = set()
    try:
        layout = _Layout.of(content)
        at = _number(content, layout.offset, layout.first)
        while at and at not in seen:
            seen.add(at)
            count = _number(content, layout.count, at)
            if count > _MOST_ENTRIES:
                return
            at += struct.calcsize(layout.count)
            end = at + count * layout.entry.itemsize
            yield np.frombuffer(content[at:end], layout.entry, count)
            at = _number(content, layout.offset, end)
    except (struct.error, ValueError, OverflowError):
        return


def _values(entries: npt.NDArray[np.void]) -> dict[int, int]:
    """Each tag's number, where it has one: it stands at the beginning of the field for it."""
    values = {}
    little = entries.dtype["at"].str[0] == "<"
    width = entries.dtype["at"].itemsize
    for tag, kind, count, at in entries.tolist():
        size = _SIZES.get(kind)
        if count == 1 and size is not None and size <= width:
            values[tag] = at % 2 ** (8 * size) if little else at >> 8 * (width - size)
    return values


def _blocks(tags: dict[int, int]) -> int:
    height, width = tags.get(HEIGHT, 0), tags.get(WIDTH, 0)
    if TILE_WIDTH in tags:
        rows, columns = tags.get(TILE_HEIGHT, 0), tags[TILE_WIDTH]
    else:
        rows, columns = min(tags.get(ROWS_PER_STRIP, height), height), width
    if not (rows and columns):
        return 0
    separate = tags.get(SAMPLES, 1) if tags.get(PLANAR) == _SEPARATE else 1
    return -(-height // rows) * -(-width // columns) * separate


def _number(content: Content, form: str, at: int) -> int:
    (number,) = struct.unpack(form, content[at : at + struct.calcsize(form)])
    return int(number)
