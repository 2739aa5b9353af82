"""All formats: where pixels lie, what is nodata, and what a file must not make the server do."""

import base64
import socket
import struct
import warnings
import zlib
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import rasterio
from hypothesis import given, settings
from hypothesis import strategies as st
from rasterio.control import GroundControlPoint
from rasterio.io import MemoryFile
from rasterio.rpc import RPC
from rasterio.transform import Affine

from vllm_raster_io import datasets
from vllm_raster_io.errors import LimitError, RasterError
from vllm_raster_io.jobs import Job
from vllm_raster_io.limits import Limits
from vllm_raster_io.maps import opened
from vllm_raster_io.requests import RasterRequest
from vllm_raster_io.uploads import Upload

from ..factories import make_raster
from .photos import RGB, picture, saved
from .requested import answered, refused, seen
from .scenes import make_contract, open_scene, read_all
from .test_rasters_refusals import VRT, quick_and_small, use

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

PHOTO = make_contract("image", bands=RGB, size=128)
ONE = make_contract("image", bands=("PAN",), size=128)
INTEGERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
FLOATS = ["float32", "float64"]


class TestAnyTiff:
    @settings(max_examples=150, deadline=None)
    @given(data=st.data())
    def test_values_and_validity(self, data: st.DataObject) -> None:
        """Of any type, layout, nodata and mask, by hand."""
        dtype = data.draw(st.sampled_from(INTEGERS + FLOATS))
        bands, height, width = (data.draw(st.integers(1, most)) for most in (4, 40, 40))
        if dtype == "uint8" and bands in (2, 4):
            bands -= 1  # for its last band would be alpha
        chance = np.random.default_rng(data.draw(st.integers(0, 99)))
        limits = np.iinfo(dtype) if dtype in INTEGERS else np.finfo("float32")
        some = np.array([limits.min, 0, 1, 7, 100, limits.max], dtype)
        values = some[chance.integers(0, len(some), (bands, height, width))]
        valid = np.ones((height, width), bool)
        options: dict[str, Any] = {}
        if data.draw(st.booleans()):
            nodata = data.draw(st.sampled_from(some.tolist()))
            options["nodata"] = nodata
            valid &= (values != np.array(nodata, dtype)).all(axis=0)
        if data.draw(st.booleans()):
            options["mask"] = chance.random((height, width)) < 0.7
            valid &= options["mask"]
        if dtype in FLOATS and data.draw(st.booleans()):
            values[0, 0, 0], values[-1, -1, -1] = np.nan, -np.inf
            valid[0, 0] = valid[-1, -1] = False
        options["interleave"] = data.draw(st.sampled_from(["pixel", "band"]))
        options["compress"] = data.draw(st.sampled_from(["none", "deflate", "lzw", "zstd"]))
        if data.draw(st.booleans()):
            options |= {"tiled": True, "blockxsize": 16, "blockysize": 32}
        options["bigtiff"] = data.draw(st.sampled_from(["yes", "no"]))
        options["endianness"] = data.draw(st.sampled_from(["little", "big"]))
        pixels, found = read_all(make_raster(values=values, dtype=dtype, **options))
        assert pixels.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(pixels, values)
        np.testing.assert_array_equal(found, valid)

    @settings(max_examples=60, deadline=None)
    @given(data=st.data())
    def test_alpha(self, data: st.DataObject) -> None:
        """Whatever is not 0 can be seen."""
        dtype = data.draw(st.sampled_from(["uint8", "uint16", "int16", "uint32", "float32"]))
        colours = data.draw(st.sampled_from([1, 3]))
        chance = np.random.default_rng(data.draw(st.integers(0, 99)))
        values = chance.integers(0, 3, (colours + 1, 9, 11)).astype(dtype)
        options = {
            "photometric": "RGB" if colours == 3 else "minisblack",
            "alpha": data.draw(st.sampled_from(["YES", "PREMULTIPLIED"])),
            "interleave": data.draw(st.sampled_from(["pixel", "band"])),
        }
        pixels, valid = read_all(make_raster(values=values, dtype=dtype, **options))
        np.testing.assert_array_equal(pixels, values[:colours])
        np.testing.assert_array_equal(valid, values[colours] > 0)

    def test_overviews_are_ignored(self) -> None:
        values = np.random.default_rng(0).integers(1, 999, (1, 1200, 700))
        content = make_raster(values=values, driver="COG", blocksize=128)
        with MemoryFile(content) as memory, memory.open() as dataset:
            assert dataset.overviews(1)
        np.testing.assert_array_equal(read_all(content)[0], values)

    def test_very_dark_counts_are_as_they_are(self) -> None:
        values = np.random.default_rng(0).integers(0, 2, (4, 20, 30))
        pixels = seen(make_raster(values=values, dtype="uint16"), make_contract())
        assert pixels.dtype == np.uint16
        np.testing.assert_array_equal(pixels, values)

    @pytest.mark.parametrize("driver", ["GTiff", "JP2OpenJPEG"])
    def test_georeferenced_jpeg_2000_is_as_a_tiff(self, driver: str) -> None:
        options = {"reversible": "yes", "quality": 100, "codec": "JP2"} if driver != "GTiff" else {}
        values = np.random.default_rng(0).integers(0, 9_999, (2, 40, 50))
        content = make_raster(values=values, driver=driver, **options)
        contract = make_contract("image", bands=("B04", "B08"), channels=2, size=128)
        np.testing.assert_array_equal(seen(content, contract), values)
        with placed(content, contract) as dataset:
            assert dataset.crs.to_epsg() == 32632
            assert dataset.transform == Affine(10, 0, 600_000, 0, -10, 5_300_000)


