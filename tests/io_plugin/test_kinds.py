"""Kinds of files that no other test has: rarer compressions and types, and offsets above 4 GiB."""

import io
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from PIL import Image
from rasterio.enums import ColorInterp
from rasterio.io import MemoryFile

from vllm_raster_io import access
from vllm_raster_io.access import Access
from vllm_raster_io.errors import LimitError, RasterError
from vllm_raster_io.jobs import Job
from vllm_raster_io.limits import Limits
from vllm_raster_io.requests import RasterRequest
from vllm_raster_io.settings import Settings

from ..factories import make_raster
from .requested import refused, seen
from .scenes import Array, make_contract, read_all

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

COUNTS = np.random.default_rng(1).integers(1, 4_000, (4, 40, 50)).astype(np.uint16)
FOUR = make_contract("image")
PHOTO = make_contract("image", bands=("RED", "GREEN", "BLUE"))
ONE = make_contract("image", bands=("PAN",))


def smooth(bands: int) -> Array:
    """What lossy compression keeps nearly as it is."""
    row, column = np.indices((64, 80))
    return np.stack([(40 * k + row + column) % 256 for k in range(bands)]).astype(np.uint8)


def gdal_reads(content: bytes) -> Array:
    with MemoryFile(content) as memory, memory.open() as dataset:
        return dataset.read()


class TestCompressions:
    @pytest.mark.parametrize("interleave", ["pixel", "band"])
    @pytest.mark.parametrize("tiled", [True, False])
    @pytest.mark.parametrize("compress", ["lerc_deflate", "lerc_zstd"])
    @pytest.mark.parametrize("dtype", ["uint16", "int16", "float32"])
    def test_lerc(self, compress: str, tiled: bool, interleave: str, dtype: str) -> None:
        values = COUNTS.astype(dtype) / (7 if dtype == "float32" else 1)
        options = {"tiled": tiled, "interleave": interleave, "compress": compress, "max_z_error": 0}
        if tiled:
            options |= {"blockxsize": 16, "blockysize": 16}
        content = make_raster(values=values.astype(dtype), dtype=dtype, **options)
        np.testing.assert_array_equal(seen(content, FOUR), values.astype(dtype))

    def test_lerc_with_loss_is_as_gdal_reads_it(self) -> None:
        content = make_raster(values=COUNTS, compress="lerc", max_z_error=50)
        pixels = seen(content, FOUR)
        np.testing.assert_array_equal(pixels, gdal_reads(content))
        assert 0 < np.abs(pixels.astype(int) - COUNTS).max() <= 50

    @pytest.mark.parametrize("dtype", ["uint32", "int32", "uint64", "int64"])
    @pytest.mark.parametrize("compress", ["deflate", "lzw", "zstd"])
    def test_predictor_of_wide_integers(self, dtype: str, compress: str) -> None:
        values = COUNTS.astype(dtype) * 100_003
        content = make_raster(values=values, dtype=dtype, compress=compress, predictor=2)
        np.testing.assert_array_equal(read_all(content)[0], values)

    @pytest.mark.parametrize("options", [{"dtype": "float64"}, {"dtype": "float32", "nbits": 16}])
    def test_predictor_of_other_floats(self, options: dict[str, Any]) -> None:
        # Half floats hold quarters below 512.
        values = np.minimum(COUNTS.astype(np.float32) / 4, 500).astype(options["dtype"])
        content = make_raster(values=values, compress="deflate", predictor=3, **options)
        np.testing.assert_array_equal(seen(content, FOUR), values)

    @pytest.mark.parametrize(
        ("bands", "interleave"),
        [*((bands, "pixel") for bands in (1, 2, 3, 4)), *((bands, "band") for bands in (2, 3, 5))],
    )
    @pytest.mark.parametrize("tiled", [True, False])
    def test_jpeg(self, bands: int, interleave: str, tiled: bool) -> None:
        """A band after the other is gray to its decoder, whatever the file's colours are."""
        options: dict[str, Any] = {"compress": "jpeg", "jpeg_quality": 95, "alpha": "no"}
        if tiled:
            options |= {"tiled": True, "blockxsize": 32, "blockysize": 32}
        values = smooth(bands)
        content = make_raster(values=values, dtype="uint8", interleave=interleave, **options)
        names = tuple(f"band {i}" for i in range(bands))
        pixels = seen(content, make_contract("image", bands=names, size=128))
        np.testing.assert_array_equal(pixels, gdal_reads(content))
        np.testing.assert_allclose(pixels.astype(int), values, atol=60)

    def test_webp(self) -> None:
        values = smooth(3)
        content = make_raster(values=values, dtype="uint8", compress="webp", webp_level=90)
        pixels = seen(content, PHOTO, window=[0, 0, 64, 64])
        np.testing.assert_array_equal(pixels, gdal_reads(content)[:, :64, :64])

    def test_webp_with_alpha(self) -> None:
        values = np.concatenate([smooth(3), np.full((1, 64, 80), 255, np.uint8)])
        values[3, 5, 7] = 0
        options = {"compress": "webp", "webp_lossless": True, "photometric": "rgb", "alpha": "yes"}
        pixels, valid = read_all(make_raster(values=values, dtype="uint8", **options))
        assert np.argwhere(~valid).tolist() == [[5, 7]]
        np.testing.assert_array_equal(pixels[:, valid], values[:3, valid])

    @pytest.mark.parametrize("compress", ["ccittrle", "ccittfax3", "ccittfax4"])
    def test_fax(self, compress: str) -> None:
        values = np.random.default_rng(0).integers(0, 2, (1, 40, 50)).astype(np.uint8)
        content = make_raster(values=values, dtype="uint8", nbits=1, compress=compress)
        np.testing.assert_array_equal(read_all(content)[0], gdal_reads(content))
        assert set(np.unique(read_all(content)[0])) == {0, 1}


