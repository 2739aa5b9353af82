"""What a JPEG 2000 says of itself, measured before GDAL reads it.

A header of a hundred bytes can ask the decoder for gigabytes: by the number of tiles, of
components, of code blocks and precincts within a tile, and of quality layers.
The layout is that of ISO/IEC 15444-1, annexes A (codestream) and I (file).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from vllm_raster_io.errors import LimitError, RasterError
from vllm_raster_io.files import Content
from vllm_raster_io.limits import LIMITS, Tally

_SOC, _SIZ, _COD, _COC, _SOT, _SOD, _EOC = 0xFF4F, 0xFF51, 0xFF52, 0xFF53, 0xFF90, 0xFF93, 0xFFD9
_METADATA = (b"xml ", b"uuid", b"asoc")
_BOXES_OF_BOXES = (b"jp2h", b"res ", b"asoc", b"uinf", b"jpch", b"jplh", b"cgrp")
_DEEPEST = 8
_EXIF_UUID = b"JpgTiffExif->JP2"
_MOST_HEADS = 2**17
"""Parts of tiles, each of which may say anew how it is coded."""
_MOST_TABLES = 2**17
"""Tiles times components: of each the decoder keeps a table of a kilobyte."""
_MOST_CELLS = 2**19
"""Code blocks and precincts of a tile, of each of which it keeps several hundred bytes."""
_MOST_PACKETS = 2**26
"""Of each packet of a tile it keeps whether it was read."""
_TABLES_OF_A_TILE = 5
_CUT_OFF = "The JPEG 2000 file cannot be opened: it is cut off or damaged"


def check_codestream(content: Content, tally: Tally) -> None:
    """Checks what the decoder would allocate before it decodes anything.

    It also sees to it that all tiles are there: GDAL makes up those that are cut off.

    Args:
        content: The file.
        tally: Boxes, as directories, and bytes of metadata are added to it.

    Raises:
        LimitError: It is more than allowed.
        RasterError: The file is cut off.
    """
    for kind, at, length in _boxes(content):
        tally["directories"] += 1
        LIMITS.check("directories", tally["directories"])
        if kind in _BOXES_OF_BOXES:
            _check_within(content, at, at + length, tally, 1)
        if kind in _METADATA:
            tally["metadata_bytes"] += length
            LIMITS.check("metadata_bytes", tally["metadata_bytes"])
        elif kind == b"jp2c":
            _check_coding(content, at, at + length)


def _check_within(content: Content, at: int, end: int, tally: Tally, depth: int) -> None:
    """Goes through the boxes within a box; GDAL goes round and round in one without a length."""
    while at < end:
        tally["directories"] += 1
        LIMITS.check("directories", tally["directories"])
        head = bytes(content[at : min(at + 16, end)])
        length, start = int.from_bytes(head[:4], "big"), 8
        if length == 1:
            length, start = int.from_bytes(head[8:16], "big"), 16
        if not start <= length <= end - at or depth > _DEEPEST:
            raise RasterError(_CUT_OFF)
        if head[4:8] in _BOXES_OF_BOXES:
            _check_within(content, at + start, at + length, tally, depth + 1)
        at += length


def exif_of_boxes(content: Content) -> bytes:
    """What the camera says, in TIFF's form; empty where there is nothing."""
    for kind, at, length in _boxes(content):
        if kind == b"uuid" and bytes(content[at : at + 16]) == _EXIF_UUID:
            return bytes(content[at + 16 : at + length]).removeprefix(b"Exif\0\0")
    return b""


def _boxes(content: Content) -> Iterator[tuple[bytes, int, int]]:
    """Kind of each box of the file, where its data begin, and how long they are."""
    if bytes(content[:2]) == _SOC.to_bytes(2, "big"):
        yield b"jp2c", 0, len(content)
        return
    at = 0
    while at + 8 <= len(content):
        length, kind = struct.unpack(">I4s", content[at : at + 8])
        head = 8
        if length == 1 and at + 16 <= len(content):
            (length,) = struct.unpack(">Q", content[at + 8 : at + 16])
            head = 16
        left = len(content) - at
        if kind == b"jp2c" and length > left:
            raise RasterError(_CUT_OFF)
        length = left if length == 0 else min(length, left)
        if length < head:
            return
        yield kind, at + head, length - head
        at += length


