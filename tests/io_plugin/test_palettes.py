"""Files of one band whose values are names of colours."""

import io

import numpy as np
import pytest
import rasterio
from PIL import Image
from rasterio.io import MemoryFile

from ..factories import make_raster
from .photos import RGB, picture, pillow_reads, saved
from .requested import answered, refused, seen
from .scenes import Array, make_contract, open_scene, read_all

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

PHOTO = make_contract("image", bands=RGB)
ONE = make_contract("image", bands=("LAND_COVER",))
NOTE = "The palette was expanded into red, green and blue"
COLOURS = {0: (10, 20, 30, 255), 1: (255, 0, 1, 255), 2: (7, 8, 9, 255), 255: (1, 2, 3, 255)}
IDS = np.array([[0, 1, 2], [2, 255, 1]])


def paletted(colours: int = 12) -> Image.Image:
    return picture().quantize(colours)


@pytest.mark.parametrize("form", ["PNG", "TIFF"])
@pytest.mark.parametrize("colours", [2, 4, 12, 200])
def test_becomes_colours(form: str, colours: int) -> None:
    content = saved(paletted(colours), form)
    np.testing.assert_array_equal(seen(content, PHOTO), pillow_reads(content))
    effective = answered(content, PHOTO).effective
    assert effective.indices == [0, 1, 2]
    assert effective.bands_by == "names"
    assert effective.notes == [NOTE]


@pytest.mark.parametrize("form", ["PNG", "TIFF"])
def test_colours_are_names(form: str) -> None:
    content = saved(paletted(), form)
    contract = make_contract("image", bands=("BLUE", "RED", "GREEN"))
    np.testing.assert_array_equal(seen(content, contract), pillow_reads(content)[[2, 0, 1]])


def test_of_a_georeferenced_tiff() -> None:
    content = with_palette()
    expected = np.moveaxis(
        np.vectorize(lambda i: COLOURS[i][:3], otypes=[object])(IDS).tolist(), -1, 0
    )
    np.testing.assert_array_equal(seen(content, PHOTO), expected)
    answer = answered(content, PHOTO)
    assert answer.crs == "EPSG:32632"
    assert answer.invalid_pixels == 0


def test_indices_count_the_colours() -> None:
    np.testing.assert_array_equal(
        seen(with_palette(), PHOTO, indices=[2, 2, 0])[:, 1, 1], [3, 3, 1]
    )
    message = refused(with_palette(), PHOTO, indices=[0, 1, 3])
    assert "the file has 3 bands, got [3]" in message


def test_four_bands_are_not_in_it() -> None:
    assert "but the file has 3" in refused(with_palette(), make_contract())


class TestTransparent:
    @pytest.mark.parametrize("transparency", [2, bytes([255, 0, 90, 1])])
    def test_entries_mask(self, transparency: int | bytes) -> None:
        image = paletted()
        content = saved(image, "PNG", transparency=transparency)
        hidden = 2 if transparency == 2 else 1
        pixels, valid = read_all(content, None, RGB)
        np.testing.assert_array_equal(pixels, pillow_reads(saved(image, "PNG")))
        np.testing.assert_array_equal(valid, np.asarray(image) != hidden)
        assert not valid.all()

    def test_are_a_band_where_it_is_asked_for(self) -> None:
        content = saved(paletted(), "PNG", transparency=bytes([255, 0, 90, 1]))
        pixels = seen(content, make_contract(), indices=[0, 1, 2, 3])
        np.testing.assert_array_equal(pixels, pillow_reads(content, "RGBA"))

    def test_nodata_is_an_id(self) -> None:
        pixels, valid = read_all(with_palette(nodata=2), None, RGB)
        np.testing.assert_array_equal(valid, IDS != 2)
        np.testing.assert_array_equal(pixels[:, 0, 2], [7, 8, 9])

    def test_mask_of_the_file(self) -> None:
        mask = np.array([[1, 0, 1], [1, 1, 0]], bool)
        _, valid = read_all(with_palette(mask=mask), None, RGB)
        np.testing.assert_array_equal(valid, mask)