class TestPlace:
    """Of the map, by hand."""

    contract = make_contract("image", bands=("PAN",), channels=1, upscale=2)

    def test_pixel_is_point(self) -> None:
        # The first pixel's middle is at 600,000 east: its corner is half of 10 m further west.
        corner = Affine(10, 0, 599_995, 0, -10, 5_300_005)
        content = make_raster(bands=1, tags={"AREA_OR_POINT": "Point"}, transform=corner)
        tie = struct.pack("<6d", 0, 0, 0, 600_000, 5_300_000, 0)
        assert tie in content  # as the file itself has it
        with open_scene(content) as scene:
            assert scene.dataset.transform == corner
        with placed(content, self.contract) as dataset:
            assert dataset.transform == Affine(5, 0, 599_995, 0, -5, 5_300_005)
            assert dataset.tags()["AREA_OR_POINT"] == "Point"
            assert dataset.xy(0, 0) == (599_997.5, 5_300_002.5)

    def test_rotated(self) -> None:
        place = Affine(6, 8, 1_000, 8, -6, 2_000)
        with placed(make_raster(bands=1, transform=place), self.contract) as dataset:
            assert dataset.transform == Affine(3, 4, 1_000, 4, -3, 2_000)
            assert dataset.transform @ (96, 64) == place @ (48, 32)

    def test_control_points(self) -> None:
        points = [GroundControlPoint(r, c, 10 + c, 50 - r) for r in (0, 32) for c in (0, 48)]
        content = make_raster(bands=1, crs="EPSG:4326", gcps=points)
        with placed(content, self.contract) as dataset:
            found, crs = dataset.gcps
            assert crs.to_epsg() == 4326
            assert [(one.row, one.col, one.x, one.y) for one in found] == [
                (2 * one.row, 2 * one.col, one.x, one.y) for one in points
            ]

    def test_rational_polynomials(self) -> None:
        ones = [1.0] + [0.0] * 19
        rpcs = RPC(
            err_bias=1, err_rand=1, height_off=5, height_scale=500, lat_off=47, lat_scale=1,
            line_den_coeff=ones, line_num_coeff=ones, line_off=10, line_scale=100, long_off=8,
            long_scale=1, samp_den_coeff=ones, samp_num_coeff=ones, samp_off=20, samp_scale=200,
        )  # fmt: skip
        content = make_raster(bands=1, crs=None, rpcs=rpcs)
        with placed(content, self.contract) as dataset:
            assert dataset.rpcs.line_off == 20.5
            assert dataset.rpcs.samp_off == 40.5
            assert dataset.rpcs.line_scale == 200
            assert dataset.crs is None

    @pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "JPEG2000", "TIFF"])
    def test_none_is_invented(self, form: str) -> None:
        with placed(saved(picture(), form), PHOTO) as dataset:
            assert dataset.crs is None
            assert dataset.transform == Affine.identity()
            assert dataset.gcps == ([], None)
            assert dataset.rpcs is None


class TestScaling:
    def test_is_told_and_not_applied(self) -> None:
        values = np.random.default_rng(0).integers(0, 9_999, (1, 20, 30))
        content = make_raster(values=values, scaling=(0.0001, -0.1))
        np.testing.assert_array_equal(seen(content, ONE), values)
        (note,) = answered(content, ONE).effective.notes
        assert note == (
            "The file declares scale 0.0001 and offset -0.1, which was not applied: what stored "
            "values mean, the checkpoint says, or `scale` and `offset` in the request"
        )

    def test_none_needs_no_note(self) -> None:
        assert answered(make_raster(bands=1), ONE).effective.notes == []