@dataclass
class _Size:
    """The marker SIZ: the picture, its tiles and components."""

    height: int
    width: int
    tile_height: int
    tile_width: int
    tiles: int
    components: int

    @classmethod
    def of(cls, data: bytes) -> "_Size | None":
        if len(data) < 36:
            return None
        _, x1, y1, x0, y0, tile_x, tile_y, tile_x0, tile_y0, count = struct.unpack(
            ">H8IH", data[:36]
        )
        if not (tile_x and tile_y and x0 < x1 and y0 < y1 and tile_x0 <= x0 and tile_y0 <= y0):
            return None
        tiles = -(-(x1 - tile_x0) // tile_x) * -(-(y1 - tile_y0) // tile_y)
        height, width = y1 - y0, x1 - x0
        return cls(height, width, min(tile_y, height), min(tile_x, width), tiles, count)


@dataclass
class _Coding:
    """The extremes of all COD and COC: as they may stand in any tile, for any component."""

    layers: int = 1
    levels: int = 0
    block: tuple[int, int] = (64, 64)
    precinct: tuple[int, int] = (2**15, 2**15)

    def add_layers(self, layers: int) -> None:
        self.layers = max(self.layers, layers)

    def add(self, has_precincts: int, data: bytes) -> None:
        """Takes in what follows in either marker: levels, code blocks, style, precincts."""
        if len(data) < 5:
            return
        self.levels = max(self.levels, data[0])
        block = [2 ** min(size + 2, 10) for size in data[1:3]]
        sizes = [*data[5 : 6 + data[0]]] if has_precincts & 1 else []
        precincts = [(2 ** (one & 15), 2 ** (one >> 4)) for one in sizes]
        self.precinct = _least(self.precinct, *precincts)
        self.block = _least(self.block, (block[0], block[1]))


def _least(*sizes: tuple[int, int]) -> tuple[int, int]:
    return min(one[0] for one in sizes), min(one[1] for one in sizes)


def _check_coding(content: Content, start: int, end: int) -> None:
    size, coding, tiles = None, _Coding(), set[bytes]()
    for marker, at, length in _markers(content, start + 2, end):
        data = bytes(content[at : at + min(length, 128)])
        if marker == _SIZ and size is None:
            size = _Size.of(data)
            if size is None:
                return
            _check_size(size)
        elif marker == _COD and len(data) >= 5:
            coding.add_layers(int.from_bytes(data[2:4], "big"))
            coding.add(data[0], data[5:])
        elif marker == _COC and size is not None:
            wide = 1 if size.components < 257 else 2
            coding.add(data[wide] if len(data) > wide else 0, data[wide + 1 :])
        elif marker == _SOT:
            tiles.add(data[:2])
    if size is not None:
        _check_tile(size, coding)
        if len(tiles) != size.tiles:
            raise RasterError(f"{_CUT_OFF} ({len(tiles)} of {size.tiles} tiles)")


def _markers(content: Content, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The marker segments of the main head and of all heads of tiles."""
    at, next_tile, heads = start, end, 0
    while at + 4 <= end:
        marker, length = struct.unpack(">HH", content[at : at + 4])
        if marker == _SOT:
            heads += 1
            head = bytes(content[at + 4 : at + 12])
            if heads > _MOST_HEADS:
                raise LimitError(f"The JPEG 2000 file is in more than {_MOST_HEADS} parts")
            if len(head) < 8:
                return
            told = int.from_bytes(head[2:6], "big")
            next_tile = at + told if told else end
            if next_tile > end:
                raise RasterError(_CUT_OFF)
        if marker == _SOD:
            if next_tile <= at:
                return
            at = next_tile
            continue
        if marker == _EOC or length < 2:
            return
        yield marker, at + 4, length - 2
        at += 2 + length


def _check_size(size: _Size) -> None:
    LIMITS.check("pixels", size.height * size.width)
    LIMITS.check("bands", size.components)
    _check("tiles", size.tiles * (size.components + _TABLES_OF_A_TILE), _MOST_TABLES)


def _check_tile(size: _Size, coding: _Coding) -> None:
    cells = most = 0
    for level in range(min(coding.levels, 32) + 1):
        height, width = size.tile_height >> level, size.tile_width >> level
        # One more along each axis, for neither need begin where the tile does.
        precincts = (height // coding.precinct[1] + 2) * (width // coding.precinct[0] + 2)
        high, wide = _least(coding.block, coding.precinct)[::-1]
        blocks = (height // high + 2) * (width // wide + 2)
        cells += precincts + blocks
        most = max(most, precincts)
    _check("code blocks", cells * size.components, _MOST_CELLS)
    packets = most * (coding.levels + 1) * size.components * coding.layers
    _check("packets", packets, _MOST_PACKETS)


def _check(what: str, value: int, limit: int) -> None:
    if value > limit:
        raise LimitError(
            f"The JPEG 2000 file has {value} {what}, and at most {limit} are allowed: store it in "
            "tiles of about 1024 pixels and usual blocks"
        )
