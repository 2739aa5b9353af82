"""Where maps lie: reference system, transform, control points, rational polynomials."""

from typing import Any

import numpy as np
import pytest
from rasterio import Affine
from rasterio.control import GroundControlPoint
from rasterio.io import MemoryFile
from rasterio.rpc import RPC
from rasterio.transform import RPCTransformer

from vllm_raster_io.errors import RasterError
from vllm_raster_io.georeference import placed
from vllm_raster_io.tiling import Window

from ..factories import make_raster
from .geotiffs import WRITERS, map_of, reading, tags_of, write
from .requesting import mapped, noise
from .scenes import make_contract, open_scene
from .tiff import TIE_POINTS, single_strip

ungeoreferenced = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

CORNERS = [(row, col, 10 + col / 48, 50 - row / 32) for row in (0, 32) for col in (0, 48)]
POINTS = [GroundControlPoint(row, col, x, y, 7.0) for row, col, x, y in CORNERS]
ENGINEERING = 'LOCAL_CS["site",UNIT["metre",1],AXIS["x",EAST],AXIS["y",NORTH]]'


def polynomials() -> RPC:
    """Sample and line grow with longitude and latitude; 0.1° are half the scene."""
    one, latitude, longitude = ([0.0] * i + [1.0] + [0.0] * (19 - i) for i in (0, 2, 1))
    return RPC(
        height_off=100.0,
        height_scale=500.0,
        lat_off=45.0,
        lat_scale=0.1,
        line_den_coeff=one,
        line_num_coeff=latitude,
        line_off=15.5,
        line_scale=16.0,
        long_off=7.0,
        long_scale=0.1,
        samp_den_coeff=one,
        samp_num_coeff=longitude,
        samp_off=23.5,
        samp_scale=24.0,
    )


