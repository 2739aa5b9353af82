"""Pictures as cameras and programs write them, compared with what Pillow reads."""

from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps
from rasterio.control import GroundControlPoint
from rasterio.io import MemoryFile

from vllm_raster_io.errors import RasterError
from vllm_raster_io.rasters import Scene
from vllm_raster_io.tiling import Window
from vllm_raster_io.uploads import Upload

from ..factories import make_raster
from .photos import ORIENTATION, RGB, exif, picture, pillow_reads, saved, with_alpha
from .requested import answered, encoded, refused, seen
from .scenes import Array, make_contract, open_scene, read_all

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

PHOTO = make_contract("image", bands=RGB, size=128)
GRAY = make_contract("image", bands=("PAN",), size=128)
EVERY_KIND = [
    ("PNG", {}),
    ("JPEG", {"quality": 95}),
    ("JPEG", {"quality": 95, "progressive": True}),
    ("JPEG", {"quality": 95, "subsampling": 0, "optimize": True}),
    ("JPEG", {"quality": 95, "restart_marker_rows": 1}),
    ("WEBP", {"quality": 95}),
    ("WEBP", {"lossless": True}),
    ("JPEG2000", {}),
    ("JPEG2000", {"irreversible": True, "quality_mode": "rates", "quality_layers": [4, 2]}),
    ("JPEG2000", {"no_jp2": True}),
    ("JPEG2000", {"tile_size": (16, 16)}),
    ("TIFF", {}),
    ("TIFF", {"compression": "tiff_lzw"}),
    ("TIFF", {"compression": "jpeg"}),
]


@pytest.mark.parametrize(("form", "options"), EVERY_KIND)
def test_colours(form: str, options: dict[str, Any]) -> None:
    content = saved(picture(70, 90), form, **options)
    pixels, valid = read_all(content)
    # Two decoders of what is stored with loss may round in two ways.
    lossy = form in ("JPEG", "WEBP") or "jpeg" in options.values() or options.get("irreversible")
    np.testing.assert_allclose(
        pixels.astype(int), pillow_reads(content), atol=9 if lossy else 0, rtol=0
    )
    np.testing.assert_allclose(pixels.astype(int), pillow_reads(saved(picture(70, 90), "PNG")),
                               atol=16 if lossy else 0, rtol=0)  # fmt: skip
    assert valid.all()


@pytest.mark.parametrize("order", [RGB, RGB[::-1], ("G", "B", "R"), ("Red", "green", "blue")])
@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP"])
def test_colours_are_names(form: str, order: tuple[str, ...]) -> None:
    content = saved(picture(), form)
    stored, _ = read_all(content)
    contract = make_contract("image", bands=order)
    wanted = ["rgb".index(one[0].lower()) for one in order]
    np.testing.assert_array_equal(seen(content, contract), stored[wanted])
    effective = answered(content, contract).effective
    assert effective.bands_by == "names"
    assert effective.indices == wanted


def test_other_bands_are_not_taken_for_colours() -> None:
    content = saved(picture(), "PNG")
    contract = make_contract("image", bands=("NIR", "RED", "GREEN"))
    assert "the file has 3 (RED, GREEN, blue)" in refused(content, contract)
    pixels = seen(content, contract, indices=[0, 1, 2])
    np.testing.assert_array_equal(pixels, pillow_reads(content))


