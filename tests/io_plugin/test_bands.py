"""Which bands of a file are read for the checkpoint's."""

import re

import numpy as np
import pytest

from vllm_raster_io.bands import BandChoice, choose_bands
from vllm_raster_io.errors import RasterError
from vllm_raster_io.rasters import Scene
from vllm_raster_io.tiling import Window
from vllm_raster_io.uploads import Upload

from ..factories import make_raster
from .scenes import open_scene

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

WANTED = ("BLUE", "GREEN", "RED", "NIR")
RGBA = {"dtype": "uint8", "photometric": "RGB", "alpha": "YES"}


class TestByName:
    @pytest.mark.parametrize(
        ("names", "indices"),
        [
            (["BLUE", "GREEN", "RED", "NIR"], (0, 1, 2, 3)),
            (["NIR", "RED", "GREEN", "BLUE"], (3, 2, 1, 0)),
            (["nir", "Blue", "reD", "green"], (1, 3, 2, 0)),
            ([" RED ", "NIR", "BLUE\t", "GREEN"], (2, 3, 0, 1)),
            (["SWIR", "RED", None, "NIR", "BLUE", "RED EDGE", "GREEN"], (4, 6, 1, 3)),
            (["BLUE", "RED", "RED", "GREEN", "NIR"], (0, 3, 1, 4)),  # the first of two
        ],
    )
    def test_wherever_they_stand(self, names: list[str | None], indices: tuple[int, ...]) -> None:
        assert chosen(filled(len(names), names)) == BandChoice(indices, "names")

    def test_a_file_of_more_dates_than_one(self) -> None:
        found = chosen(filled(12, ["NIR", "RED", "GREEN", "BLUE"] * 3))
        assert found.indices == (3, 2, 1, 0)
        (note,) = found.notes
        assert note.startswith("Each of the bands' names stands 3 times in the file and the first")

    def test_case_as_unicode_has_it(self) -> None:
        content = filled(2, ["GRÜN", "STRASSE"])
        assert chosen(content, ("straße", "grün")) == BandChoice((1, 0), "names")

    def test_a_named_alpha_band_is_what_its_name_says(self) -> None:
        # An 8-bit file of four bands has an alpha band, unless its writer says otherwise.
        content = filled(4, ["RED", "GREEN", "BLUE", "NIR"], dtype="uint8")
        assert chosen(content) == BandChoice((2, 1, 0, 3), "names")


class TestByOrder:
    @pytest.mark.parametrize(
        "names",
        [
            [None] * 4,
            ["1st", "2nd", "3rd", "4th"],
            ["BLUE", None, None, None],
            ["BLUE", "GREEN", "RED", "last"],
            ["blue", "B03", None, "B08"],
        ],
    )
    def test_where_no_name_says_otherwise(self, names: list[str | None]) -> None:
        assert chosen(filled(4, names)) == BandChoice((0, 1, 2, 3), "order")

    def test_alpha_is_no_band(self) -> None:
        wanted = ("RED", "GREEN", "BLUE")
        assert chosen(filled(4, **RGBA), wanted) == BandChoice((0, 1, 2), "order")
        content = make_raster(values=np.ones((2, 3, 3)), dtype="uint8", driver="PNG")
        assert chosen(content, ("GRAY",)) == BandChoice((0,), "order")

    @pytest.mark.parametrize(
        "names",
        [
            ["RED", "GREEN", "BLUE", "last"],
            [None, None, "BLUE", None],
            ["NIR", "1st", "2nd", "3rd"],
            ["B02", "B03", "B04", "B11"],
        ],
    )
    def test_names_that_stand_elsewhere(self, names: list[str | None]) -> None:
        message = refusal(filled(4, names))
        assert "BLUE, GREEN, RED, NIR" in message
        assert ", ".join(name or "unnamed" for name in names) in message
        assert "`indices`" in message


