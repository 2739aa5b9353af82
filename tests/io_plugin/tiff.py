"""TIFF files written by hand, for those that GDAL would not write."""

import struct
from collections.abc import Mapping, Sequence

import numpy as np

from .scenes import Array

Tag = tuple[str, Sequence[float] | bytes]

WIDTH, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC = 256, 257, 258, 259, 262
STRIP_OFFSETS, SAMPLES, ROWS_PER_STRIP, STRIP_BYTES, PLANAR = 273, 277, 278, 279, 284
TILE_WIDTH, TILE_HEIGHT, TILE_OFFSETS, TILE_BYTES, SAMPLE_FORMAT = 322, 323, 324, 325, 339
TIE_POINTS, GDAL_METADATA, GDAL_NODATA = 33922, 42112, 42113

_KINDS = {"s": 2, "H": 3, "I": 4, "d": 12}
_FORMATS = {"u": 1, "i": 2, "f": 3, "c": 6}


def tiff(tags: Mapping[int, Tag], data: bytes = b"") -> bytes:
    """A TIFF of these tags, with the data at its end.

    Args:
        tags: For each number the type ("s", "H", "I", "d") and the values.
        data: What the only strip or tile holds.
    """
    where = STRIP_OFFSETS if STRIP_OFFSETS in tags else TILE_OFFSETS
    # The first pass finds out how long the head is.
    head = _head(tags)
    return _head({**tags, where: ("I", [len(head) if data else 0])}) + data


def single_strip(pixels: Array, extra: Mapping[int, Tag] | None = None) -> bytes:
    """One band (height, width), uncompressed."""
    height, width = pixels.shape
    tags: dict[int, Tag] = {
        **sizes(height, width, bits=pixels.itemsize * 8),
        STRIP_OFFSETS: ("I", [0]),
        ROWS_PER_STRIP: ("I", [height]),
        STRIP_BYTES: ("I", [pixels.nbytes]),
        SAMPLE_FORMAT: ("H", [_FORMATS[pixels.dtype.kind]]),
    }
    return tiff({**tags, **(extra or {})}, np.ascontiguousarray(pixels).tobytes())


def one_tile(height: int, width: int, side: int, *, bits: int = 8, bands: int = 1) -> bytes:
    """An image within one large tile, which is not stored: all zeros."""
    tags: dict[int, Tag] = {
        **sizes(height, width, bits=bits, bands=bands),
        TILE_WIDTH: ("I", [side]),
        TILE_HEIGHT: ("I", [side]),
        TILE_OFFSETS: ("I", [0]),
        TILE_BYTES: ("I", [0]),
    }
    return tiff(tags)


def sizes(height: int, width: int, *, bits: int = 8, bands: int = 1) -> dict[int, Tag]:
    return {
        WIDTH: ("I", [width]),
        HEIGHT: ("I", [height]),
        BITS: ("H", [bits] * bands),
        COMPRESSION: ("H", [1]),
        PHOTOMETRIC: ("H", [1]),
        SAMPLES: ("H", [bands]),
        PLANAR: ("H", [1]),
    }


def _head(tags: Mapping[int, Tag]) -> bytes:
    values_at = 8 + 2 + 12 * len(tags) + 4
    entries, values = b"", b""
    for number in sorted(tags):
        kind, content = tags[number]
        if isinstance(content, bytes):
            raw = content
        else:
            raw = struct.pack(f"<{len(content)}{kind}", *content)
        entries += struct.pack("<HHI", number, _KINDS[kind], len(content))
        if len(raw) <= 4:
            entries += raw.ljust(4, b"\0")
        else:
            entries += struct.pack("<I", values_at + len(values))
            values += raw
    return struct.pack("<4sIH", b"II*\0", 8, len(tags)) + entries + bytes(4) + values