class TestBlocks:
    @pytest.mark.parametrize("interleave", ["pixel", "band"])
    @pytest.mark.parametrize("tiled", [True, False])
    def test_lie_in_any_order(self, interleave: str, tiled: bool) -> None:
        """As those of a file that is interleaved by tiles, or was changed in place."""
        options: dict[str, Any] = {"interleave": interleave, "compress": "deflate"}
        options |= {"tiled": True} if tiled else {}
        options |= {"blockxsize": 16, "blockysize": 16} if tiled else {"blockysize": 7}
        content = make_raster(values=COUNTS, **options)
        moved = with_blocks_moved(content)
        assert moved != content
        np.testing.assert_array_equal(seen(moved, FOUR), COUNTS)

    @pytest.mark.parametrize("nodata", [None, 0, 9])
    def test_that_are_not_stored(self, nodata: float | None) -> None:
        with MemoryFile() as memory:
            profile: dict[str, Any] = {
                "driver": "GTiff", "count": 1, "height": 40, "width": 50, "dtype": "uint16",
                "tiled": True, "blockxsize": 16, "blockysize": 16, "sparse_ok": True,
                "nodata": nodata,
            }  # fmt: skip
            with memory.open(**profile) as dataset:
                dataset.write(COUNTS[0, :16, :16], 1, window=((0, 16), (0, 16)))
            content = bytes(memory.read())
        pixels, valid = read_all(content)
        np.testing.assert_array_equal(pixels[0, :16, :16], COUNTS[0, :16, :16])
        assert (pixels[0, 16:] == (nodata or 0)).all()
        assert valid[16:].all() == (nodata is None)
        assert valid[16:].any() == (nodata is None)

    def test_a_cog_of_jpeg_with_a_mask(self) -> None:
        mask = np.ones((64, 80), bool)
        mask[20:30, 40:] = False
        options = {"compress": "jpeg", "quality": 95, "blocksize": 128}
        content = make_raster(values=smooth(3), dtype="uint8", driver="COG", mask=mask, **options)
        with MemoryFile(content) as memory, memory.open() as dataset:
            assert dataset.photometric.name == "ycbcr"
        pixels, valid = read_all(content)
        np.testing.assert_array_equal(pixels, gdal_reads(content))
        np.testing.assert_array_equal(valid, mask)


def with_blocks_moved(content: bytes) -> bytes:
    """A little-endian TIFF whose strips or tiles lie in the opposite order at its end."""
    (head,) = struct.unpack_from("<I", content, 4)
    (count,) = struct.unpack_from("<H", content, head)
    tags = {}
    for i in range(count):
        tag, kind, number, at = struct.unpack_from("<HHII", content, head + 2 + 12 * i)
        tags[tag] = (f"<{number}{'I' if kind == 4 else 'H'}", at)
    offsets, lengths = (
        struct.unpack_from(*(form, content, at))
        for form, at in (tags[324 if 324 in tags else 273], tags[325 if 325 in tags else 279])
    )
    moved, places = bytearray(content), []
    for offset, length in reversed(list(zip(offsets, lengths, strict=True))):
        places.append(len(moved))
        moved += content[offset : offset + length]
    form, at = tags[324 if 324 in tags else 273]
    struct.pack_into(form, moved, at, *reversed(places))
    return bytes(moved)


