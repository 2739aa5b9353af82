"""Files that are no rasters, damaged, hostile, or larger than allowed."""

import random
import resource
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np
import pytest
from rasterio.control import GroundControlPoint
from rasterio.io import MemoryFile

from vllm_raster_io import rasters
from vllm_raster_io.errors import LimitError, RasterError, RasterIOError
from vllm_raster_io.limits import Limits
from vllm_raster_io.places import centres
from vllm_raster_io.tiling import Window

from ..factories import make_raster
from .scenes import open_scene, read_all
from .tiff import (
    ROWS_PER_STRIP,
    SAMPLE_FORMAT,
    STRIP_BYTES,
    STRIP_OFFSETS,
    one_tile,
    single_strip,
    sizes,
    tiff,
)

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

VALUES = np.random.default_rng(0).integers(1, 255, (3, 60, 60))
VRT = b'<VRTDataset rasterXSize="1" rasterYSize="1"><VRTRasterBand dataType="Byte" band="1">'
FORMATS = {
    "plain": {},
    "deflate": {"compress": "deflate"},
    "tiled": {"compress": "lzw", "tiled": True, "blockxsize": 16, "blockysize": 16},
    "zstd": {"compress": "zstd"},
    "jpeg in tiff": {"compress": "jpeg", "photometric": "ycbcr"},
    "COG": {"driver": "COG"},
    "PNG": {"driver": "PNG", "crs": None},
    "JPEG": {"driver": "JPEG", "crs": None},
    "WebP": {"driver": "WEBP", "crs": None},
    "JPEG 2000": {"driver": "JP2OpenJPEG", "reversible": "yes", "quality": 100},
    "JPEG 2000 in tiles": {"driver": "JP2OpenJPEG", "blockxsize": 32, "blockysize": 32},
}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"I",
        b"II",
        b"just text, whatever its name",
        b"\0" * 100,
        VRT,
        b"  " + VRT,
        b"<MRF_META><Raster><Size x='1' y='1'/></Raster></MRF_META>",
        b"<GDALTileIndexDataset/>",
        b"<WMTS_GDAL/>",
        b"/vsicurl/http://127.0.0.1/secret.tif",
        b"/vsimem/other.tif",
        b"/etc/passwd",
        b"GTIFF_DIR:1:/etc/passwd",
        b"http://127.0.0.1/",
        b"GIF89a\1\0\1\0",
        b"BM\0\0\0\0",
        b"RIFF\0\0\0\0WAVEfmt ",
        b"\x89HDF\r\n\x1a\n",
        b"CDF\1",
        b"PK\3\4",
        b"%PDF-1.4",
        b"SQLite format 3\0",
        b"P5\n1 1\n255\n\0",
    ],
)
def test_no_other_formats(content: bytes) -> None:
    message = refusal(content)
    assert message.startswith(
        "The data must be a GeoTIFF, PNG, JPEG, WebP, JPEG 2000 or NumPy (.npy) file, "
        "but begins with b"
    )
    assert len(message) < 190


@pytest.mark.parametrize(
    "magic", [b"II*\0", b"MM\0*", b"II+\0", b"MM\0+", b"\x89PNG", b"\xff\xd8\xff"]
)
@pytest.mark.parametrize(
    "rest", [b"", b"\0" * 4, b"\xff" * 100, VRT, b"/vsicurl/http://127.0.0.1/"]
)
def test_the_first_bytes_are_not_enough(magic: bytes, rest: bytes) -> None:
    assert "cannot be opened" in refusal(magic + rest)


@pytest.mark.parametrize("magic", [b"", b"II*\0", b"\x89PNG", b"\xff\xd8\xff"])
def test_a_reference_to_another_file(magic: bytes) -> None:
    with MemoryFile(make_raster(bands=1)) as other:
        reference = (
            magic
            + VRT
            + (
                f"<SimpleSource><SourceFilename>{other.name}</SourceFilename><SourceBand>1"
                "</SourceBand></SimpleSource></VRTRasterBand></VRTDataset>"
            ).encode()
        )
        if magic != b"II*\0":
            # GDAL would follow it, whatever stands before it.
            with MemoryFile(reference) as memory, memory.open() as dataset:
                assert dataset.driver == "VRT"
                assert dataset.read().any()
        refusal(reference)