class TestGray:
    @pytest.mark.parametrize(("form", "options"), EVERY_KIND)
    def test_is_one_band(self, form: str, options: dict[str, Any]) -> None:
        if form == "WEBP":
            pytest.skip("WebP has no gray pictures")
        content = saved(picture(bands=1), form, **options)
        lossy = form == "JPEG" or "jpeg" in options.values() or options.get("irreversible")
        pixels = seen(content, GRAY)
        np.testing.assert_allclose(pixels.astype(int), pillow_reads(content, "L"),
                                   atol=2 if lossy else 0, rtol=0)  # fmt: skip

    @pytest.mark.parametrize("form", ["PNG", "JPEG", "JPEG2000", "TIFF"])
    def test_becomes_three_where_they_are_wanted(self, form: str) -> None:
        content = saved(picture(bands=1), form)
        pixels = seen(content, PHOTO)
        assert pixels.shape[0] == 3
        np.testing.assert_allclose(pixels.astype(int), pillow_reads(content), atol=2, rtol=0)
        effective = answered(content, PHOTO).effective
        assert effective.notes == ["The gray band was taken for red, green and blue"]

    def test_of_16_bits_stays_of_16_bits(self) -> None:
        values = np.random.default_rng(0).integers(0, 2**16, (20, 30)).astype(np.uint16)
        for form in ("PNG", "JPEG2000", "TIFF"):
            content = saved(Image.fromarray(values), form)
            for contract in (GRAY, PHOTO):
                pixels = seen(content, contract)
                assert pixels.dtype == np.uint16
                np.testing.assert_array_equal(pixels, np.broadcast_to(values, pixels.shape))

    @pytest.mark.parametrize("bands", [("BLUE", "GREEN", "NIR"), ("RED", "GREEN")])
    def test_does_not_become_other_bands(self, bands: tuple[str, ...]) -> None:
        content = saved(picture(bands=1), "PNG")
        assert "but the file has 1" in refused(content, make_contract(bands=bands))

    @pytest.mark.parametrize("options", [{}, {"crs": None, "descriptions": ["B04"]}])
    def test_one_of_a_scenes_bands_is_no_gray_picture(self, options: dict[str, Any]) -> None:
        content = make_raster(bands=1, dtype="uint8", **options)
        assert "but the file has 1" in refused(content, PHOTO)

    def test_colours_do_not_become_gray(self) -> None:
        assert "takes 1 bands (PAN), but the file has 3" in refused(saved(picture(), "PNG"), GRAY)

    @pytest.mark.parametrize("bits", [1, 2, 4])
    def test_of_few_bits_is_a_part_of_white(self, bits: int) -> None:
        values = np.arange(2**bits, dtype=np.uint8).reshape(1, -1).repeat(3, 0)
        content = make_raster(values=values, dtype="uint8", driver="PNG", crs=None, nbits=bits)
        expected = pillow_reads(content, "L")
        np.testing.assert_array_equal(expected[0, 0], values[0] * (255 // (2**bits - 1)))
        np.testing.assert_array_equal(read_all(content)[0], expected)
        np.testing.assert_array_equal(seen(content, PHOTO), expected.repeat(3, 0))

    def test_black_and_white(self) -> None:
        image = picture(bands=1).convert("1")
        expected = np.asarray(image.convert("L"))[np.newaxis]
        np.testing.assert_array_equal(seen(saved(image, "PNG"), GRAY), expected)
        np.testing.assert_array_equal(seen(saved(image, "PNG"), PHOTO), expected.repeat(3, 0))
        np.testing.assert_array_equal(seen(saved(image, "TIFF"), PHOTO), expected.repeat(3, 0))


class TestAlpha:
    alpha = np.full((24, 40), 255, np.uint8)
    alpha[:3], alpha[3:6], alpha[6:9] = 0, 1, 128

    @pytest.mark.parametrize(
        ("form", "options"),
        [
            ("PNG", {}),
            ("WEBP", {"lossless": True, "exact": True}),
            ("WEBP", {}),
            ("JPEG2000", {}),
            ("TIFF", {}),
        ],
    )
    @pytest.mark.parametrize("bands", [1, 3])
    def test_is_a_mask(self, form: str, options: dict[str, Any], bands: int) -> None:
        if form == "WEBP" and bands == 1:
            pytest.skip("WebP has no gray pictures")
        content = saved(with_alpha(picture(bands=bands), self.alpha), form, **options)
        pixels, valid = read_all(content)
        assert len(pixels) == bands
        np.testing.assert_array_equal(valid, self.alpha > 0)
        if form != "WEBP" or options:
            expected = pillow_reads(
                saved(picture(bands=bands), "PNG"), "L" if bands == 1 else "RGB"
            )
            np.testing.assert_array_equal(pixels, expected)
        answer = answered(content, PHOTO)
        assert answer.invalid_pixels == 3 * 40

    def test_of_16_bits(self) -> None:
        alpha = np.full((5, 6), 65_535)
        alpha[0], alpha[1] = 0, 1
        values = np.stack([np.arange(30).reshape(5, 6) * 2_000] * 3 + [alpha])
        content = make_raster(values=values, dtype="uint16", driver="PNG", crs=None)
        pixels, valid = read_all(content)
        np.testing.assert_array_equal(pixels, values[:3])
        np.testing.assert_array_equal(valid, alpha > 0)

    @pytest.mark.parametrize("wanted", [RGB, ("PAN",)])
    def test_one_transparent_colour(self, wanted: tuple[str, ...]) -> None:
        bands = len(wanted)
        image = picture(bands=bands)
        colour = image.getpixel((7, 3))
        content = saved(image, "PNG", transparency=colour)
        values = np.asarray(image).reshape(24, 40, bands)
        _, valid = read_all(content, None, wanted)
        np.testing.assert_array_equal(valid, (values != np.array(colour)).any(axis=-1))

    def test_a_picture_of_four_bands_has_but_three(self) -> None:
        content = saved(with_alpha(picture(), self.alpha), "PNG")
        message = refused(content, make_contract())
        assert "the file has 3 (RED, GREEN, BLUE) besides an alpha band" in message


class TestInks:
    """CMYK, which is expected where JPEG is made for print."""

    @pytest.mark.parametrize("form", ["JPEG", "TIFF"])
    @pytest.mark.parametrize("bands", [RGB, RGB[::-1]])
    def test_become_colours(self, form: str, bands: tuple[str, ...]) -> None:
        image = Image.fromarray(
            np.random.default_rng(5)
            .integers(0, 256, (3, 5, 4), np.uint8)
            .repeat(16, 0)
            .repeat(16, 1),
            "CMYK",
        )
        content = saved(image, form, **({"quality": 100} if form == "JPEG" else {}))
        pixels = seen(content, make_contract("image", bands=bands, size=128))
        expected = pillow_reads(content)
        if bands[0] == "BLUE":
            expected = expected[::-1]
        np.testing.assert_allclose(
            pixels.astype(int), expected, atol=2 if form == "JPEG" else 1, rtol=0
        )

    def test_in_a_tiff_of_16_bits(self) -> None:
        inks = np.array([[0, 65_535, 0, 0], [0, 0, 0, 65_535], [0, 0, 0, 0], [30_000, 1, 2, 65_535],
                         [65_535, 0, 0, 32_768]])  # fmt: skip
        content = make_raster(
            values=inks.T[:, np.newaxis], dtype="uint16", photometric="cmyk", crs=None
        )
        white = 65_535
        expected = [[white, 0, white], [0, 0, 0], [white] * 3, [0, 0, 0], [0, 32_767, 32_767]]
        np.testing.assert_array_equal(seen(content, PHOTO)[:, 0].T, expected)
        assert "(CMYK)" in answered(content, PHOTO).effective.notes[0]

    def test_are_not_four_bands(self) -> None:
        image = picture().convert("CMYK")
        for form in ("JPEG", "TIFF"):
            assert "but the file has 3" in refused(saved(image, form), make_contract())


class TestOtherColours:
    @pytest.mark.parametrize("mode", ["YCbCr", "LAB"])
    def test_in_a_tiff(self, mode: str) -> None:
        image = picture()
        if mode == "LAB":
            dark = np.zeros((3, 5, 6))
            content = make_raster(values=dark, dtype="uint8", photometric="cielab", crs=None)
            pixels, _ = read_all(content)
            assert pixels.shape == (3, 5, 6)
            assert not pixels.any()  # no light is black
            return
        content = saved(image.convert("YCbCr"), "TIFF")
        pixels = seen(content, PHOTO)
        np.testing.assert_allclose(pixels.astype(int), pillow_reads(content), atol=2, rtol=0)

    @pytest.mark.parametrize("dtype", ["uint8", "uint16"])
    def test_0_is_white(self, dtype: str) -> None:
        values = np.arange(30).reshape(5, 6) * 8
        options = {"dtype": dtype, "photometric": "miniswhite", "crs": None}
        content = make_raster(values=values, nodata=16, **options)
        greatest = np.iinfo(dtype).max
        pixels, valid = read_all(content)
        np.testing.assert_array_equal(pixels[0], greatest - values)
        np.testing.assert_array_equal(valid, values != 16)
        (note,) = answered(content, GRAY).effective.notes
        assert note.startswith("0 is white")


class TestOrientation:
    @pytest.mark.parametrize("number", range(1, 9))
    @pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "TIFF"])
    def test_the_map_is_as_the_upright_picture(self, form: str, number: int) -> None:
        options = {"lossless": True} if form == "WEBP" else {}
        content = saved(picture(40, 70), form, exif=exif(number), **options)
        expected = pillow_reads(content)
        assert expected.shape == ((3, 70, 40) if number > 4 else (3, 40, 70))
        with open_scene(content) as scene:
            assert (scene.height, scene.width) == expected.shape[1:]
            for window in (Window(0, 0, *expected.shape[1:]), Window(3, 5, 21, 30)):
                pixels, valid = scene.read(window, [0, 1, 2])
                np.testing.assert_allclose(pixels.astype(int), expected[:, *window.slices],
                                           atol=9 if form == "JPEG" else 0, rtol=0)  # fmt: skip
                assert valid.all()
        answer = answered(content, PHOTO)
        assert (answer.height, answer.width) == expected.shape[1:]
        told = (
            [] if number == 1 else [f"The picture was turned upright (Exif orientation {number})"]
        )
        assert answer.effective.notes == told

    def test_of_a_jpeg_2000(self) -> None:
        tiff = exif(6).tobytes().removeprefix(b"Exif\0\0")
        box = b"uuid" + b"JpgTiffExif->JP2" + tiff
        content = saved(picture(), "JPEG2000")
        end = content.index(b"jp2c") - 4
        content = content[:end] + (len(box) + 4).to_bytes(4, "big") + box + content[end:]
        expected = np.asarray(picture().transpose(Image.Transpose.ROTATE_270))
        np.testing.assert_array_equal(seen(content, PHOTO), np.moveaxis(expected, -1, 0))

    @pytest.mark.parametrize("order", ["<", ">"])
    def test_of_a_mask_too(self, order: str) -> None:
        tags = exif(8)
        tags.endian = order
        alpha = np.full((24, 40), 255, np.uint8)
        alpha[2, 5:9] = 0
        content = saved(with_alpha(picture(), alpha), "PNG", exif=tags)
        upright = ImageOps.exif_transpose(with_alpha(picture(), alpha).copy())
        upright = upright.transpose(Image.Transpose.ROTATE_90)
        pixels, valid = read_all(content)
        np.testing.assert_array_equal(valid, np.asarray(upright)[..., 3] > 0)
        np.testing.assert_array_equal(pixels, np.moveaxis(np.asarray(upright)[..., :3], -1, 0))

    @pytest.mark.parametrize("number", [0, 9, 77, 65_535])
    def test_that_cannot_be(self, number: int) -> None:
        content = saved(picture(), "JPEG", exif=exif(number))
        assert read_all(content)[0].shape == (3, 24, 40)

    def test_whose_tags_are_damaged(self) -> None:
        content = saved(picture(), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
        assert read_all(content)[0].shape == (3, 24, 40)
        for damage in (b"Exif\0\0", b"Exif\0\0MM\0*"):
            assert "cannot be read" in refused(saved(picture(), "JPEG", exif=damage), PHOTO)

    def test_what_lies_on_the_ground_stays_there(self) -> None:
        points = [GroundControlPoint(r, c, 10 + c, 50 - r) for r in (0, 20) for c in (0, 30)]
        for place in ({}, {"crs": "EPSG:4326", "gcps": points}):
            content = make_raster(height=20, width=30, bands=1, dtype="uint8", **place)
            expected, _ = read_all(content)
            turned = with_orientation(content, 6)
            with Scene(Upload.of(turned)) as scene:
                assert (scene.height, scene.width) == (20, 30)
            np.testing.assert_array_equal(read_all(turned)[0], expected)

    @pytest.mark.parametrize("mode", ["CMYK", "YCbCr"])
    def test_of_colours_that_gdal_turns_in_part(self, mode: str) -> None:
        content = saved(picture().convert(mode), "TIFF", exif=exif(6))
        message = refused(content, PHOTO, RasterError)
        assert "stored turned (TIFF's Orientation is 6)" in message


@pytest.mark.parametrize(("form", "options"), EVERY_KIND)
def test_the_answer_is_georeferenced_nowhere(form: str, options: dict[str, Any]) -> None:
    answer = answered(saved(picture(), form, **options), PHOTO)
    assert answer.crs is None
    assert (answer.height, answer.width) == (24, 40)


@pytest.mark.parametrize(("form", "options"), EVERY_KIND)
def test_cut_off(form: str, options: dict[str, Any]) -> None:
    content = saved(picture(200, 200), form, **options)
    for part in (0.05, 0.3, 0.6, 0.95):
        with pytest.raises(RasterError):
            read_all(content[: int(len(content) * part)])


def test_a_film_is_refused() -> None:
    content = saved(picture(), "WEBP", save_all=True, append_images=[picture(bands=3).rotate(180)])
    assert "film of several pictures" in refused(content, PHOTO)


def with_orientation(content: bytes, number: int) -> bytes:
    """A TIFF of little-endian numbers with one more tag in its first directory, at its end."""
    at = int.from_bytes(content[4:8], "little")
    count = int.from_bytes(content[at : at + 2], "little")
    entries = [content[at + 2 + 12 * i : at + 14 + 12 * i] for i in range(count)]
    one = ORIENTATION.to_bytes(2, "little") + b"\3\0" + b"\1\0\0\0" + number.to_bytes(4, "little")
    entries = sorted([*entries, one], key=lambda entry: int.from_bytes(entry[:2], "little"))
    directory = (count + 1).to_bytes(2, "little") + b"".join(entries) + bytes(4)
    content += bytes(len(content) % 2)
    return content[:4] + len(content).to_bytes(4, "little") + content[8:] + directory


def test_the_helper_writes_that_tag() -> None:
    content = with_orientation(make_raster(bands=1, dtype="uint8", crs=None), 3)
    with MemoryFile(content) as memory, memory.open() as dataset:
        assert dataset.count == 1
    assert encoded(content)
    expected: Array = read_all(make_raster(bands=1, dtype="uint8", crs=None))[0]
    np.testing.assert_array_equal(read_all(content)[0], expected[:, ::-1, ::-1])