class TestNothingElseIsRead:
    def test_overviews_elsewhere(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setblocking(False)
            url = f"/vsicurl/http://127.0.0.1:{server.getsockname()[1]}/secret.tif"
            for domain in ("OVERVIEWS", "overviews"):
                content = with_tags(domain, OVERVIEW_FILE=url)
                assert b"OVERVIEW_FILE" in content
                message = refused(content, ONE)
                assert (
                    "overviews are in another file, and none but what was sent is read" in message
                )
            with pytest.raises(BlockingIOError):
                server.accept()

    @pytest.mark.parametrize("domain", ["GEOLOCATION", "xml:VRT", "SUBDATASETS", "RPC", "xml:XMP"])
    def test_metadata_that_name_other_files(self, domain: str) -> None:
        content = with_tags(domain, X_DATASET="/etc/passwd", SUBDATASET_1_NAME="/etc/passwd")
        pixels, _ = read_all(content)
        assert (pixels == 1).all()

    @pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "JPEG2000", "TIFF"])
    def test_a_reference_behind_a_picture(self, form: str) -> None:
        content = saved(picture(), form)
        expected, _ = read_all(content)
        pixels, _ = read_all(content + VRT)
        np.testing.assert_array_equal(pixels, expected)

    @pytest.mark.parametrize(
        "magic", [b"RIFF\0\0\0\0WEBP", b"\0\0\0\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51"]
    )
    @pytest.mark.parametrize(
        "rest", [b"", bytes(4), b"\xff" * 100, VRT, b"/vsicurl/http://127.0.0.1/"]
    )
    def test_the_first_bytes_are_not_enough(self, magic: bytes, rest: bytes) -> None:
        assert "cannot be opened" in refused(magic + rest, PHOTO)

    @pytest.mark.parametrize("form", ["WebP", "JPEG 2000"])
    def test_a_driver_that_is_missing(self, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
        drivers = rasterio.Env.drivers

        def without(self: rasterio.Env) -> dict[str, str]:
            return {k: v for k, v in drivers(self).items() if k not in ("WEBP", "JP2OpenJPEG")}

        monkeypatch.setattr(datasets.rasterio.Env, "drivers", without)
        message = refused(saved(picture(), form.replace(" ", "").upper()), PHOTO)
        assert f"This server does not read {form}: its GDAL was built without" in message


class TestLimits:
    @pytest.mark.parametrize("interlaced", [0, 1])
    def test_a_png_that_must_be_held_as_a_whole(self, interlaced: int) -> None:
        header = struct.pack(">II5B", 30_000, 29_000, 8, 6, 0, 0, interlaced)
        chunk = (
            struct.pack(">I", 13)
            + b"IHDR"
            + header
            + struct.pack(">I", zlib.crc32(b"IHDR" + header))
        )
        content = b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I4s", 5, b"IDAT")
        with quick_and_small():
            if interlaced:
                message = refused(content, PHOTO, LimitError)
                assert f"{30_000 * 29_000 * 4} block bytes, and at most" in message
            else:
                use_or_refuse(content)

    def test_passes_of_a_jpeg(self) -> None:
        content = saved(picture(), "JPEG", progressive=True)
        scan = content.rindex(b"\xff\xda")
        many = content[:scan] + content[scan:-2] * 100 + content[-2:]
        with quick_and_small():
            assert "scans, and at most 100 are allowed" in refused(many, PHOTO, LimitError)

    def test_a_jpeg_that_must_be_held_as_a_whole(self) -> None:
        for progressive in (False, True):
            content = bytearray(saved(picture(), "JPEG", progressive=progressive))
            frame = content.index(b"\xff\xc2" if progressive else b"\xff\xc0")
            content[frame + 5 : frame + 9] = struct.pack(">HH", 20_000, 30_000)
            with quick_and_small():
                if progressive:
                    message = refused(bytes(content), PHOTO, LimitError)
                    assert f"{20_000 * 30_000 * 6} block bytes" in message
                else:
                    use_or_refuse(bytes(content))

    def test_segments_of_a_jpeg(self) -> None:
        content = saved(picture(), "JPEG")
        many = content[:2] + b"\xff\xfe\0\3!" * 5_000 + content[2:]
        with quick_and_small():
            assert "directories, and at most 4096" in refused(many, PHOTO, LimitError)

    def test_a_webp_is_decoded_as_a_whole(self) -> None:
        for bits in (8_192, 16_384):
            size = struct.pack("<I", (bits - 1) | (bits - 1) << 14)
            data = b"VP8L" + struct.pack("<I", 10) + b"\x2f" + size + bytes(5)
            content = b"RIFF" + struct.pack("<I", len(data) + 4) + b"WEBP" + data
            with quick_and_small():
                if bits > 8_192:
                    message = refused(content, PHOTO, LimitError)
                    assert f"{bits * bits * 8} block bytes" in message
                else:
                    use_or_refuse(content)

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"size": (10**6, 10**6), "tile": (10**6, 10**6)}, "pixels"),
            ({"size": (30_000, 30_000), "tile": (64, 64)}, "tiles"),
            ({"components": 16_384}, "bands"),
            ({"size": (16_384, 16_384), "tile": (16_384, 16_384), "block": 0}, "code blocks"),
            ({"size": (30_000, 30_000), "tile": (30_000, 30_000), "block": 2}, "code blocks"),
        ],
    )
    @pytest.mark.parametrize("bare", [False, True])
    def test_a_jpeg_2000_that_asks_for_much(
        self, change: dict[str, Any], told: str, bare: bool
    ) -> None:
        content = changed(saved(picture(64, 64, 1), "JPEG2000", no_jp2=bare), **change)
        with quick_and_small():
            assert f"{told}, and at most" in refused(content, ONE, LimitError)

    @pytest.mark.parametrize("length", [0, 1, 7, 100, 2**32 - 1])
    def test_boxes_of_a_jpeg_2000_without_an_end(self, length: int) -> None:
        content = bytearray(saved(picture(), "JPEG2000"))
        box = content.index(b"ihdr") - 4
        content[box : box + 4] = struct.pack(">I", length)
        with quick_and_small():
            assert "cut off or damaged" in refused(bytes(content), PHOTO)

    def test_tiles_of_a_jpeg_2000_that_are_not_there(self) -> None:
        content = changed(saved(picture(64, 64, 1), "JPEG2000"), size=(640, 640), tile=(64, 64))
        assert "cut off or damaged (1 of 100 tiles)" in refused(content, ONE)

    def test_blocks_of_a_tiff_within_the_limits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        content = make_raster(height=64, width=64, tiled=True, blockxsize=16, blockysize=16,
                              interleave="band")  # fmt: skip
        monkeypatch.setattr("vllm_raster_io.directories.LIMITS", Limits(blocks=64))
        read_all(content)
        monkeypatch.setattr("vllm_raster_io.directories.LIMITS", Limits(blocks=63))
        assert "64 blocks, and at most 63" in refused(content, make_contract(), LimitError)


