"""Good files of every kind, for others to be made of."""

import io
import itertools
import warnings
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import rasterio
from PIL import Image
from rasterio.control import GroundControlPoint
from rasterio.io import MemoryFile
from rasterio.rpc import RPC

from ..factories import make_raster

Files = dict[str, bytes]

_COMPRESSIONS = ("none", "deflate", "lzw", "packbits", "zstd", "lerc", "lzma")
_TYPES = ("uint8", "int8", "int16", "uint32", "int32", "float32", "float64", "uint64", "complex64")
_POINTS = [
    GroundControlPoint(row, col, 10.0 + col / 1000, 48.0 - row / 1000)
    for row, col in ((0, 0), (0, 40), (30, 0), (30, 40))
]


@cache
def seeds() -> Files:
    """Name and bytes of each. All are small, of one to six bands."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dict(itertools.chain(_tiffs(), _odd_tiffs(), _pictures(), _arrays()))


def _tiffs() -> Iterator[tuple[str, bytes]]:
    for compress in _COMPRESSIONS:
        yield f"strips {compress}", make_raster(compress=compress)
        tiled = {"tiled": True, "blockxsize": 16, "blockysize": 16}
        yield f"tiles {compress}", make_raster(compress=compress, **tiled)
    for dtype in _TYPES:
        values = 1 if dtype == "complex64" else None
        yield f"type {dtype}", make_raster(dtype=dtype, compress="deflate", values=values)
    yield "predictor 2", make_raster(compress="lzw", predictor=2)
    yield "predictor 3", make_raster(dtype="float32", compress="deflate", predictor=3)
    yield "BigTIFF", make_raster(BIGTIFF="YES")
    yield "big-endian", make_raster(ENDIANNESS="BIG", compress="deflate")
    yield "big-endian BigTIFF", make_raster(ENDIANNESS="BIG", BIGTIFF="YES")
    yield "12 bits", make_raster(NBITS=12, compress="deflate", values=1000)
    yield "1 bit", make_raster(NBITS=1, dtype="uint8", bands=1, values=1)
    yield "a band after the other", make_raster(interleave="band", compress="deflate")
    for bands, kind in itertools.product((1, 3), ("jpeg", "webp")):
        if (bands, kind) != (1, "webp"):
            yield f"{kind} of {bands}", make_raster(bands=bands, dtype="uint8", compress=kind)
    yield "YCbCr", make_raster(bands=3, dtype="uint8", compress="jpeg", photometric="ycbcr")
    yield "sparse", make_raster(height=500, width=500, values=0, SPARSE_OK=True, tiled=True)
    yield "large", make_raster(height=700, width=600, values=7, compress="deflate", tiled=True)


def _odd_tiffs() -> Iterator[tuple[str, bytes]]:
    mask = np.indices((32, 48)).sum(axis=0) % 3 > 0
    yield "mask", make_raster(mask=mask)
    yield "COG", make_raster(height=300, width=300, driver="COG", compress="deflate")
    yield "COG with mask", make_raster(driver="COG", mask=mask)
    yield "nodata", make_raster(nodata=9999)
    yield "nodata nan", make_raster(dtype="float32", nodata=float("nan"))
    yield "degrees", make_raster(crs="EPSG:4326")
    yield "no place", make_raster(crs=None)
    yield "control points", make_raster(gcps=_POINTS, crs="EPSG:4326")
    yield "names", make_raster(descriptions=["NIR", "RED", "GREEN", "BLUE"])
    yield "tags", make_raster(tags={"TIFFTAG_DATETIME": "2024:06:01 10:00:00", "a": "b" * 500})
    yield "alpha", make_raster(bands=5, dtype="uint8", alpha="yes", photometric="rgb")
    yield "palette", _changed(make_raster(bands=1, dtype="uint8"), _give_palette)
    yield (
        "overviews",
        _changed(
            make_raster(height=256, width=256, tiled=True), lambda one: one.build_overviews([2, 4])
        ),
    )
    yield "polynomials", _changed(make_raster(crs=None), _give_polynomials)
    for bands in (1, 2, 3, 6, 12):
        yield f"{bands} bands", make_raster(bands=bands)


def _pictures() -> Iterator[tuple[str, bytes]]:
    gray = np.random.default_rng(0).integers(0, 255, (40, 30), np.uint8)
    colours = np.stack([gray, gray[::-1], gray[:, ::-1]], axis=-1)
    pictures = {
        "gray": Image.fromarray(gray),
        "colours": Image.fromarray(colours),
        "opacity": Image.fromarray(np.dstack([colours, gray])),
        "gray and opacity": Image.fromarray(gray).convert("LA"),
        "palette": Image.fromarray(colours).quantize(16),
        "16 bits": Image.fromarray(gray.astype(np.uint16) * 200),
        "two colours": Image.fromarray(gray).convert("1"),
    }
    exif = Image.Exif()
    exif[0x0112] = 6
    for name, one in pictures.items():
        yield f"PNG {name}", _saved(one, "png")
    yield "PNG with text", _saved(pictures["gray"], "png", dpi=(72, 72), exif=exif.tobytes())
    for name in ("gray", "colours"):
        yield f"JPEG {name}", _saved(pictures[name], "jpeg")
        yield f"JPEG 2000 {name}", _saved(pictures[name], "jpeg2000")
        yield f"WebP {name}", _saved(pictures[name], "webp")
    yield "JPEG progressive", _saved(pictures["colours"], "jpeg", progressive=True)
    yield "JPEG turned", _saved(pictures["colours"], "jpeg", exif=exif.tobytes())
    yield "JPEG CMYK", _saved(pictures["colours"].convert("CMYK"), "jpeg")
    yield "WebP whole", _saved(pictures["opacity"], "webp", lossless=True, exif=exif.tobytes())
    yield "codestream", _saved(pictures["colours"], "jpeg2000", no_jp2=True)
    yield "BMP", _saved(pictures["colours"], "bmp")
    yield "GIF", _saved(pictures["palette"], "gif")


def _arrays() -> Iterator[tuple[str, bytes]]:
    for name, array in {
        "one band": np.ones((20, 30), np.uint16),
        "four bands": np.ones((4, 20, 30), np.float32),
        "big-endian": np.ones((4, 20, 30), ">i4"),
        "by columns": np.asfortranarray(np.ones((4, 20, 30), np.uint8)),
        "dates": np.ones((3, 1, 20, 30), np.int16),
        "texts": np.array(["a", "b"]),
    }.items():
        buffer = io.BytesIO()
        np.save(buffer, array)
        yield f"NumPy {name}", buffer.getvalue()


def _saved(picture: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def _changed(content: bytes, change: Callable[[object], object]) -> bytes:
    with MemoryFile() as memory:
        memory.write(content)  # which may grow, unlike bytes that are given to it
        with rasterio.open(memory.name, "r+") as dataset:
            change(dataset)
        return bytes(memory.getbuffer())


def _give_palette(dataset: object) -> None:
    dataset.write_colormap(1, {i: (i, 255 - i, 7, 255) for i in range(256)})  # type: ignore[attr-defined]


def _give_polynomials(dataset: object) -> None:
    ones = [1.0, *[0.0] * 19]
    dataset.rpcs = RPC(  # type: ignore[attr-defined]
        height_off=0, height_scale=500, lat_off=48, lat_scale=0.1, long_off=10, long_scale=0.1,
        line_off=16, line_scale=16, samp_off=24, samp_scale=24,
        line_num_coeff=ones, line_den_coeff=ones, samp_num_coeff=ones, samp_den_coeff=ones,
    )  # fmt: skip
