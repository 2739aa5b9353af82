"""Where on Earth a window lies: worked out by hand, or by a transformation of single points."""

import numpy as np
import pytest
from rasterio import Affine
from rasterio.control import GroundControlPoint
from rasterio.warp import transform

from vllm_raster_io.places import centres
from vllm_raster_io.tiling import Tiling, Window

from ..factories import make_raster
from .scenes import open_scene
from .tiff import TIE_POINTS, single_strip

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

WHOLE = Window(0, 0, 32, 48)
GEOGRAPHIC = {"crs": "EPSG:4326"}


class TestGeographic:
    def test_latitude_comes_first(self) -> None:
        content = make_raster(**GEOGRAPHIC, transform=Affine(0.5, 0, 10, 0, -0.25, 60))
        assert places(content, WHOLE) == [(56, 22)]

    def test_each_window_has_its_own(self) -> None:
        content = make_raster(
            height=40, width=60, **GEOGRAPHIC, transform=Affine(0.1, 0, -70, 0, -0.1, -30)
        )
        windows = Tiling(40, 60, 20, 0).windows()
        expected = [
            (-30 - 0.1 * (row + 10), -70 + 0.1 * (column + 10))
            for row in (0, 20)
            for column in (0, 20, 40)
        ]
        np.testing.assert_allclose(places(content, *windows), expected)

    def test_odd_sizes_have_their_centre_within_a_pixel(self) -> None:
        content = make_raster(**GEOGRAPHIC, transform=Affine(1, 0, 0, 0, -1, 40))
        assert places(content, Window(3, 5, 1, 7)) == [(36.5, 8.5)]

    def test_rotated_and_upside_down(self) -> None:
        content = make_raster(**GEOGRAPHIC, transform=Affine(0.1, 0.2, 1, 0.3, 0.4, 2))
        # The centre is at row 16, column 24.
        np.testing.assert_allclose(places(content, WHOLE), [(2 + 7.2 + 6.4, 1 + 2.4 + 3.2)])

    def test_a_pixel_is_a_point(self) -> None:
        options = {**GEOGRAPHIC, "transform": Affine(0.5, 0, 10, 0, -0.25, 60)}
        content = make_raster(**options, tags={"AREA_OR_POINT": "Point"})
        assert places(content, WHOLE) == places(make_raster(**options), WHOLE)

    def test_beyond_the_antimeridian(self) -> None:
        content = make_raster(**GEOGRAPHIC, transform=Affine(0.1, 0, 179, 0, -0.1, -16))
        found = places(content, Window(0, 0, 10, 10), Window(0, 6, 10, 10), WHOLE)
        np.testing.assert_allclose(found, [(-16.5, 179.5), (-16.5, -179.9), (-17.6, -178.6)])

    def test_longitudes_from_0_to_360(self) -> None:
        content = make_raster(**GEOGRAPHIC, transform=Affine(1, 0, 276, 0, -1, 16))
        assert places(content, WHOLE) == [(0, -60)]


class TestProjected:
    @pytest.mark.parametrize(
        ("crs", "x", "y", "near"),
        [
            ("EPSG:32632", 600_000, 5_300_000, (48, 10)),  # southern Germany
            ("EPSG:32719", 355_000, 7_480_000, (-23, -70)),  # northern Chile
            ("EPSG:32760", 700_000, 8_000_000, (-18, 179)),  # Fiji
            ("EPSG:32701", 180_000, 8_000_000, (-18, 180)),
            ("EPSG:3857", -5_000_000, -2_000_000, (-18, -45)),
            ("EPSG:3035", 4_321_000, 3_210_000, (52, 10)),
            ("EPSG:3995", 1_000_000, -1_000_000, (77, 45)),  # around the north pole
            ("EPSG:3031", -1_000_000, -1_500_000, (-73, -146)),
            ("EPSG:2056", 2_600_000, 1_200_000, (47, 7)),  # another datum
        ],
    )
    def test_as_one_point(self, crs: str, x: float, y: float, near: tuple[float, float]) -> None:
        content = make_raster(crs=crs, transform=Affine(10, 0, x, 0, -10, y))
        ((latitude, longitude),) = places(content, WHOLE)
        (expected_longitude,), (expected_latitude,) = transform(
            crs, "EPSG:4326", [x + 240], [y - 160]
        )
        assert latitude == pytest.approx(expected_latitude, abs=1e-9)
        assert longitude == pytest.approx(expected_longitude, abs=1e-9)
        assert latitude == pytest.approx(near[0], abs=1)
        assert (longitude - near[1] + 180) % 360 - 180 == pytest.approx(0, abs=1)

    def test_web_mercator_by_hand(self) -> None:
        radius = 6_378_137
        y = radius * np.log(np.tan(np.pi / 4 + np.radians(-33.5) / 2))
        content = make_raster(
            crs="EPSG:3857",
            transform=Affine(2, 0, radius * np.radians(151.25) - 48, 0, -2, y + 32),
        )
        np.testing.assert_allclose(places(content, WHOLE), [(-33.5, 151.25)])