class TestComplexNumbers:
    @pytest.mark.parametrize("dtype", ["complex_int16", "complex64", "complex128"])
    def test_are_refused_in_words(self, dtype: str) -> None:
        with MemoryFile() as memory:
            profile = {"driver": "GTiff", "count": 4, "height": 8, "width": 9, "dtype": dtype}
            with memory.open(**profile) as dataset:
                assert set(dataset.dtypes) == {dtype}
            content = bytes(memory.read())
        assert "must be real" in refused(content, FOUR)


class TestJpeg2000:
    @pytest.mark.parametrize("codec", ["JP2", "J2K"])
    @pytest.mark.parametrize(
        ("dtype", "bits"), [("uint8", 8), ("uint16", 16), ("int16", 16), ("uint16", 12)]
    )
    def test_types(self, codec: str, dtype: str, bits: int) -> None:
        limits = np.iinfo(dtype)
        most = min(limits.max, 2**bits - 1)
        values = np.random.default_rng(2).integers(limits.min, most, (2, 33, 47), endpoint=True)
        options: dict[str, Any] = {"reversible": "yes", "quality": 100, "codec": codec}
        if bits == 12:
            options["nbits"] = 12
        content = make_raster(values=values, dtype=dtype, driver="JP2OpenJPEG", crs=None, **options)
        pixels, valid = read_all(content)
        assert pixels.dtype == dtype
        np.testing.assert_array_equal(pixels, values)
        assert valid.all()

    def test_bands_that_are_no_colours(self) -> None:
        options = {"reversible": "yes", "quality": 100, "ycc": "no", "ycbcr420": "no"}
        content = make_raster(values=COUNTS, driver="JP2OpenJPEG", **options)
        np.testing.assert_array_equal(seen(content, FOUR), COUNTS)

    def test_alpha_is_a_mask(self) -> None:
        values = np.concatenate([smooth(3), np.full((1, 64, 80), 255, np.uint8)])
        values[3, 9, 4] = 0
        image = Image.fromarray(np.moveaxis(values, 0, -1), "RGBA")
        buffer = io.BytesIO()
        image.save(buffer, "JPEG2000", irreversible=False)
        pixels, valid = read_all(buffer.getvalue())
        assert np.argwhere(~valid).tolist() == [[9, 4]]
        np.testing.assert_array_equal(pixels[:, valid], values[:3, valid])


class TestPng:
    @pytest.mark.parametrize(("mode", "bits"), [(0, 8), (0, 16), (2, 8), (2, 16), (6, 8), (4, 16)])
    def test_interlaced(self, mode: int, bits: int) -> None:
        bands = {0: 1, 2: 3, 4: 2, 6: 4}[mode]
        chance = np.random.default_rng([mode, bits])
        values = chance.integers(1, 2**bits, (bands, 21, 30)).astype(f">u{bits // 8}")
        pixels, valid = read_all(interlaced_png(values, mode))
        colours = 1 if bands <= 2 else 3
        np.testing.assert_array_equal(pixels, values[:colours])
        assert valid.all()

    @pytest.mark.parametrize("bits", [8, 16])
    def test_a_transparent_gray(self, bits: int) -> None:
        dtype = f"uint{bits}"
        values = np.arange(600).reshape(1, 20, 30) % 200 + (2**bits - 256)
        content = make_raster(
            values=values, dtype=dtype, driver="PNG", crs=None, nodata=2**bits - 200
        )
        pixels, valid = read_all(content)
        np.testing.assert_array_equal(pixels, values)
        np.testing.assert_array_equal(valid, values[0] != 2**bits - 200)


