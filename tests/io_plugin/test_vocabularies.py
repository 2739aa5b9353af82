"""Names of bands in the common vocabularies, found in files."""

import pytest

from vllm_raster_io.bands import BandChoice, choose_bands
from vllm_raster_io.errors import RasterError
from vllm_raster_io.matching import match
from vllm_raster_io.vocabularies import VOCABULARIES, WIDER, readings

from ..factories import make_raster
from .scenes import open_scene

PRITHVI = ("BLUE", "GREEN", "RED", "NIR_NARROW", "SWIR_1", "SWIR_2")
FOUR = ("BLUE", "GREEN", "RED", "NIR")

# From the tables of the sources, written down again: blue, green, red, near infrared, 1.6, 2.2 µm.
SIX = {
    "STAC": "blue green red nir08 swir16 swir22",
    "Sentinel-2": "B02 B03 B04 B8A B11 B12",
    "Sentinel-2 in Earth Engine": "B2 B3 B4 B8A B11 B12",
    "HLS S30": "B02 B03 B04 B8A B11 B12",
    "HLS L30": "B02 B03 B04 B05 B06 B07",
    "Landsat 8": "SR_B2 SR_B3 SR_B4 SR_B5 SR_B6 SR_B7",
    "Landsat 8 bare": "B2 B3 B4 B5 B6 B7",
    "Landsat 7": "SR_B1 SR_B2 SR_B3 SR_B4 SR_B5 SR_B7",
    "TerraTorch": "BLUE GREEN RED NIR_NARROW SWIR_1 SWIR_2",
    "written freely": "Blue;Green;Red;NIR narrow;SWIR 1;swir-2",
    "as GDAL's driver says": "B2, central wavelength 490 nm;B3, 560;B4, 665;B8A, 865;B11;B12",
}


def split(names: str) -> list[str]:
    return names.split(";") if ";" in names else names.split()


@pytest.mark.parametrize("vocabulary", SIX)
@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4, 5), (5, 2, 0, 4, 3, 1)])
def test_six_bands_wherever_they_stand(vocabulary: str, order: tuple[int, ...]) -> None:
    names = split(SIX[vocabulary])
    found = match(PRITHVI, [names[i] for i in order])
    assert found is not None
    assert [one[0] for one in found.places] == [order.index(i) for i in range(6)]


@pytest.mark.parametrize("wanted", SIX.values())
def test_the_checkpoint_may_use_any_as_well(wanted: str) -> None:
    found = match(split(wanted), ["swir22", "blue", "green", "red", "nir08", "swir16"])
    assert found is not None
    assert [one[0] for one in found.places] == [1, 2, 3, 4, 5, 0]


@pytest.mark.parametrize(
    ("names", "places"),
    [
        ("B02 B03 B04 B08", [0, 1, 2, 3]),
        ("B8A B08 B04 B03 B02", [4, 3, 2, 1]),
        ("B2 B3 B4 B8", [0, 1, 2, 3]),
        ("sur_refl_b01 sur_refl_b02 sur_refl_b03 sur_refl_b04", [2, 3, 0, 1]),
        ("SR_B5 SR_B4 SR_B3 SR_B2", [3, 2, 1, 0]),
        ("COASTAL_AEROSOL BLUE GREEN RED NIR_BROAD NIR_NARROW", [1, 2, 3, 4]),
        ("SCL blue VV red nir green", [1, 5, 3, 4]),
    ],
)
def test_four_bands(names: str, places: list[int]) -> None:
    found = match(FOUR, names.split())
    assert found is not None
    assert [one[0] for one in found.places] == places


class TestNotes:
    def test_another_vocabulary_knows_the_names_too(self) -> None:
        found = match(PRITHVI, SIX["HLS L30"].split())
        assert found is not None
        assert "read as those of HLS L30; they could be of Sentinel-2" in found.notes[0]

    def test_a_narrow_band_for_a_general_name(self) -> None:
        found = match(FOUR, ["blue", "green", "red", "nir08"])
        assert found is not None
        assert "nearest bands of the file were taken" in found.notes[0]

    @pytest.mark.parametrize("names", [SIX["Sentinel-2"], SIX["STAC"], SIX["TerraTorch"]])
    def test_plain_names_need_none(self, names: str) -> None:
        found = match(PRITHVI, names.split())
        assert found is not None
        assert found.notes == ()