POINTS = [
    GroundControlPoint(row, col, 600_000 + 10 * col + 2 * row, 5_300_000 - 10 * row + 3 * col)
    for row, col in [(0, 0), (0, 48), (32, 0), (32, 48), (11, 7)]
]


class TestControlPoints:
    def test_alone(self) -> None:
        content = make_raster(crs="EPSG:32632", gcps=POINTS)
        (longitude,), (latitude,) = transform(
            "EPSG:32632", "EPSG:4326", [600_000 + 240 + 32], [5_300_000 - 160 + 72]
        )
        np.testing.assert_allclose(places(content, WHOLE), [(latitude, longitude)])

    def test_that_do_not_fit_exactly(self) -> None:
        points = [
            GroundControlPoint(one.row, one.col, one.x + dx, one.y)
            for one, dx in zip(POINTS, (1, -1, -1, 1, 0), strict=True)
        ]
        exact = places(make_raster(crs="EPSG:32632", gcps=POINTS), WHOLE)
        found = places(make_raster(crs="EPSG:32632", gcps=points), WHOLE)
        np.testing.assert_allclose(found, exact, atol=1e-5)

    @pytest.mark.parametrize("count", [1, 2])
    def test_too_few(self, count: int) -> None:
        assert places(make_raster(crs="EPSG:32632", gcps=POINTS[:count]), WHOLE) is None

    def test_on_one_line(self) -> None:
        points = [GroundControlPoint(i, 2 * i, 600_000 + i, 5_300_000 - i) for i in range(5)]
        assert places(make_raster(crs="EPSG:32632", gcps=points), WHOLE) is None

    @pytest.mark.parametrize("number", [np.nan, np.inf, 1e300])
    @pytest.mark.parametrize("name", ["row", "col", "x", "y"])
    def test_that_lie_nowhere(self, name: str, number: float) -> None:
        numbers = {"row": 5, "col": 6, "x": 10, "y": 50, name: number}
        points = [*POINTS, GroundControlPoint(**numbers)]
        assert places(make_raster(crs="EPSG:4326", gcps=points), WHOLE) is None

    def test_without_a_reference_system(self) -> None:
        ties = [number for p in POINTS for number in (p.col, p.row, 0, p.x / 1e5, p.y / 1e6, 0)]
        content = single_strip(np.zeros((32, 48), np.uint8), {TIE_POINTS: ("d", ties)})
        assert places(content, WHOLE) is None


@pytest.mark.parametrize(
    "options",
    [
        {"crs": None},
        {"crs": None, "transform": Affine(0.1, 0, 10, 0, -0.1, 50)},
        {"transform": Affine.identity()},
        {"crs": 'LOCAL_CS["site",UNIT["metre",1],AXIS["x",EAST],AXIS["y",NORTH]]'},
        {"crs": 'ENGCRS["ship",EDATUM["bow"],CS[Cartesian,2],AXIS["x",east],AXIS["y",north],'
                'LENGTHUNIT["metre",1]]'},
        {"crs": "IAU_2015:30100"},  # the Moon
        {"crs": "+proj=longlat +R=3396190 +no_defs"},  # Mars
        {"transform": Affine(1e9, 0, 1e12, 0, -1e9, 1e12)},
        {"crs": "EPSG:4326", "transform": Affine(1, 0, 0, 0, -1, 500)},
        {"crs": "EPSG:4326", "transform": Affine(1, 0, 5_000, 0, -1, 50)},
        {"crs": "EPSG:4978", "transform": Affine(10, 0, 4e6, 0, -10, 5e6)},  # geocentric
        {"transform": Affine(0, 0, 6e5, 0, 0, 53e5)},
        {"transform": Affine(10, 10, 6e5, 10, 10, 53e5)},  # all pixels on one line
    ],
    ids=str,
)  # fmt: skip
def test_what_tells_no_place_on_earth(options: dict[str, object]) -> None:
    assert places(make_raster(**options), WHOLE) is None


def test_without_georeference_a_picture_has_none() -> None:
    assert places(make_raster(crs=None, driver="PNG", dtype="uint8", bands=3), WHOLE) is None


def middle(window: Window) -> tuple[float, float]:
    return window.row + window.height / 2, window.column + window.width / 2


def places(content: bytes, *windows: Window) -> list[tuple[float, float]] | None:
    with open_scene(content) as scene:
        found = centres(scene.dataset, [middle(one) for one in windows])
    if found is None:
        return None
    assert found.shape == (len(windows), 2)
    assert found.dtype == np.float64
    return [(float(latitude), float(longitude)) for latitude, longitude in found]