class TestColoursOfATiff:
    @pytest.mark.parametrize("bands", [4, 5, 7])
    def test_more_than_three_of_8_bits_are_all_there(self, bands: int) -> None:
        names = tuple(f"b {i}" for i in range(bands))
        values = np.random.default_rng(bands).integers(1, 256, (bands, 20, 30)).astype(np.uint8)
        content = make_raster(values=values, dtype="uint8", photometric="minisblack", alpha="no")
        np.testing.assert_array_equal(seen(content, make_contract("image", bands=names)), values)

    def test_alpha_that_stands_first(self) -> None:
        values = np.full((4, 6, 7), 9, np.uint8)
        values[0] = 255
        values[0, 2, 3] = 0
        with MemoryFile() as memory:
            profile = {"driver": "GTiff", "count": 4, "height": 6, "width": 7, "dtype": "uint8"}
            with memory.open(**profile) as dataset:
                dataset.colorinterp = [
                    ColorInterp.alpha, ColorInterp.gray, ColorInterp.undefined,
                    ColorInterp.undefined,
                ]  # fmt: skip
                dataset.write(values)
            content = bytes(memory.read())
        pixels, valid = read_all(content)
        assert pixels.shape == (3, 6, 7)
        assert np.argwhere(~valid).tolist() == [[2, 3]]


GIB = 2**30


@pytest.fixture(params=[3 * GIB, 5 * GIB], ids=["3 GiB", "5 GiB"])
def far(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, Array]]:
    """A BigTIFF whose only strip lies far behind its head, in a file that has a hole before it."""
    values = np.random.default_rng(3).integers(1, 4_000, (40, 50)).astype("<u2")
    place = request.param + 8
    path = tmp_path / "far.tif"
    with path.open("wb") as file:
        file.write(big_tiff_head(values, place))
        file.seek(place)
        file.write(values.tobytes())
    yield path, values
    path.unlink()


class TestBigTiff:
    def job(self, path: Path) -> Job:
        allowed = Access(Settings.model_validate({"read_roots": [str(path.parent)]}))
        request = RasterRequest(data=str(path), data_format="path")
        return Job(request, ONE, allowed)

    def test_pixels_far_behind_the_head(
        self, far: tuple[Path, Array], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path, values = far
        monkeypatch.setattr(access, "LIMITS", Limits(bytes=8 * GIB))
        with rasterio.open(path) as dataset:
            np.testing.assert_array_equal(dataset.read(1), values)
        with self.job(path) as job:
            (item,) = job.items()
            np.testing.assert_array_equal(np.asarray(item["pixel_values"])[0], values)

    def test_above_the_limit_of_bytes(self, far: tuple[Path, Array]) -> None:
        path, _ = far
        size = path.stat().st_size
        if size <= 4 * GIB:
            with self.job(path) as job:
                assert np.asarray(next(iter(job.items()))["pixel_values"]).shape == (1, 40, 50)
        else:
            with pytest.raises(LimitError, match=f"{size} bytes, and at most {4 * GIB}"):
                self.job(path)

    def test_offsets_behind_the_end(self, tmp_path: Path) -> None:
        path = tmp_path / "cut.tif"
        path.write_bytes(big_tiff_head(np.ones((40, 50), np.uint16), 5 * GIB) + bytes(99))
        with pytest.raises(RasterError), self.job(path) as job:
            np.asarray(next(iter(job.items()))["pixel_values"])


def big_tiff_head(pixels: Array, place: int) -> bytes:
    """The head of a BigTIFF of one band, uncompressed, whose strip begins at `place`."""
    height, width = pixels.shape
    tags = {
        256: width, 257: height, 258: 16, 259: 1, 262: 1, 273: place, 277: 1, 278: height,
        279: pixels.nbytes, 339: 1,
    }  # fmt: skip
    entries = b"".join(struct.pack("<HHQQ", tag, 16, 1, value) for tag, value in tags.items())
    # Offsets and lengths may be of 64 bits; the others must be of 16 or 32.
    for tag, value in tags.items():
        if tag not in (273, 279):
            wide = struct.pack("<HHQQ", tag, 16, 1, value)
            entries = entries.replace(wide, struct.pack("<HHQI4x", tag, 4, 1, value))
    return struct.pack("<2sHHHQQ", b"II", 43, 8, 0, 16, len(tags)) + entries + bytes(8)


_PASSES = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2),
           (1, 0, 2, 1))  # fmt: skip
"""First row and column, and their steps, of the seven of the PNG specification, "Adam7"."""


def interlaced_png(values: Array, mode: int) -> bytes:
    """A PNG of big-endian values (bands, height, width) in seven passes."""
    _, height, width = values.shape
    rows = b""
    for top, left, down, across in _PASSES:
        part = np.moveaxis(values[:, top::down, left::across], 0, -1)
        if part.size:
            rows += b"".join(b"\0" + row.tobytes() for row in part)
    header = struct.pack(">II5B", width, height, 8 * values.itemsize, mode, 0, 0, 1)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