class TestAFileABand:
    contract = make_contract("image")
    values = np.random.default_rng(7).integers(1, 4_000, (4, 20, 30)).astype(np.uint16)

    def files(self, **options: Any) -> list[bytes]:
        return [make_raster(values=one, **options) for one in self.values]

    def test_have_the_pixels_of_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("vllm_raster_io.rasters.LIMITS", Limits(pixels=600))
        assert seen(self.files(), self.contract).shape == (4, 20, 30)
        monkeypatch.setattr("vllm_raster_io.rasters.LIMITS", Limits(pixels=599))
        assert "600 pixels" in refused(self.files(), self.contract, LimitError)

    def test_in_order(self) -> None:
        np.testing.assert_array_equal(seen(self.files(), self.contract), self.values)
        effective = answered(self.files(), self.contract).effective
        assert effective.bands_by == "order"
        assert effective.indices == [0, 1, 2, 3]

    @pytest.mark.parametrize("tag", [None, "BAND_NAME", "long_name"])
    def test_by_name(self, tag: str | None) -> None:
        names = ["NIR", "GREEN", "RED", "BLUE"]
        contents = []
        for name, one in zip(names, self.values, strict=True):
            told: dict[str, Any] = (
                {"descriptions": [name]} if tag is None else {"tags": {tag: name}}
            )
            contents.append(make_raster(values=one, **told))
        np.testing.assert_array_equal(seen(contents, self.contract), self.values[[3, 1, 2, 0]])
        effective = answered(contents, self.contract).effective
        assert effective.bands_by == "names"
        assert effective.indices == [3, 1, 2, 0]

    def test_indices_count_the_files(self) -> None:
        found = seen(self.files(), self.contract, indices=[1, 0, 3, 3])
        np.testing.assert_array_equal(found, self.values[[1, 0, 3, 3]])

    def test_of_any_format(self) -> None:
        values = self.values % 256
        lossless = {"driver": "JP2OpenJPEG", "reversible": "yes", "quality": 100}
        forms = [{"driver": "PNG"}, lossless, {}, {"compress": "lzw"}]
        contents = [
            make_raster(values=one, dtype="uint8", crs=None, **form)
            for one, form in zip(values, forms, strict=True)
        ]
        np.testing.assert_array_equal(seen(contents, self.contract), values)

    def test_of_several_dates(self) -> None:
        contract = make_contract("image", bands=("RED", "NIR"), frames=2)
        found = seen(self.files(), contract)
        np.testing.assert_array_equal(found, self.values.reshape(2, 2, 20, 30).swapaxes(0, 1))

    def test_dates_are_told_by_each(self) -> None:
        contract = make_contract("image", bands=("RED", "NIR"), frames=2, coordinates=("time",))
        days = ["2023-03-01", "2023-03-01", "2023-06-15", "2023-06-15"]
        contents = [
            make_raster(values=one, tags={"datetime": day})
            for one, day in zip(self.values, days, strict=True)
        ]
        effective = answered(contents, contract).effective
        assert effective.dates == ["2023-03-01", "2023-06-15"]

    def test_a_pixel_is_invalid_if_it_is_in_any(self) -> None:
        contents = self.files(nodata=0)
        values = self.values.copy()
        values[1, 3, 4] = values[3, 5, 6] = 0
        contents = [make_raster(values=one, nodata=0) for one in values]
        assert answered(contents, self.contract).invalid_pixels == 2

    def test_alpha_of_one_masks(self) -> None:
        values = (self.values % 250).astype(np.uint8)
        alpha = np.full((20, 30), 255, np.uint8)
        alpha[2, 2] = 0
        png = {"dtype": "uint8", "driver": "PNG", "crs": None}
        contents = [make_raster(values=one, **png) for one in values]
        masked = np.stack([values[2], alpha])
        contents[2] = make_raster(values=masked, **png)
        answer = answered(contents, self.contract)
        assert answer.invalid_pixels == 1
        np.testing.assert_array_equal(seen(contents, self.contract), values)

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"bands": 2}, "File 3 of 4: It has 2 bands, but of so many files each must hold one"),
            ({"height": 31}, "The files of the bands must be alike, but number 3 has another size"),
            ({"dtype": "uint8"}, "another type (uint8, not uint16)"),
            ({"crs": "EPSG:32633"}, "another reference system"),
        ],
    )
    def test_that_differ(self, change: dict[str, Any], told: str) -> None:
        contents = self.files()
        contents[2] = make_raster(**{"bands": 1, "height": 20, "width": 30, **change})
        assert told in refused(contents, self.contract)

    def test_names_that_do_not_fit_are_not_overlooked(self) -> None:
        contents = [
            make_raster(values=one, descriptions=[name])
            for one, name in zip(self.values, ["NIR", "RED", "SWIR", "BLUE"], strict=True)
        ]
        message = refused(contents, self.contract)
        assert "Name the file's bands as the checkpoint does, or give `" in message

    def test_nothing_stays_open(self) -> None:
        for contents in (self.files(), [*self.files()[:3], b"text"]):
            sent = [Upload.of(one) for one in contents]
            with suppress(RasterError):
                Job(RasterRequest(data=sent), self.contract).close()
            assert not any(one.memory.exists() for one in sent)

    def test_limits_hold_for_the_sum(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("vllm_raster_io.rasters.LIMITS", Limits(bands=3))
        message = refused(self.files(), self.contract, LimitError)
        assert message.startswith("File 4 of 4: The request has 4 bands")


def placed(content: bytes, contract: Any) -> Any:
    """The map, open."""
    return opened(base64.b64decode(answered(content, contract).data))


def with_tags(domain: str, **tags: str) -> bytes:
    with MemoryFile() as memory:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with memory.open(driver="GTiff", width=8, height=8, count=1, dtype="uint8") as dataset:
                dataset.write(np.ones((1, 8, 8), np.uint8))
                dataset.update_tags(ns=domain, **tags)
        return bytes(memory.read())


def changed(
    content: bytes,
    *,
    size: tuple[int, int] | None = None,
    tile: tuple[int, int] | None = None,
    components: int | None = None,
    block: int | None = None,
) -> bytes:
    """A JPEG 2000 whose head says something else."""
    raw = bytearray(content)
    head = content.index(b"\xff\x51") + 4
    coding = content.index(b"\xff\x52") + 4
    if size:
        struct.pack_into(">II", raw, head + 2, *size)
    if tile:
        struct.pack_into(">II", raw, head + 18, *tile)
    if components:
        struct.pack_into(">H", raw, head + 34, components)
    if block is not None:
        raw[coding + 6] = raw[coding + 7] = block
    return bytes(raw)


def use_or_refuse(content: bytes) -> None:
    with suppress(RasterError):
        use(content)