class TestNotThere:
    @pytest.mark.parametrize(
        "names",
        [
            "B02 B03 B04 B11",
            "blue green red",
            "B1 B2 B3 B4",  # counts the bands and says nothing
            "B01 B02 B03 B04",
            "b0 b1 b2 b3 b4",
            "one two three four",
        ],
    )
    def test_four_bands(self, names: str) -> None:
        assert match(FOUR, names.split()) is None

    def test_a_broad_band_is_no_narrow_one(self) -> None:
        assert match(["NIR_NARROW"], ["nir"]) is None

    def test_which_of_several_red_edges_is_not_said(self) -> None:
        assert match(["rededge"], ["B05", "B06", "red"]) is None
        assert match(["rededge"], ["B06", "B8A"]) is not None

    def test_names_that_mean_two_things(self) -> None:
        told = r"can be read as .*Landsat 8 and 9 or Landsat 4 to 7"
        with pytest.raises(RasterError, match=told):
            match(("green", "red", "nir"), ["SR_B2", "SR_B3", "SR_B4", "SR_B5"])

    def test_wanted_names_that_mean_two_things(self) -> None:
        file = ["BLUE", "GREEN", "RED", "NIR_NARROW", "SWIR_1", "SWIR_2"]
        told = r"The names SR_B2, .* can be read as Landsat 8 and 9 or Landsat 4 to 7"
        with pytest.raises(RasterError, match=told):
            match(("SR_B2", "SR_B3", "SR_B4", "SR_B5"), file)

    def test_names_of_no_vocabulary_are_found_as_they_are(self) -> None:
        found = match(("VV", "VH", "BLUE"), ["vh", " VV ", "B02"])
        assert found is not None
        assert found.places == ((1,), (0,), (2,))


def test_each_vocabulary_knows_each_meaning_once_but_for_spelling() -> None:
    for vocabulary in VOCABULARIES.values():
        numbers = {name.lstrip("srtb").lstrip("0") for name in vocabulary}
        assert len(numbers) == len(set(vocabulary.values()))


# STAC extension eo 2.0.0, README, "Common Band Names": from and to, in µm.
RANGES = {
    "pan": (0.40, 1.00), "coastal": (0.40, 0.45), "blue": (0.45, 0.53), "green": (0.51, 0.60),
    "green05": (0.51, 0.55), "yellow": (0.58, 0.62), "red": (0.62, 0.69), "rededge": (0.69, 0.79),
    "rededge071": (0.69, 0.73), "rededge075": (0.73, 0.76), "rededge078": (0.76, 0.79),
    "nir": (0.76, 1.00), "nir08": (0.80, 0.90), "nir09": (0.90, 1.00), "cirrus": (1.35, 1.40),
    "swir16": (1.55, 1.75), "swir22": (2.08, 2.35), "lwir": (10.4, 12.5), "lwir11": (10.5, 11.5),
    "lwir12": (11.5, 12.5),
}  # fmt: skip
# Central wavelengths in µm. Sentinel-2A: ESA; the others: the middle of what USGS and NASA state.
SENTINEL_2A = {
    "B01": 0.4427, "B02": 0.4924, "B03": 0.5598, "B04": 0.6646, "B05": 0.7041, "B06": 0.7405,
    "B07": 0.7828, "B08": 0.8328, "B8A": 0.8647, "B09": 0.9451, "B10": 1.3735, "B11": 1.6137,
    "B12": 2.2024,
}  # fmt: skip
OLI_TIRS = {
    "B01": 0.44, "B02": 0.48, "B03": 0.56, "B04": 0.655, "B05": 0.865, "B06": 1.61, "B07": 2.20,
    "B09": 1.37, "B10": 10.895, "B11": 12.005,
}  # fmt: skip
TM_ETM = {
    "B01": 0.485, "B02": 0.56, "B03": 0.66, "B04": 0.83, "B05": 1.65, "B06": 11.45, "B07": 2.215,
}  # fmt: skip
WAVELENGTHS = {
    "Sentinel-2": SENTINEL_2A,
    "HLS S30": SENTINEL_2A,
    "HLS L30": OLI_TIRS,
    "Landsat 8 and 9": OLI_TIRS,
    "Landsat 4 to 7": TM_ETM,
    "MODIS": {
        "B01": 0.645, "B02": 0.8585, "B03": 0.469, "B04": 0.555, "B06": 1.64, "B07": 2.13,
    },
}  # fmt: skip