@pytest.mark.parametrize("name", FORMATS)
def test_cut_off(name: str) -> None:
    content = make_raster(values=VALUES, dtype="uint8", **FORMATS[name])
    for length in range(0, len(content), len(content) // 25):
        with pytest.raises(RasterError):
            read_all(content[:length])


@pytest.mark.parametrize("name", ["deflate", "PNG"])
def test_checksums_are_heeded(name: str) -> None:
    content = bytearray(make_raster(values=VALUES, dtype="uint8", **FORMATS[name]))
    content[len(content) // 2] ^= 1
    assert "damaged" in refusal(bytes(content))


# rasterio cannot log what GDAL says of some of them.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_changed_at_random() -> None:
    """Whatever is damaged, either it can be read or it is refused."""
    points = [GroundControlPoint(r, c, 10 + c, 50 - r) for r in (0, 60) for c in (0, 60)]
    contents = [
        make_raster(values=VALUES, dtype="uint8", **options) for options in FORMATS.values()
    ]
    contents.append(make_raster(bands=1, crs="EPSG:4326", gcps=points))
    contents.append(
        make_raster(descriptions="abcd", tags={"some": "tag"}, nodata=7, mask=np.eye(32, 48))
    )
    chance = random.Random(1)
    refused = 0
    for _ in range(1_000):
        content = bytearray(chance.choice(contents))
        for _ in range(chance.choice([1, 1, 2, 4])):
            where = chance.randrange(min(500, len(content)))
            content[where if chance.random() < 0.5 else ~where] = chance.randrange(256)
        try:
            use(bytes(content))
        except RasterIOError:
            refused += 1
    assert 200 < refused < 900


def test_texts_in_another_encoding() -> None:
    content = make_raster(bands=1, descriptions=["naher ÖR"], tags={"A": "ÖR"})
    with suppress(RasterIOError):
        use(content.replace("Ö".encode(), b"\xff\xff"))


@pytest.mark.parametrize("bits", [32, 64, 128])
def test_complex_numbers(bits: int) -> None:
    integers = bits == 32
    content = tiff(
        {
            **sizes(4, 4, bits=bits),
            STRIP_OFFSETS: ("I", [0]),
            ROWS_PER_STRIP: ("I", [4]),
            STRIP_BYTES: ("I", [2 * bits]),
            SAMPLE_FORMAT: ("H", [5 if integers else 6]),
        },
        bytes(2 * bits),
    )
    message = refusal(content)
    assert "type complex" in message
    assert "must be real" in message


class TestLimits:
    @pytest.mark.parametrize(
        "content",
        [
            one_tile(10**6, 10**6, 512),
            one_tile(300_000, 300_000, 512),
            one_tile(1, 2**31 - 1, 256),
            one_tile(2**31 - 1, 2**31 - 1, 256),
        ],
    )
    def test_a_huge_header(self, content: bytes) -> None:
        with quick_and_small():
            message = refusal(content, LimitError)
        assert "pixels, and at most 900000000 are allowed" in message

    def test_more_blocks_than_a_table_may_have(self) -> None:
        with quick_and_small():
            message = refusal(one_tile(30_000, 30_000, 8), LimitError)
        assert "14062500 blocks, and at most 4194304 are allowed" in message

    def test_a_huge_png(self) -> None:
        content = bytearray(make_raster(values=VALUES, dtype="uint8", driver="PNG", crs=None))
        content[16:24] = struct.pack(">II", 10**6, 10**6)
        with quick_and_small():
            assert "pixels" in refusal(bytes(content), LimitError)

    def test_a_block_that_unfolds(self) -> None:
        content = one_tile(16, 16, 16_384, bits=64)
        with quick_and_small():
            message = refusal(content, LimitError)
        assert f"{16_384**2 * 8} block bytes" in message

    def test_a_block_holds_all_bands_of_a_pixel(self) -> None:
        refusal(one_tile(16, 16, 8_192, bands=9), LimitError)
        read_all(one_tile(16, 16, 1_024, bands=9))

    def test_one_strip_that_gdal_reads_row_by_row(self) -> None:
        tags = {
            **sizes(30_000, 30_000),
            STRIP_OFFSETS: ("I", [0]),
            STRIP_BYTES: ("I", [0]),
            ROWS_PER_STRIP: ("I", [30_000]),
        }
        with quick_and_small(), open_scene(tiff(tags)) as scene:
            pixels, _ = scene.read(Window(29_990, 29_990, 10, 10), [0])
        assert not pixels.any()

    def test_bands(self) -> None:
        read_all(make_raster(height=1, width=1, bands=1_024), [0])
        message = refusal(make_raster(height=1, width=1, bands=1_025), LimitError)
        assert "1025 bands, and at most 1024 are allowed" in message

    @pytest.mark.parametrize("bigtiff", [False, True])
    @pytest.mark.parametrize("endianness", ["LITTLE", "BIG"])
    def test_metadata_that_take_long(self, bigtiff: bool, endianness: str) -> None:
        options = {"bands": 1, "bigtiff": bigtiff, "endianness": endianness}
        read_all(make_raster(**options, tags={"long": "x" * 1_000_000}))
        many = make_raster(**options, tags={f"item {i}": "x" * 1_500 for i in range(800)})
        with quick_and_small():
            message = refusal(many, LimitError)
        assert "metadata bytes, and at most 1048576 are allowed" in message

    @pytest.mark.parametrize(
        ("kind", "before"),
        [
            (b"tEXt", b"k\0"),
            (b"zTXt", b"k\0\0"),
            (b"iTXt", b"k\0\0\0\0\0"),
            (b"iTXt", b"k\0\1\0\0\0"),
        ],
    )
    def test_texts_of_a_png(self, kind: bytes, before: bytes) -> None:
        content = make_raster(values=VALUES, dtype="uint8", driver="PNG", crs=None)
        folded = kind == b"zTXt" or 1 in before
        for size, ok in ((400_000, True), (1_100_000, False)):
            text = bytes([65]) * size
            data = before + (zlib.compress(text) if folded else text)
            check = struct.pack(">I", zlib.crc32(kind + data))
            whole = content[:33] + struct.pack(">I", len(data)) + kind + data + check + content[33:]
            if ok:
                read_all(whole)
                continue
            with quick_and_small():
                assert "metadata bytes" in refusal(whole, LimitError)

    @pytest.mark.parametrize("together", [False, True])
    def test_directories(self, together: bool) -> None:
        # A chain of equal ones, or one that leads back to itself.
        content = single_strip(np.uint8([[7]]))
        head, rest = content[:8], content[8:-1]
        length = len(rest)
        chain = b"".join(
            rest[:-4] + struct.pack("<I", 8 if together else 8 + (i + 1) * length)
            for i in range(5_000)
        )
        if together:
            np.testing.assert_array_equal(read_all(head + chain)[1], [[1]])
        else:
            refusal(head + chain, LimitError)

    def test_the_limit_itself_is_allowed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rasters, "LIMITS", Limits(pixels=12, bands=2))
        read_all(make_raster(height=3, width=4, bands=2))
        refusal(make_raster(height=13, width=1, bands=2), LimitError)
        refusal(make_raster(height=3, width=4, bands=3), LimitError)


def test_a_good_file_is_read_after_a_bad_one() -> None:
    values = np.uint8([[1, 2, 3]])
    refusal(b"II*\0" + b"\xff" * 50)
    np.testing.assert_array_equal(read_all(single_strip(values))[0], values[np.newaxis])


def refusal(content: bytes, kind: type[RasterIOError] = RasterError) -> str:
    with pytest.raises(RasterIOError) as caught:
        read_all(content)
    assert type(caught.value) is kind
    return str(caught.value)


def use(content: bytes) -> None:
    with open_scene(content) as scene:
        window = Window(0, 0, min(64, scene.height), min(64, scene.width))
        indices = range(min(4, scene.count))
        scene.dtype(indices)
        centres(scene.dataset, [(window.height / 2, window.width / 2)])
        scene.read(window, indices)


@contextmanager
def quick_and_small() -> Iterator[None]:
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    yield
    assert time.perf_counter() - started < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024
