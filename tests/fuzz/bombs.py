"""Files and requests that would take much more than they are."""

import base64
import itertools
import struct
import zlib
from collections.abc import Iterator
from functools import cache

import numpy as np

from ..factories import make_raster
from ..io_plugin import tiff


@cache
def bombs() -> dict[str, bytes]:
    """Files, by what they do."""
    return dict(itertools.chain(_tiffs(), _chains(), _pngs(), _arrays()))


@cache
def heavy_requests() -> dict[str, object]:
    """Requests, by what they do."""
    few = base64.b64encode(make_raster()).decode()
    deep: object = few
    for _ in range(500):
        deep = [deep]
    return {
        "many files": {"data": [few] * 5000},
        "many numbers": {"data": few, "indices": list(range(200_000))},
        "deep": {"data": deep},
        "long name": {"data": few, "x" * 1_000_000: 1},
        "many names": {"data": few} | {f"x{i}": i for i in range(50_000)},
        "long text": {"data": few, "prompt": "x" * 5_000_000},
        "long number": {"data": few, "indices": [10**4000]},
        "line breaks": {"data": "\n" * 3_000_000},
        "padding": {"data": "=" * 3_000_000},
        "surrogates": {"data": few, "prompt": "\ud800" * 10},
        "many dates": {"data": few, "dates": ["2024-01-01"] * 100_000},
        "long date": {"data": few, "dates": "9" * 1_000_000},
    }


def _tiffs() -> Iterator[tuple[str, bytes]]:
    for side in (10**5, 10**6, 2**31 - 1, 2**32 - 1):
        yield (
            f"{side} pixels a side",
            tiff.single_strip(
                np.ones((4, 4), np.uint8),
                {tiff.WIDTH: ("I", [side]), tiff.HEIGHT: ("I", [side])},
            ),
        )
    yield "one large tile", tiff.one_tile(100, 100, 2**20 - 16)
    yield "large tile of many bands", tiff.one_tile(100, 100, 8192, bits=64, bands=500)
    yield "many bands", tiff.one_tile(16, 16, 16, bands=60_000)
    yield (
        "sparse",
        make_raster(height=3000, width=3000, values=0, dtype="uint8", SPARSE_OK=True, tiled=True),
    )
    zeros = _zeros(2**28)
    yield (
        "deflate",
        tiff.tiff(
            {
                **tiff.sizes(16384, 16384),
                tiff.COMPRESSION: ("H", [8]),
                tiff.STRIP_OFFSETS: ("I", [0]),
                tiff.ROWS_PER_STRIP: ("I", [16384]),
                tiff.STRIP_BYTES: ("I", [len(zeros)]),
            },
            zeros,
        ),
    )
    items = "".join(f'<Item name="a{i}">b</Item>' for i in range(40_000))
    for name, text in {
        "many items": f"<GDALMetadata>{items}</GDALMetadata>",
        "deep items": "<a>" * 100_000,
        "entities": '<!DOCTYPE a [<!ENTITY b "cccccccccc">]><a>' + "&b;" * 100_000 + "</a>",
    }.items():
        yield (
            name,
            tiff.single_strip(
                np.ones((20, 20), np.uint8), {tiff.GDAL_METADATA: ("s", text.encode() + b"\0")}
            ),
        )


def _chains() -> Iterator[tuple[str, bytes]]:
    """Directories one after the other, and one that leads back to itself."""
    plain = tiff.single_strip(np.ones((20, 20), np.uint8))
    (count,) = struct.unpack_from("<H", plain, 8)
    directory = plain[8 : 8 + 2 + 12 * count]
    end = 8 + len(directory)
    loop = bytearray(plain)
    struct.pack_into("<I", loop, end, 8)
    yield "directory of directories", bytes(loop)
    chain = bytearray(plain[:8]) + b"".join(
        directory + struct.pack("<I", 8 + (i + 1) * (len(directory) + 4)) for i in range(30_000)
    )
    yield "many directories", bytes(chain)


def _pngs() -> Iterator[tuple[str, bytes]]:
    for side, depth in ((14_000, 8), (100_000, 8), (2**31 - 1, 16)):
        rows = _zeros((side + 1) * min(side, 14_000) if side < 2**20 else 0)
        yield f"PNG {side}", _png(side, side, depth, rows)
    text = b"a\0\0" + _zeros(2**28)
    yield "PNG text", _png(4, 4, 8, zlib.compress(bytes(20)), (b"zTXt", text))
    yield "PNG texts", _png(4, 4, 8, zlib.compress(bytes(20)), *[(b"tEXt", b"a\0b")] * 60_000)
    yield "PNG profile", _png(4, 4, 8, zlib.compress(bytes(20)), (b"iCCP", text))
    yield "PNG too long", _png(16, 16, 8, _zeros(2**28))


def _zeros(count: int) -> bytes:
    packer, piece = zlib.compressobj(9), bytes(2**20)
    packed = [packer.compress(piece) for _ in range(count >> 20)]
    return b"".join([*packed, packer.compress(bytes(count % 2**20)), packer.flush()])


def _png(width: int, height: int, depth: int, pixels: bytes, *more: tuple[bytes, bytes]) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), *more, (b"IDAT", pixels), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def _arrays() -> Iterator[tuple[str, bytes]]:
    for shape in ("(4, 1000000, 1000000)", "(" + "1," * 5000 + ")", "(" * 5000, "(-1, 4)"):
        head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
        yield (
            f"NumPy {shape[:20]}",
            (b"\x93NUMPY\x02\x00" + struct.pack("<I", len(head)) + head + bytes(64)),
        )
    yield "NumPy object", (
        b"\x93NUMPY\x01\x00" + struct.pack("<H", 64)
        + b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(63) + b"\ncos\nsystem\n"
    )  # fmt: skip
