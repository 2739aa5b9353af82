"""What a WebP says of itself, measured before GDAL reads it: it is decoded as a whole."""

import struct
from collections.abc import Iterator

from vllm_raster_io.errors import RasterError
from vllm_raster_io.files import Content
from vllm_raster_io.limits import LIMITS, Tally

_HEADER_BYTES = 12
_ANIMATED = 0x02
_HELD_PER_PIXEL = 8  # the decoder's own picture, and the one that it gives
_SIDE = 0x3FFF


def check_riff(content: Content, tally: Tally) -> None:
    """Checks what must be held to read one pixel, which is the whole picture.

    Where the file is cut off or out of order the count ends, and GDAL says what is wrong.

    Args:
        content: The file.
        tally: Bytes of metadata are added to it.

    Raises:
        LimitError: It is more than allowed.
        RasterError: The file is a film.
    """
    for kind, at, length in _chunks(content):
        data = bytes(content[at : at + min(length, 16)])
        if kind == b"VP8X" and data and data[0] & _ANIMATED:
            raise RasterError("The WebP file is a film of several pictures: send one of them")
        if kind in (b"XMP ", b"EXIF"):
            tally["metadata_bytes"] += min(length, len(content) - at)
            LIMITS.check("metadata_bytes", tally["metadata_bytes"])
        elif (size := _size(kind, data)) is not None:
            LIMITS.check("block_bytes", size[0] * size[1] * _HELD_PER_PIXEL)


def exif_of_riff(content: Content) -> bytes:
    """What the camera says, in TIFF's form; empty where there is nothing."""
    for kind, at, length in _chunks(content):
        if kind == b"EXIF":
            return bytes(content[at : at + length]).removeprefix(b"Exif\0\0")
    return b""


def _chunks(content: Content) -> Iterator[tuple[bytes, int, int]]:
    """Kind of each chunk, where its data begin, and how long they say to be."""
    at = _HEADER_BYTES
    for _ in range(LIMITS.directories):
        if at + 8 > len(content):
            return
        kind, length = struct.unpack("<4sI", content[at : at + 8])
        yield kind, at + 8, length
        at += 8 + length + length % 2


def _size(kind: bytes, data: bytes) -> tuple[int, int] | None:
    if kind == b"VP8 " and len(data) >= 10:
        width, height = struct.unpack("<HH", data[6:10])
        return height & _SIDE, width & _SIDE
    if kind == b"VP8L" and len(data) >= 5:
        (bits,) = struct.unpack("<I", data[1:5])
        return (bits >> 14 & _SIDE) + 1, (bits & _SIDE) + 1
    if kind == b"VP8X" and len(data) >= 10:
        width, height = (int.from_bytes(data[i : i + 3], "little") + 1 for i in (4, 7))
        return height, width
    return None