class TestOneBand:
    def test_of_a_tiff_are_the_ids(self) -> None:
        np.testing.assert_array_equal(seen(with_palette(), ONE), IDS[np.newaxis])
        (note,) = answered(with_palette(), ONE).effective.notes
        assert (
            note == "The palette was left aside, and the ids were taken as the values of the band"
        )

    @pytest.mark.parametrize("step", [1, 3])
    def test_of_a_png_are_grays(self, step: int) -> None:
        image = Image.fromarray((np.arange(60).reshape(6, 10)).astype(np.uint8), "P")
        image.putpalette([value for i in range(60) for value in [200 - step * i] * 3])
        content = saved(image, "PNG")
        expected = 200 - step * np.arange(60).reshape(1, 6, 10)
        np.testing.assert_array_equal(seen(content, ONE), expected)
        np.testing.assert_array_equal(pillow_reads(content, "L"), expected)
        np.testing.assert_array_equal(seen(content, PHOTO), expected.repeat(3, 0))

    def test_grays_of_a_png_that_hide(self) -> None:
        image = Image.fromarray((np.arange(60).reshape(6, 10)).astype(np.uint8), "P")
        image.putpalette([value for i in range(60) for value in [i] * 3])
        pixels, valid = read_all(saved(image, "PNG", transparency=bytes([0, 9, 0])), None, ("PAN",))
        np.testing.assert_array_equal(pixels, np.arange(60).reshape(1, 6, 10))
        np.testing.assert_array_equal(np.flatnonzero(~valid), [0, 2])

    def test_colours_of_a_png_are_refused(self) -> None:
        message = refused(saved(paletted(), "PNG"), ONE)
        assert "takes 1 bands (LAND_COVER), but the file has 3" in message


class TestAlphaThatIsNone:
    """GDAL marks the fourth of four bands of 8 bits as alpha, unless it is told otherwise."""

    values = np.random.default_rng(3).integers(0, 9, (4, 5, 6))
    mark = "The last band was taken for NIR: it is marked as alpha"

    def test_of_a_checkpoint_of_four_bands(self) -> None:
        content = make_raster(values=self.values, dtype="uint8")
        with MemoryFile(content) as memory, memory.open() as dataset:
            assert dataset.colorinterp[3] == rasterio.enums.ColorInterp.alpha
        np.testing.assert_array_equal(seen(content, make_contract()), self.values)
        answer = answered(content, make_contract())
        assert answer.invalid_pixels == 0
        assert answer.effective.notes[0].startswith(self.mark)
        assert answer.effective.indices == [0, 1, 2, 3]

    def test_names_need_no_note(self) -> None:
        names = ["RED", "NIR", "BLUE", "GREEN"]
        content = make_raster(values=self.values, dtype="uint8", descriptions=names)
        np.testing.assert_array_equal(seen(content, make_contract()), self.values[[2, 3, 0, 1]])
        assert answered(content, make_contract()).invalid_pixels == 0

    def test_of_a_checkpoint_of_three_is_a_mask(self) -> None:
        content = make_raster(values=self.values, dtype="uint8")
        answer = answered(content, PHOTO)
        assert answer.invalid_pixels == np.count_nonzero(self.values[3] == 0)

    def test_of_a_file_where_the_tag_is_absent(self) -> None:
        content = make_raster(values=self.values, dtype="uint8", photometric="minisblack")
        answer = answered(content, make_contract())
        assert answer.invalid_pixels == 0
        assert answer.effective.notes == []

    @pytest.mark.parametrize("dtype", ["uint16", "float32"])
    def test_of_other_types_is_a_mask(self, dtype: str) -> None:
        content = make_raster(values=self.values, dtype=dtype, photometric="RGB", alpha="YES")
        assert "but the file has 3" in refused(content, make_contract())

    def test_of_two_dates(self) -> None:
        contract = make_contract("image", bands=("RED", "NIR"), frames=2)
        content = make_raster(values=self.values, dtype="uint8")
        expected = self.values.reshape(2, 2, 5, 6).swapaxes(0, 1)
        np.testing.assert_array_equal(seen(content, contract), expected)


def test_what_gdal_and_pillow_call_a_palette_is_one() -> None:
    content = saved(paletted(), "PNG")
    assert Image.open(io.BytesIO(content)).mode == "P"
    with open_scene(content, RGB) as scene:
        assert scene.count == 3
    with open_scene(content) as scene:
        assert scene.count == 1


def with_palette(
    *, nodata: float | None = None, mask: Array | None = None, values: Array = IDS
) -> bytes:
    return make_raster(values=values, dtype="uint8", palette=COLOURS, nodata=nodata, mask=mask)
