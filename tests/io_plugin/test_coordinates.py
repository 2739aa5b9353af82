"""What a network is told of when and where: by the calendar, and by formulas of one's own."""

import base64
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

import numpy as np
import pytest
from rasterio import Affine
from rasterio.control import GroundControlPoint
from rasterio.rpc import RPC

from vllm_raster_io.answers import RasterAnswer
from vllm_raster_io.contract import RasterContract
from vllm_raster_io.errors import RequestError
from vllm_raster_io.jobs import Job
from vllm_raster_io.requests import RasterRequest

from ..factories import make_raster
from .networks import PixelNetwork
from .scenes import Array, make_contract

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

TIME = make_contract(coordinates=("time",), overlap=0)
PLACE = make_contract(coordinates=("location",), overlap=0)
BOTH = make_contract(coordinates=("time", "location"), overlap=0)
GEOGRAPHIC: dict[str, Any] = {"crs": "EPSG:4326"}


class TestDates:
    @pytest.mark.parametrize("first_day", [0, 1])
    @pytest.mark.parametrize(
        "day", ["2024-01-01", "2024-02-29", "2023-03-01", "2024-12-31", "2023-12-31", "1972-07-23"]
    )
    def test_year_and_day_of_the_year(self, day: str, first_day: int) -> None:
        contract = make_contract(coordinates=("time",), first_day=first_day)
        (item,), answer = served(make_raster(), contract, dates=day)
        expected = datetime.strptime(day, "%Y-%m-%d").timetuple()
        coords = item["temporal_coords"]
        assert coords.dtype == np.float64
        assert coords.tolist() == [[expected.tm_year, expected.tm_yday - 1 + first_day]]
        assert answer.effective.dates == [day]
        assert answer.effective.dates_by == ["request"]
        assert answer.effective.coordinates == ["time"]
        assert answer.effective.notes == []

    @pytest.mark.parametrize(
        ("text", "day"),
        [
            ("2024-02-29", "2024-02-29"),
            ("20240229", "2024-02-29"),
            ("2024-02-29T23:59:59", "2024-02-29"),
            ("2024-02-29 10:00", "2024-02-29"),
            ("2024-02-29T10:30:00.123456Z", "2024-02-29"),
            ("2024-01-01T00:30:00+02:00", "2023-12-31"),  # in UTC
            ("2023-12-31T23:30:00-02:00", "2024-01-01"),
        ],
    )
    def test_forms_of_iso(self, text: str, day: str) -> None:
        for dates in (text, [text]):
            _, answer = served(make_raster(), TIME, dates=dates)
            assert answer.effective.dates == [day]

    @pytest.mark.parametrize(
        "text",
        [
            "", "today", "2023-02-29", "2024-13-01", "2024", "29.02.2024", "2024-02-29; x",
            "2024:02:29 10:30:00", "0000-01-01", "0001-01-01T00:00:00+02:00", "~" * 10_000,
        ],
    )  # fmt: skip
    def test_what_is_no_date(self, text: str) -> None:
        message = refusal(make_raster(), TIME, dates=text)
        assert message.startswith("`dates` must be ISO dates such as 2024-02-29")
        assert message.count("~") <= 60

    @pytest.mark.parametrize("dates", [["2024-01-01"] * 2, ["2024-01-01"] * 3])
    def test_more_than_there_are_frames(self, dates: list[str]) -> None:
        message = refusal(make_raster(), TIME, dates=dates)
        assert "`dates` must be 1" in message
        assert f"got {len(dates)}" in message

    def test_refused_where_the_network_is_not_told(self) -> None:
        for contract in (PLACE, make_contract()):
            message = refusal(make_raster(), contract, dates="2024-01-01")
            assert "`dates` is refused" in message
            assert "Leave it out" in message

    def test_unknown(self) -> None:
        (item,), answer = served(make_raster(), TIME)
        assert "temporal_coords" not in item
        assert answer.effective.dates == answer.effective.dates_by == [None]
        assert answer.effective.coordinates == []
        (note,) = answer.effective.notes
        assert "date is unknown" in note
        assert "`dates`" in note

    def test_not_taken(self) -> None:
        content = make_raster(tags={"TIFFTAG_DATETIME": "2024:02:29 10:30:00"})
        (item,), answer = served(content, PLACE)
        assert "temporal_coords" not in item
        assert answer.effective.dates is None
        assert answer.effective.dates_by is None
        assert answer.effective.notes == []


