"""What a PNG says of itself before its first pixel, measured before GDAL reads it.

Its texts may be compressed: GDAL makes gigabytes of a file of a few hundred kilobytes.
"""

import struct
import zlib
from collections.abc import Iterator

from vllm_raster_io.files import Content
from vllm_raster_io.limits import LIMITS, Tally

_SIGNATURE_BYTES = 8
_PIXELS = b"IDAT"
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def check_chunks(content: Content, tally: Tally) -> None:
    """Counts the bytes of a PNG's texts, decompressing no more of them than may be there.

    Of an interlaced one the whole picture must be held to read one pixel.

    Where the file is cut off or out of order the count ends, and GDAL says what is wrong.

    Args:
        content: The file.
        tally: What is counted is added to it.

    Raises:
        LimitError: There are more than allowed.
    """
    for kind, at, length in _chunks(content):
        tally["directories"] += 1
        LIMITS.check("directories", tally["directories"])
        if kind == b"IHDR":
            _check_header(bytes(content[at : at + 13]))
        if kind in (b"tEXt", b"zTXt", b"iTXt"):
            tally["metadata_bytes"] += min(length, len(content) - at)
            LIMITS.check("metadata_bytes", tally["metadata_bytes"])
            data = bytes(content[at : at + length])
            tally["metadata_bytes"] += _unfolded(kind, data, LIMITS.metadata_bytes + 1)
            LIMITS.check("metadata_bytes", tally["metadata_bytes"])


def exif_of_chunks(content: Content) -> bytes:
    """What the camera says, in TIFF's form; empty where there is nothing."""
    for kind, at, length in _chunks(content):
        if kind == b"eXIf":
            return bytes(content[at : at + length])
    return b""


def _check_header(header: bytes) -> None:
    if len(header) < 13:
        return
    width, height, bits, colours, _, _, interlaced = struct.unpack(">II5B", header)
    LIMITS.check("pixels", width * height)
    if interlaced:
        bits *= _CHANNELS.get(colours, 4)
        LIMITS.check("block_bytes", width * height * bits // 8)


def _chunks(content: Content) -> Iterator[tuple[bytes, int, int]]:
    """Kind of each chunk before the pixels, where its data begin, and how long they say to be."""
    at = _SIGNATURE_BYTES
    while at + 8 <= len(content):
        length, kind = struct.unpack(">I4s", content[at : at + 8])
        if kind == _PIXELS:
            return
        yield kind, at + 8, length
        at += length + 12


def _unfolded(kind: bytes, data: bytes, most: int) -> int:
    """Bytes of a text once it is decompressed, `most` of them counted."""
    _, _, rest = data.partition(b"\0")  # after the keyword
    if kind == b"zTXt":
        packed = rest[1:]
    elif kind == b"iTXt" and rest[:1] != b"\0":
        packed = rest[2:].split(b"\0", 2)[-1]  # after the language and the translated keyword
    else:
        return 0
    try:
        return len(zlib.decompressobj().decompress(packed, most))
    except zlib.error:
        return 0
