"""What a PNG says of itself before its first pixel, measured before GDAL reads it.

Its texts may be compressed: GDAL makes gigabytes of a file of a few hundred kilobytes.
"""

import struct
import zlib
from collections.abc import Iterator

from vllm_raster_io.limits import LIMITS, Tally

_SIGNATURE_BYTES = 8
_PIXELS = b"IDAT"


def check_chunks(content: bytes | memoryview, tally: Tally) -> None:
    """Counts the bytes of a PNG's texts, decompressing no more of them than may be there.

    Where the file is cut off or out of order the count ends, and GDAL says what is wrong.

    Args:
        content: The file.
        tally: What is counted is added to it.

    Raises:
        LimitError: There are more than allowed.
    """
    for kind, data in _chunks(content):
        if kind in (b"tEXt", b"zTXt", b"iTXt"):
            tally["metadata_bytes"] += len(data)
            LIMITS.check("metadata_bytes", tally["metadata_bytes"])
            tally["metadata_bytes"] += _unfolded(kind, bytes(data), LIMITS.metadata_bytes + 1)
            LIMITS.check("metadata_bytes", tally["metadata_bytes"])


def _chunks(content: bytes | memoryview) -> Iterator[tuple[bytes, bytes | memoryview]]:
    """Kind and data of each chunk before the pixels."""
    at = _SIGNATURE_BYTES
    while at + 8 <= len(content):
        length, kind = struct.unpack_from(">I4s", content, at)
        if kind == _PIXELS:
            return
        yield kind, content[at + 8 : at + 8 + length]
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
