"""Which part of a scene is mapped, and how large the network's pixels are."""

from typing import Any

import pytest
from rasterio import Affine
from rasterio.crs import CRS
from rasterio.warp import transform_bounds

from vllm_raster_io.errors import RequestError
from vllm_raster_io.georeference import Georeference, placed
from vllm_raster_io.regions import Region, find_region
from vllm_raster_io.requests import RasterRequest
from vllm_raster_io.tiling import Window

UTM = CRS.from_epsg(32632)
NORTH_UP = Georeference(UTM, Affine(10, 0, 600_000, 0, -10, 5_300_000))
TURNED = Georeference(UTM, Affine(8, -6, 600_000, -6, -8, 5_300_000))


def found(place: Georeference = NORTH_UP, **fields: Any) -> Region:
    """In a scene of 100 rows and 200 columns."""
    return find_region(RasterRequest(data="", **fields), place, 100, 200)


def refusal(place: Georeference = NORTH_UP, **fields: Any) -> str:
    with pytest.raises(RequestError) as caught:
        found(place, **fields)
    return str(caught.value)


def test_all_of_it() -> None:
    assert found() == Region(Window(0, 0, 100, 200))
    assert found(Georeference()) == Region(Window(0, 0, 100, 200))


class TestWindow:
    @pytest.mark.parametrize("window", [[0, 0, 200, 100], [199, 99, 1, 1], [3, 5, 20, 30]])
    def test_is_column_row_columns_rows(self, window: list[int]) -> None:
        column, row, width, height = window
        assert found(window=window).window == Window(row, column, height, width)

    @pytest.mark.parametrize("window", [[0, 0, 201, 100], [0, 1, 200, 100], [200, 0, 1, 1]])
    def test_must_lie_within(self, window: list[int]) -> None:
        told = "[column, row, columns, rows] of a scene of 200 columns and 100 rows"
        assert told in refusal(window=window)


class TestBox:
    @pytest.mark.parametrize(
        ("bbox", "window"),
        [
            ([600_000, 5_299_000, 602_000, 5_300_000], (0, 0, 100, 200)),
            ([600_100, 5_299_900, 600_120, 5_299_950], (5, 10, 5, 2)),
            ([600_101, 5_299_901, 600_119, 5_299_949], (5, 10, 5, 2)),
            ([600_099, 5_299_899, 600_121, 5_299_951], (4, 9, 7, 4)),
            ([600_000.0000001, 5_299_990, 600_010.0000001, 5_300_000], (0, 0, 1, 1)),
            ([600_015, 5_299_985, 600_015.0000001, 5_299_985.0000001], (1, 1, 1, 1)),
            ([500_000, 5_000_000, 600_015, 5_299_015], (98, 0, 2, 2)),
        ],
    )
    def test_all_pixels_that_it_touches(self, bbox: list[float], window: tuple[int, ...]) -> None:
        assert found(bbox=bbox).window == Window(*window)

    def test_of_a_turned_scene(self) -> None:
        x, y = placed(TURNED.transform, 50.5, 20.5)  # type: ignore[arg-type]
        region = found(TURNED, bbox=[x - 1, y - 1, x + 1, y + 1])
        assert region.window == Window(20, 50, 1, 1)

    def test_of_numbers_that_are_no_places(self) -> None:
        box = [-1.7e308, -1.7e308, 1.7e308, 1.7e308]
        tiny = Georeference(UTM, Affine(1e-5, 1e-5, 0, 1e-5, -1e-5, 0))
        assert "must hold numbers that can be places" in refusal(tiny, bbox=box)

    def test_in_another_system(self) -> None:
        wanted = (600_505, 5_299_505, 601_495, 5_299_745)
        box = list(transform_bounds(UTM, "EPSG:4326", *wanted))
        part = found(bbox=box, bbox_crs="EPSG:4326").window
        # What is upright there lies askew here, so it is a little more.
        assert part.row <= 25
        assert part.row + part.height >= 50
        assert part.column <= 50
        assert part.column + part.width >= 150
        assert part.height <= 25 + 6
        assert part.width <= 100 + 6
        assert found(bbox=box, bbox_crs="ogc:crs84").window == part

    def test_of_a_scene_without_a_reference_system(self) -> None:
        place = Georeference(transform=Affine(2, 0, 0, 0, -2, 0))
        assert found(place, bbox=[2, -6, 4, -2]).window == Window(1, 1, 2, 1)
        message = refusal(place, bbox=[2, -6, 4, -2], bbox_crs="EPSG:4326")
        assert "`bbox_crs` is refused: the scene has no reference system" in message

    @pytest.mark.parametrize(
        "bbox",
        [
            [0, 0, 1, 1],
            [602_000, 5_299_000, 603_000, 5_300_000],
            [599_000, 5_299_000, 600_000, 5_300_000],
            [-1e300, -1e300, -1e299, 1e300],
        ],
    )
    def test_beside_the_scene(self, bbox: list[float]) -> None:
        message = refusal(bbox=bbox)
        assert "from (600000, 5299000) to (602000, 5300000)" in message

    def test_of_a_scene_without_a_transform(self) -> None:
        assert "Give `window` in pixels" in refusal(Georeference(UTM), bbox=[0, 0, 1, 1])
        lined = Georeference(UTM, Affine(1, 1, 0, 1, 1, 0))
        assert "lie on one line" in refusal(lined, bbox=[0, 0, 1, 1])

    @pytest.mark.parametrize(
        "crs",
        ["EPSG:0", "/etc/passwd", "http://localhost/x", "+proj=longlat", "EPSG:4326\n", "WGS84"],
    )
    def test_systems_are_named_by_number_only(self, crs: str) -> None:
        message = refusal(bbox=[0, 0, 1, 1], bbox_crs=crs)
        assert "by its authority and number" in message

    def test_no_place_in_the_scenes_system(self) -> None:
        assert "`bbox`" in refusal(bbox=[-1, 89, 1, 91], bbox_crs="EPSG:4326")


class TestResolution:
    @pytest.mark.parametrize(
        ("asked", "ratios"),
        [(10, (1, 1)), (20, (2, 2)), (2.5, (0.25, 0.25)), ([20, 10], (1, 2)), (300, (30, 30))],
    )
    def test_in_pixels_of_the_scene(self, asked: Any, ratios: tuple[float, float]) -> None:
        region = found(resolution=asked)
        assert region.ratios == ratios
        assert region.resolution == (tuple(asked) if isinstance(asked, list) else (asked, asked))
        assert found(TURNED, resolution=asked).ratios == ratios

    def test_beside_a_part(self) -> None:
        region = found(resolution=20, window=[2, 3, 4, 5])
        assert region == Region(Window(3, 2, 5, 4), (2, 2), (20, 20))

    @pytest.mark.parametrize("asked", [0.1, 321, [10, 400], 1e300, 5e-324, 1.7e308])
    def test_has_ends(self, asked: Any) -> None:
        assert "from 1/16 of the size of the scene's pixels to 32 times it" in refusal(
            resolution=asked
        )

    def test_of_pixels_without_a_size(self) -> None:
        for transform in (Affine(0, 0, 5, 0, 0, 5), Affine(1, 0, 5, 0, 0, 5)):
            message = refusal(Georeference(UTM, transform), resolution=10)
            assert "the scene's pixels have no size" in message

    def test_of_a_scene_that_does_not_tell_its_own(self) -> None:
        assert "does not tell how large its pixels are" in refusal(Georeference(), resolution=10)