class TestTags:
    @pytest.mark.parametrize(
        ("name", "text", "day"),
        [
            ("TIFFTAG_DATETIME", "2024:02:29 10:30:00", "2024-02-29"),
            ("TIFFTAG_DATETIME", "2024-02-29 10:30:00", "2024-02-29"),
            ("ACQUISITIONDATETIME", "2024-02-29 10:30:00", "2024-02-29"),
            ("ACQUISITION_DATETIME", "2024-02-29T10:30:00Z", "2024-02-29"),
            ("acquisition_date", "20240229", "2024-02-29"),
            ("DATE_ACQUIRED", "2024-02-29", "2024-02-29"),
            ("SENSING_TIME", "2024-02-29T10:30:00.1234567Z; 2024-03-01T10:30:00Z", "2024-02-29"),
            ("datetime", "2024-02-29T10:30:00.000000Z", "2024-02-29"),
            ("DateTime", " 2024:02:29 10:30:00 ", "2024-02-29"),
            ("date", "2024-02-29", "2024-02-29"),
        ],
    )
    def test_of_the_file(self, name: str, text: str, day: str) -> None:
        (item,), answer = served(make_raster(tags={name: text}), TIME)
        assert item["temporal_coords"].tolist() == [[2024, 60]]
        assert answer.effective.dates == [day]
        assert answer.effective.dates_by == [name]

    @pytest.mark.parametrize(
        "tags",
        [
            {"TIFFTAG_DATETIME": "0000:00:00 00:00:00"},
            {"TIFFTAG_DATETIME": "2023:02:29 10:30:00"},
            {"TIFFTAG_DATETIME": "soon"},
            {"SENSING_TIME": "", "created": "2024-02-29"},
        ],
    )
    def test_that_tell_nothing(self, tags: dict[str, str]) -> None:
        (item,), answer = served(make_raster(tags=tags), TIME)
        assert "temporal_coords" not in item
        assert answer.effective.dates == [None]

    def test_the_order_in_which_they_count(self) -> None:
        """The request, a band, the image's own, what others write, when the file was made."""
        made = {"TIFFTAG_DATETIME": "2025:01:01 00:00:00"}
        steps: list[tuple[dict[str, Any], str, str]] = [
            ({"tags": made}, "2025-01-01", "TIFFTAG_DATETIME"),
            ({"tags": {**made, "datetime": "soon"}}, "2025-01-01", "TIFFTAG_DATETIME"),
            ({"tags": {**made, "datetime": "2024-04-04"}}, "2024-04-04", "datetime"),
            ({"tags": {"SENSING_TIME": "2024-04-05", "datetime": "2024-04-04"}}, "2024-04-05",
             "SENSING_TIME"),
            ({"image_tags": {"ACQUISITIONDATETIME": "2024-04-06"}}, "2024-04-06",
             "ACQUISITIONDATETIME"),
            ({"band_tags": {2: {"datetime": "2024-04-07"}}}, "2024-04-07", "datetime"),
        ]  # fmt: skip
        options: dict[str, Any] = {}
        for more, day, name in steps:
            options |= more
            content = make_raster(**options)
            _, answer = served(content, TIME)
            assert (answer.effective.dates, answer.effective.dates_by) == ([day], [name])
        _, answer = served(content, TIME, dates="2020-02-02")
        assert answer.effective.dates == ["2020-02-02"]
        assert answer.effective.dates_by == ["request"]

    def test_of_a_band_that_is_not_used(self) -> None:
        content = make_raster(bands=5, band_tags={5: {"datetime": "2024-04-07"}})
        _, answer = served(content, TIME, indices=[0, 1, 2, 3])
        assert answer.effective.dates == [None]
        _, answer = served(content, TIME, indices=[0, 1, 2, 4])
        assert answer.effective.dates == ["2024-04-07"]

    def test_pictures_have_none(self) -> None:
        content = make_raster(crs=None, driver="PNG", dtype="uint8", bands=4)
        _, answer = served(content, BOTH, indices=[0, 1, 2, 3])
        assert answer.effective.coordinates == []
        assert len(answer.effective.notes) == 2