class TestPictures:
    """Their bands have no names, but colours."""

    @pytest.mark.parametrize("kind", ["PNG", "JPEG"])
    @pytest.mark.parametrize(
        ("wanted", "indices"),
        [
            (("RED", "GREEN", "BLUE"), (0, 1, 2)),
            (("BLUE", "GREEN", "RED"), (2, 1, 0)),
            (("B04", "B03", "B02"), (0, 1, 2)),
            (("B02", "B03", "B04"), (2, 1, 0)),
        ],
    )
    def test_are_found_by_colour(
        self, kind: str, wanted: tuple[str, ...], indices: tuple[int, ...]
    ) -> None:
        content = make_raster(bands=3, dtype="uint8", driver=kind, crs=None)
        with Scene(Upload.of(content), wanted=wanted) as scene:
            assert choose_bands(scene, wanted, None) == BandChoice(indices, "names")

    def test_in_order_for_names_of_no_colour(self) -> None:
        content = make_raster(bands=3, dtype="uint8", driver="PNG", crs=None)
        assert chosen(content, ("A", "B", "C")) == BandChoice((0, 1, 2), "order")


class TestByIndices:
    @pytest.mark.parametrize("indices", [[0, 1, 2, 3], [5, 4, 0, 2], [0, 0, 3, 3]])
    def test_as_asked(self, indices: list[int]) -> None:
        names = ["NIR", "RED", "GREEN", "BLUE", "A", "B"]
        choice = chosen(filled(6, names), indices=indices)
        assert choice == BandChoice(tuple(indices), "indices")

    def test_alpha_if_asked_for(self) -> None:
        choice = chosen(filled(4, **RGBA), indices=[3, 2, 1, 0])
        assert choice == BandChoice((3, 2, 1, 0), "indices")

    @pytest.mark.parametrize("indices", [[0], [0, 1, 2], [0, 1, 2, 3, 4]])
    def test_another_number_than_the_checkpoint_takes(self, indices: list[int]) -> None:
        message = refusal(filled(6), indices=indices)
        assert "must name 4 bands (BLUE, GREEN, RED, NIR)" in message
        assert f"got {indices}" in message

    @pytest.mark.parametrize(
        ("indices", "beyond"), [([0, 1, 2, 6], [6]), ([6, 0, 99, 10**30], [6, 99, 10**30])]
    )
    def test_bands_that_are_not_there(self, indices: list[int], beyond: list[int]) -> None:
        message = refusal(filled(6), indices=indices)
        assert f"count from 0 and the file has 6 bands, got {beyond}" in message

    def test_a_long_list_is_not_repeated(self) -> None:
        for indices in ([7] * 100_000, [10**4000] * 4):
            message = refusal(filled(6), indices=indices)
            assert len(message) < 200


class TestRefused:
    @pytest.mark.parametrize("bands", [1, 3, 5])
    def test_another_number_of_bands(self, bands: int) -> None:
        names = [f"B{i}" for i in range(bands)]
        message = refusal(filled(bands, names))
        assert "takes 4 bands (BLUE, GREEN, RED, NIR)" in message
        assert f"the file has {bands} ({', '.join(names)})" in message

    def test_alpha_is_told_of(self) -> None:
        message = refusal(filled(4, **RGBA))
        assert re.search(r"has 3 \(unnamed, unnamed, unnamed\) besides an alpha band", message)

    def test_a_name_is_missing(self) -> None:
        refusal(filled(5, ["BLUE", "GREEN", "RED", "NIR2", "SWIR"]))

    def test_long_names_are_not_repeated(self) -> None:
        assert len(refusal(filled(5, ["~" * 1_000] * 5))) < 400


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)])
def test_shuffled_bands_reach_the_network_in_its_order(order: tuple[int, ...]) -> None:
    """Band k is filled with k, and named for what it is."""
    values = np.array([100, 200, 300, 400])[list(order)]
    content = make_raster(
        values=lambda band, row, column: values[band],
        height=5,
        width=7,
        descriptions=[WANTED[i].lower() for i in order],
    )
    with open_scene(content) as scene:
        choice = choose_bands(scene, WANTED, None)
        pixels, _ = scene.read(Window(1, 2, 3, 4), choice.indices)
    np.testing.assert_array_equal(pixels[:, 0, 0], [100, 200, 300, 400])
    assert (pixels == pixels[:, :1, :1]).all()


def filled(bands: int, names: list[str | None] | None = None, **options: object) -> bytes:
    return make_raster(bands=bands, height=2, width=3, descriptions=names, **options)


def chosen(
    content: bytes, wanted: tuple[str, ...] = WANTED, indices: list[int] | None = None
) -> BandChoice:
    with open_scene(content) as scene:
        return choose_bands(scene, wanted, indices)


def refusal(content: bytes, indices: list[int] | None = None) -> str:
    with pytest.raises(RasterError) as caught:
        chosen(content, indices=indices)
    return str(caught.value)