def number_of(name: str) -> str:
    """As in B02, whatever stands before it: SR, ST, sur_refl."""
    return f"B{name.rpartition('b')[2].upper().zfill(2)}"


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_each_band_lies_where_its_common_name_does(vocabulary: str) -> None:
    names, wavelengths = VOCABULARIES[vocabulary], WAVELENGTHS[vocabulary]
    assert {number_of(name) for name in names} == set(wavelengths)
    for name, meaning in names.items():
        least, most = RANGES[meaning]
        assert least <= wavelengths[number_of(name)] <= most, (name, meaning)


def test_one_meaning_is_one_part_of_the_spectrum() -> None:
    """Whatever the vocabulary: to within 0.09 µm."""
    found: dict[str, list[float]] = {}
    for vocabulary, names in VOCABULARIES.items():
        for name, meaning in names.items():
            found.setdefault(meaning, []).append(WAVELENGTHS[vocabulary][number_of(name)])
    for meaning, at in found.items():
        assert max(at) - min(at) <= 0.09, meaning


@pytest.mark.parametrize("name", RANGES)
def test_every_common_name_is_understood(name: str) -> None:
    assert readings([name])[0].meanings == (name,)


def test_general_names_are_wider() -> None:
    for name, special in WIDER.items():
        assert all(RANGES[name][0] <= RANGES[one][0] for one in special)
        assert all(RANGES[one][1] <= RANGES[name][1] for one in special)


def test_names_without_meaning_are_read_once() -> None:
    assert len(readings(["a", None])) == 1
    assert readings([])[0].meanings == ()


class TestAsked:
    """`bands` of a request."""

    @pytest.mark.parametrize(
        ("bands", "indices"),
        [
            (["B02", "B03", "B04", "B08"], (2, 1, 0, 4)),
            (["blue", "green", "red", "nir"], (2, 1, 0, 4)),
            (["b8a", "B08", "red", "swir16"], (3, 4, 0, 5)),
            ([6, 1, 1, 2], (5, 0, 0, 1)),
            (["blue", 5, "red", 1], (2, 4, 0, 0)),
        ],
    )
    def test_by_name_or_from_1(self, bands: list[str | int], indices: tuple[int, ...]) -> None:
        content = make_raster(bands=6, descriptions=["B04", "B03", "B02", "B8A", "B08", "B11"])
        with open_scene(content) as scene:
            assert choose_bands(scene, FOUR, None, bands=bands) == BandChoice(indices, "bands")

    @pytest.mark.parametrize(
        ("bands", "told"),
        [
            (["B02", "B03", "B04"], "`bands` must name 4 bands"),
            (["B02", "B03", "B04", "B09"], "it has B02, B03, B04, B08, got"),
            ([1, 2, 3, 5], "`bands` count from 1 and the file has 4 bands, got [1, 2, 3, 5]"),
            (["B02", "B03", "B04", 5], "`bands` count from 1 and the file has 4 bands, got [5]"),
        ],
    )
    def test_refused(self, bands: list[str | int], told: str) -> None:
        content = make_raster(bands=4, descriptions=["B02", "B03", "B04", "B08"])
        with open_scene(content) as scene, pytest.raises(RasterError) as caught:
            choose_bands(scene, FOUR, None, bands=bands)
        assert told in str(caught.value)

    def test_of_several_dates(self) -> None:
        content = make_raster(bands=4, descriptions=["B02", "B04", "B02", "B04"])
        with open_scene(content) as scene:
            for bands, indices in [
                (["red", "blue"], (1, 0, 3, 2)),
                ([2, 1], (1, 0, 3, 2)),
                ([4, 3, 2, 1], (3, 2, 1, 0)),
            ]:
                chosen = choose_bands(scene, ("x", "y"), None, 2, bands)
                assert chosen.indices == indices
            with pytest.raises(RasterError, match="all names or all numbers"):
                choose_bands(scene, ("x", "y"), None, 2, ["red", 1])