class TestPlaces:
    def test_universal_transverse_mercator(self) -> None:
        content = make_raster(height=100, width=130)  # southern Germany, zone 32
        items, answer = served(content, PLACE)
        centres = [(32 + 36 * row, 32 + 33 * column) for row in (0, 1) for column in (0, 1, 2)]
        assert len(items) == len(centres)
        for item, (row, column) in zip(items, centres, strict=True):
            expected = from_utm(600_000 + 10 * column, 5_300_000 - 10 * row, 9)
            assert item["location_coords"].dtype == np.float64
            np.testing.assert_allclose(item["location_coords"], expected, rtol=0, atol=1e-9)
        assert answer.effective.coordinates == ["location"]
        assert answer.effective.location_by == "georeference"
        middle = from_utm(600_650, 5_299_500, 9)
        np.testing.assert_allclose(answer.effective.location, middle, rtol=0, atol=1e-9)
        assert answer.effective.notes == []

    def test_the_middle_of_a_part(self) -> None:
        content = make_raster(height=100, width=130)
        (item,), answer = served(content, PLACE, window=[20, 40, 32, 16])
        middle = from_utm(600_000 + 10 * 36, 5_300_000 - 10 * 48, 9)
        np.testing.assert_allclose(answer.effective.location, middle, rtol=0, atol=1e-9)
        np.testing.assert_allclose(item["location_coords"], middle, rtol=0, atol=1e-9)

    @pytest.mark.parametrize(
        ("crs", "x", "y", "expected"),
        [
            ("OGC:CRS84", 10.5, 50.25, (50.25, 10.5)),
            ("EPSG:4326", 10.5, 50.25, (50.25, 10.5)),
            ("EPSG:4258", 10.5, 50.25, (50.25, 10.5)),
            # Of these the authority names north first; a file's first axis is its columns'.
            ("EPSG:3035", 4_321_000, 3_210_000, (52, 10)),
            ("EPSG:2193", 1_600_000, 10_000_000, (0, 173)),
            ("EPSG:3413", 0, 0, (90, None)),
            ("EPSG:3031", 0, 0, (-90, None)),
            ("EPSG:32760", 500_000, 10_000_000, (0, 177)),
        ],
    )  # fmt: skip
    def test_origins_of_systems(
        self, crs: str, x: float, y: float, expected: tuple[float, float | None]
    ) -> None:
        pixel = 0.001 if abs(x) < 360 and x else 10
        place = Affine(pixel, 0, x - 32 * pixel, 0, -pixel, y + 32 * pixel)
        (item,), _ = served(make_raster(height=64, width=64, crs=crs, transform=place), PLACE)
        latitude, longitude = item["location_coords"]
        assert latitude == pytest.approx(expected[0], abs=1e-9)
        if expected[1] is not None:
            assert longitude == pytest.approx(expected[1], abs=1e-9)

    def test_across_the_date_line(self) -> None:
        # Zone 1, whose meridian is 177° west: 20 km on either side of 180°.
        row, columns = 32, (32, 96)
        x = 167_000
        place = Affine(300, 0, x, 0, -300, 8_000_000)
        content = make_raster(height=64, width=128, crs="EPSG:32701", transform=place)
        items, _ = served(content, PLACE)
        longitudes = []
        for item, column in zip(items, columns, strict=True):
            north = 8_000_000 - 300 * row - 10_000_000
            expected = from_utm(x + 300 * column, north, -177)
            found = item["location_coords"]
            assert found[0] == pytest.approx(expected[0], abs=1e-9)
            assert (found[1] - expected[1]) % 360 == pytest.approx(0, abs=1e-9)
            longitudes.append(found[1])
        assert 179.9 < longitudes[0] <= 180
        assert -180 <= longitudes[1] < -179.8

    def test_sheared(self) -> None:
        place = Affine(0.1, 0.02, 1, 0.03, -0.2, 40)
        (item,), _ = served(make_raster(**GEOGRAPHIC, transform=place), PLACE)
        # The centre is at row 16, column 24.
        expected = (40 + 0.03 * 24 - 0.2 * 16, 1 + 0.1 * 24 + 0.02 * 16)
        np.testing.assert_allclose(item["location_coords"], expected, rtol=0, atol=1e-12)

    def test_windows_at_the_edge_have_the_middle_of_their_own_pixels(self) -> None:
        place = Affine(0.5, 0, 10, 0, -0.5, 60)
        (item,), _ = served(make_raster(height=7, width=3, **GEOGRAPHIC, transform=place), PLACE)
        assert item["location_coords"].tolist() == [60 - 0.5 * 3.5, 10 + 0.5 * 1.5]
        # Moved in, not padded: the last of 65 columns begins at the second.
        content = make_raster(height=7, width=65, **GEOGRAPHIC, transform=place)
        items, _ = served(content, PLACE)
        assert [item["location_coords"][1] for item in items] == [10 + 16, 10 + 16.5]

    def test_each_window_has_its_own_also_beside_those_that_have_none(self) -> None:
        # The Earth as a satellite sees it, which is no place at the corners.
        crs = "+proj=geos +h=35785831 +lon_0=0 +sweep=y +ellps=WGS84 +units=m"
        reach = 5_500_000
        place = Affine(2 * reach / 256, 0, -reach, 0, -2 * reach / 256, reach)
        items, answer = served(make_raster(height=256, width=256, crs=crs, transform=place), PLACE)
        known = np.array(["location_coords" in item for item in items]).reshape(4, 4)
        assert known.tolist() == [
            [False, True, True, False],
            [True, True, True, True],
            [True, True, True, True],
            [False, True, True, False],
        ]
        for item in (items[5], items[10]):
            assert np.isfinite(item["location_coords"]).all()
        np.testing.assert_allclose(
            items[5]["location_coords"], -items[10]["location_coords"], atol=1e-9
        )
        assert items[5]["location_coords"][0] > 0
        assert answer.effective.location_by == "georeference"
        (note,) = answer.effective.notes
        assert "4 of 16 windows" in note

    @pytest.mark.parametrize(
        "options",
        [
            {"crs": None},
            {"crs": None, "transform": Affine(0.1, 0, 10, 0, -0.1, 50)},
            {"crs": "IAU_2015:30100"},
            {"transform": Affine(10, 10, 6e5, 10, 10, 53e5)},
            {"crs": None, "rpcs": True},
        ],
        ids=str,
    )
    def test_unknown(self, options: dict[str, Any]) -> None:
        if options.pop("rpcs", False):
            options["rpcs"] = polynomials()
        content = make_raster(**options)
        (item,), answer = served(content, PLACE)
        assert "location_coords" not in item
        assert answer.effective.coordinates == []
        assert answer.effective.location_by is None
        assert answer.effective.location is None
        (note,) = answer.effective.notes
        assert "location is unknown" in note
        assert "`location`" in note
        (item,), answer = served(content, PLACE, location=[-23.5, 14.25])
        assert item["location_coords"].tolist() == [-23.5, 14.25]
        assert answer.effective.location_by == "request"
        assert answer.effective.location == [-23.5, 14.25]
        assert answer.effective.notes == []

    def test_the_request_tells_it_for_all_windows(self) -> None:
        content = make_raster(height=64, width=128, crs=None)
        items, _ = served(content, PLACE, location=[90, -180])
        assert [item["location_coords"].tolist() for item in items] == [[90, -180]] * 2
        assert items[0]["location_coords"].dtype == np.float64

    def test_the_request_may_not_contradict_the_file(self) -> None:
        points = [GroundControlPoint(r, c, 10 + c, 50 - r) for r in (0, 32) for c in (0, 48)]
        for content in (make_raster(), make_raster(**GEOGRAPHIC, gcps=points)):
            message = refusal(content, PLACE, location=[48.1, 11.5])
            assert "`location` is refused: the file's georeference tells" in message

    def test_refused_where_the_network_is_not_told(self) -> None:
        for contract in (TIME, make_contract()):
            message = refusal(make_raster(crs=None), contract, location=[1, 2])
            assert "`location` is refused: this checkpoint's network is not told" in message


