"""What a JPEG says of itself, measured before GDAL reads it.

One that comes in several passes is held as a whole, and gone through once for each of them.
"""

import re
import struct
from collections.abc import Iterator

from vllm_raster_io.files import Content
from vllm_raster_io.limits import LIMITS, Tally

_SCAN = 0xDA
_EXIF = 0xE1
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})
# One that is cut in two by the end of a piece is found whole in the next, and once.
_SCAN_BEGINS = re.compile(rb"\xff\xda\0[\x06\x08\x0a\x0c][\x01-\x04]")
_PIECE = 1 << 20
_SPAN = 4
_COEFFICIENT_BYTES = 2


def check_segments(content: Content, tally: Tally) -> None:
    """Checks the number of passes, and what must be held for them.

    Where the file is cut off or out of order the count ends, and GDAL says what is wrong.

    Args:
        content: The file.
        tally: Segments are added to it, as directories.

    Raises:
        LimitError: It is more than allowed.
    """
    held = first = 0
    for marker, at, length in _segments(content):
        first = at + length
        tally["directories"] += 1
        LIMITS.check("directories", tally["directories"])
        if marker in _FRAMES:
            head = bytes(content[at : at + 6])
            if len(head) == 6:
                height, width, components = struct.unpack(">xHHB", head)
                LIMITS.check("pixels", height * width)
                held = height * width * components * _COEFFICIENT_BYTES
    scans = _scans(content, first)
    tally["scans"] += scans
    LIMITS.check("scans", tally["scans"])
    if scans > 1:
        LIMITS.check("block_bytes", held)


def exif_of_segments(content: Content) -> bytes:
    """What the camera says, in TIFF's form; empty where there is nothing."""
    for marker, at, length in _segments(content):
        if marker == _EXIF and bytes(content[at : at + 6]) == b"Exif\0\0":
            return bytes(content[at + 6 : at + length])
    return b""


def _segments(content: Content) -> Iterator[tuple[int, int, int]]:
    """Marker of each segment before the first pass, where its data begin, and how long they are."""
    at = 2
    while at + 4 <= len(content):
        begin, marker = content[at : at + 2]
        if begin != 0xFF or marker == _SCAN:
            return
        if marker == 0xFF or marker in _WITHOUT_LENGTH:  # a fill byte, or nothing but the marker
            at += 1 if marker == 0xFF else 2
            continue
        (length,) = struct.unpack(">H", content[at + 2 : at + 4])
        if length < 2:
            return
        yield marker, at + 4, length - 2
        at += 2 + length


def _scans(content: Content, start: int) -> int:
    """How many passes there are; the count ends where there are too many."""
    found = 0
    for at in range(start, len(content), _PIECE):
        piece = bytes(content[max(start, at - _SPAN) : at + _PIECE])
        found += sum(1 for _ in _SCAN_BEGINS.finditer(piece))
        if found > LIMITS.scans:
            break
    return found