class TestPlace:
    @pytest.mark.parametrize(
        "transform",
        [
            Affine(10, 0, 600_000, 0, -10, 5_300_000),
            Affine(10, 3, 600_000, -3, -8, 5_300_000),
            Affine(-1, 0, 5, 0, 1, 0),
        ],
    )
    @pytest.mark.parametrize("crs", ["EPSG:32719", "EPSG:3035", ENGINEERING])
    @pytest.mark.parametrize("kind", ["Area", "Point"])
    def test_transform(self, transform: Affine, crs: str, kind: str) -> None:
        scene = make_raster(crs=crs, transform=transform, tags={"AREA_OR_POINT": kind})
        with reading(map_of(scene, 1)) as one, MemoryFile(scene) as file, file.open() as source:
            assert one.crs == source.crs
            assert one.transform == source.transform == transform
            assert one.tags()["AREA_OR_POINT"] == source.tags()["AREA_OR_POINT"] == kind

    @pytest.mark.parametrize("kind", ["Area", "Point"])
    def test_upscaled(self, kind: str) -> None:
        scene = make_raster(
            height=10,
            width=12,
            transform=Affine(10, 2, 600_000, 3, -8, 5_300_000),
            tags={"AREA_OR_POINT": kind},
        )
        with reading(map_of(scene, 4)) as dataset:
            assert dataset.transform.almost_equals(
                Affine(2.5, 0.5, 600_000, 0.75, -2, 5_300_000), precision=1e-9
            )
            # The corner that lies opposite to the origin.
            assert dataset.xy(40, 48, offset="ul") == pytest.approx((600_140, 5_299_956))
            assert dataset.tags()["AREA_OR_POINT"] == kind

    @ungeoreferenced
    def test_none_is_invented(self) -> None:
        for upscale in (1, 4):
            content = map_of(make_raster(crs=None), upscale)
            assert tags_of(content).isdisjoint({33550, 33922, 34264, 34735, 50844})
            with MemoryFile(content) as memory, memory.open() as dataset:
                assert dataset.crs is None
                assert dataset.gcps == ([], None)
                assert dataset.rpcs is None

    @ungeoreferenced
    def test_a_reference_system_without_a_transform(self) -> None:
        content = map_of(make_raster(transform=Affine.identity()), 4)
        assert tags_of(content).isdisjoint({33550, 33922, 34264})
        with MemoryFile(content) as memory, memory.open() as dataset:
            assert dataset.crs.to_epsg() == 32632
            assert dataset.transform == Affine.identity()

    def test_a_transform_without_a_reference_system(self) -> None:
        content = map_of(make_raster(crs=None, transform=Affine(2, 0, 5, 0, -2, 7)), 4)
        with reading(content) as dataset:
            assert dataset.crs is None
            assert dataset.transform == Affine(0.5, 0, 5, 0, -0.5, 7)

    @pytest.mark.parametrize("upscale", [1, 4])
    @pytest.mark.parametrize("kind", ["Area", "Point"])
    def test_control_points(self, upscale: int, kind: str) -> None:
        scene = make_raster(crs="EPSG:4326", gcps=POINTS, tags={"AREA_OR_POINT": kind})
        with MemoryFile(scene) as file, file.open() as source:
            points = source.gcps[0]
        with reading(map_of(scene, upscale)) as dataset:
            found, crs = dataset.gcps
            assert crs.to_epsg() == 4326
            assert dataset.transform == Affine.identity()
            assert dataset.tags()["AREA_OR_POINT"] == kind
        assert len(found) == 4
        for point, other in zip(points, found, strict=True):
            assert (other.row, other.col) == (point.row * upscale, point.col * upscale)
            assert (other.x, other.y, other.z) == (point.x, point.y, point.z)

    def test_control_points_without_a_reference_system(self) -> None:
        ties = [number for row, col, x, y in CORNERS for number in (col, row, 0, x, y, 0)]
        scene = single_strip(np.zeros((32, 48), np.uint8), {TIE_POINTS: ("d", ties)})
        with reading(map_of(scene, 2)) as dataset:
            points, crs = dataset.gcps
            assert dataset.crs is None
        assert not crs
        assert [(one.row, one.col, one.x, one.y) for one in points] == [
            (2 * row, 2 * col, x, y) for row, col, x, y in CORNERS
        ]

    @pytest.mark.parametrize("upscale", [1, 4])
    def test_rational_polynomials(self, upscale: int) -> None:
        scene = make_raster(crs=None, rpcs=polynomials())
        with reading(map_of(scene, upscale)) as dataset:
            with RPCTransformer(dataset.rpcs) as found, RPCTransformer(polynomials()) as expected:
                for row, col in [(0, 0), (32, 48), (8, 40)]:
                    place = found.xy(row * upscale, col * upscale, zs=100, offset="ul")
                    assert place == pytest.approx(
                        expected.xy(row, col, zs=100, offset="ul"), abs=1e-9
                    )
            assert dataset.rpcs.line_scale == 16 * upscale
            assert dataset.rpcs.height_off == 100

    @pytest.mark.parametrize("options", [{"gcps": POINTS}, {"rpcs": polynomials()}, {}])
    def test_a_scene_may_be_mapped_twice(self, options: dict[str, Any]) -> None:
        with open_scene(make_raster(crs="EPSG:4326", **options)) as scene:
            first, second = (write(scene.dataset, 4) for _ in range(2))
        assert first == second


PART = Window(5, 9, 20, 30)