def test_both() -> None:
    content = make_raster(tags={"TIFFTAG_DATETIME": "2023:03:01 10:00:00"})
    (item,), answer = served(content, BOTH)
    assert item["temporal_coords"].tolist() == [[2023, 60]]
    assert item["location_coords"].shape == (2,)
    assert answer.effective.coordinates == ["time", "location"]
    assert date.fromisoformat((answer.effective.dates or [""])[0] or "").year == 2023


def served(
    content: bytes, contract: RasterContract, **fields: Any
) -> tuple[list[Mapping[str, Array]], RasterAnswer]:
    """The image items of a request, and its answer."""
    job = Job(request(content, **fields), contract)
    items = job.items()
    network = PixelNetwork(contract)
    answer = job.answer([network(item) for item in items], None)
    job.close()
    return items, answer


def refusal(content: bytes, contract: RasterContract, **fields: Any) -> str:
    with pytest.raises(RequestError) as caught:
        Job(request(content, **fields), contract)
    return str(caught.value)


def request(content: bytes, **fields: Any) -> RasterRequest:
    return RasterRequest.parse({"data": base64.b64encode(content).decode(), **fields})


def from_utm(east: float, north: float, meridian: float) -> tuple[float, float]:
    """Latitude and longitude on WGS 84 by Krüger's series in the third flattening."""
    flattening = 1 / 298.257223563
    n = flattening / (2 - flattening)
    radius = 6_378_137 / (1 + n) * (1 + n**2 / 4 + n**4 / 64 + n**6 / 256)
    inverse = (
        n / 2 - 2 * n**2 / 3 + 37 * n**3 / 96 - n**4 / 360,
        n**2 / 48 + n**3 / 15 - 437 * n**4 / 1440,
        17 * n**3 / 480 - 37 * n**4 / 840,
        4397 * n**4 / 161280,
    )
    latitudes = (
        2 * n - 2 * n**2 / 3 - 2 * n**3 + 116 * n**4 / 45,
        7 * n**2 / 3 - 8 * n**3 / 5 - 227 * n**4 / 45,
        56 * n**3 / 15 - 136 * n**4 / 35,
        4279 * n**4 / 630,
    )
    xi, eta = north / (0.9996 * radius), (east - 500_000) / (0.9996 * radius)
    wave = [2 * (j + 1) for j in range(4)]
    xi_ = xi - sum(
        b * np.sin(k * xi) * np.cosh(k * eta) for b, k in zip(inverse, wave, strict=True)
    )
    eta_ = eta - sum(
        b * np.cos(k * xi) * np.sinh(k * eta) for b, k in zip(inverse, wave, strict=True)
    )
    chi = np.arcsin(np.sin(xi_) / np.cosh(eta_))
    latitude = chi + sum(d * np.sin(k * chi) for d, k in zip(latitudes, wave, strict=True))
    longitude = np.arctan2(np.sinh(eta_), np.cos(xi_))
    return float(np.degrees(latitude)), meridian + float(np.degrees(longitude))


def polynomials() -> RPC:
    """Sample and line grow with longitude and latitude."""
    one, latitude, longitude = ([0.0] * i + [1.0] + [0.0] * (19 - i) for i in (0, 2, 1))
    return RPC(
        height_off=100.0, height_scale=500.0, lat_off=45.0, lat_scale=0.1, line_den_coeff=one,
        line_num_coeff=latitude, line_off=15.5, line_scale=16.0, long_off=7.0, long_scale=0.1,
        samp_den_coeff=one, samp_num_coeff=longitude, samp_off=23.5, samp_scale=24.0,
    )  # fmt: skip