class TestPart:
    """A part of a scene lies where its pixels lay in the whole."""

    @pytest.mark.parametrize("scale", [(1, 1), (4, 1), (1, 4)])
    @pytest.mark.parametrize("kind", ["Area", "Point"])
    def test_transform(self, scale: tuple[int, int], kind: str) -> None:
        transform = Affine(10, 3, 600_000, -3, -8, 5_300_000)
        scene = make_raster(transform=transform, tags={"AREA_OR_POINT": kind})
        up, down = scale
        with reading(map_of(scene, up, downscale=down, window=PART)) as dataset:
            for row, column in [(0, 0), (20, 28), (4, 16)]:
                found = dataset.xy(row * up / down, column * up / down, offset="ul")
                assert found == pytest.approx(placed(transform, column + 9, row + 5), abs=1e-6)

    @pytest.mark.parametrize("kind", ["Area", "Point"])
    def test_control_points(self, kind: str) -> None:
        scene = make_raster(crs="EPSG:4326", gcps=POINTS, tags={"AREA_OR_POINT": kind})
        with MemoryFile(scene) as file, file.open() as source:
            points = source.gcps[0]
        with reading(map_of(scene, 2, window=PART)) as dataset:
            found, _ = dataset.gcps
        for point, other in zip(points, found, strict=True):
            assert (other.row, other.col) == ((point.row - 5) * 2, (point.col - 9) * 2)
            assert (other.x, other.y, other.z) == (point.x, point.y, point.z)

    @pytest.mark.parametrize("scale", [(1, 1), (4, 1), (1, 4)])
    def test_rational_polynomials(self, scale: tuple[int, int]) -> None:
        up, down = scale
        content = map_of(make_raster(crs=None, rpcs=polynomials()), up, downscale=down, window=PART)
        with (
            reading(content) as dataset,
            RPCTransformer(dataset.rpcs) as found,
            RPCTransformer(polynomials()) as expected,
        ):
            for row, col in [(0, 0), (20, 28), (4, 16)]:
                place = found.xy(row * up / down, col * up / down, zs=100, offset="ul")
                wanted = expected.xy(row + 5, col + 9, zs=100, offset="ul")
                assert place == pytest.approx(wanted, abs=1e-9)

    @ungeoreferenced
    def test_none_is_invented(self) -> None:
        content = map_of(make_raster(crs=None), 2, window=PART)
        assert tags_of(content).isdisjoint({33550, 33922, 34264, 34735, 50844})


@ungeoreferenced
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"crs": None},
        {"transform": Affine(10, 3, 600_000, -3, -8, 5_300_000)},
        {"tags": {"AREA_OR_POINT": "Point"}},
        {"crs": "EPSG:4326", "gcps": POINTS},
        {"crs": "EPSG:4326", "gcps": POINTS, "tags": {"AREA_OR_POINT": "Point"}},
        {"crs": None, "rpcs": polynomials()},
    ],
)
def test_a_cog_lies_where_a_geotiff_does(options: dict[str, Any]) -> None:
    scene = make_raster(**options)
    places = []
    for writer in WRITERS.values():
        content = map_of(scene, 2, window=PART, writer=writer)
        with MemoryFile(content) as memory, memory.open() as one:
            points = [(p.row, p.col, p.x, p.y, p.z) for p in one.gcps[0]]
            rpcs = one.rpcs and one.rpcs.to_dict()
            kind = one.tags().get("AREA_OR_POINT")
            places.append((one.crs, one.transform, points, one.gcps[1], rpcs, kind))
    assert places[0] == places[1]


@pytest.mark.parametrize(
    ("transform", "fields"),
    [
        (Affine(1, 0, np.nan, 0, -1, 0), {}),
        (Affine(1, np.nan, 0, np.nan, -1, 0), {"format": "cog"}),
        (Affine(np.inf, 0, 0, 0, -1, 0), {"window": [5, 5, 9, 9]}),
        (Affine(1, 0, np.nan, 0, -1, 0), {"bbox": [0, 0, 1, 1]}),
        # Finite, but not where the part begins.
        (Affine(1e308, 0, 1e308, 0, -1e308, 0), {"window": [5, 5, 9, 9]}),
    ],
)
def test_what_no_answer_can_tell_is_refused(transform: Affine, fields: dict[str, Any]) -> None:
    scene = make_raster(values=noise(20, 30), transform=transform)
    with pytest.raises(RasterError, match="must be made of finite numbers, but is"):
        mapped(scene, make_contract(), **fields)
