"""Maps as GeoTIFF: the values, the place and the form of the file."""

import logging
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import rasterio
from rasterio import Affine
from rasterio.control import GroundControlPoint
from rasterio.enums import ColorInterp, Compression, Interleaving
from rasterio.errors import NotGeoreferencedWarning, RasterioError
from rasterio.io import DatasetReader, MemoryFile
from rasterio.rpc import RPC
from rasterio.transform import RPCTransformer

from vllm_raster_io.contract import BandContract, ClassContract, OutputContract
from vllm_raster_io.maps import (
    RasterMap,
    class_dtype,
    class_map,
    opened,
    rgb,
    value_map,
    write_geotiff,
)

from ..factories import make_raster
from .scenes import open_scene
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


class TestValues:
    @pytest.mark.parametrize(
        ("classes", "dtype"),
        [(1, "uint8"), (2, "uint8"), (255, "uint8"), (256, "uint16"), (300, "uint16")],
    )
    def test_the_smallest_type_with_a_value_to_spare(self, classes: int, dtype: str) -> None:
        assert class_dtype(classes) == np.dtype(dtype)

    def test_ids_as_they_are(self) -> None:
        ids = np.array([[0, 1], [2, 3]], np.uint8)
        content = written(class_map(ids.copy(), nothing(ids)), classes(4))
        with reading(content) as dataset:
            assert dataset.dtypes == ("uint8",)
            assert dataset.nodata == 255
            np.testing.assert_array_equal(dataset.read(1), ids)
            np.testing.assert_array_equal(dataset.read_masks(1), np.full((2, 2), 255))

    def test_class_0_alone_is_valid(self) -> None:
        ids = np.zeros((5, 4), np.uint8)
        content = written(class_map(ids, nothing(ids)), classes(2))
        with reading(content) as dataset:
            assert not dataset.read(1, masked=True).mask.any()
            assert not dataset.read(1).any()

    @pytest.mark.parametrize("count", [255, 300])
    def test_nodata_is_no_class(self, count: int) -> None:
        ids = (np.arange(10 * 30).reshape(10, 30) % count).astype(class_dtype(count))
        invalid = nothing(ids)
        invalid[3, 4:] = invalid[0, 0] = True
        content = written(class_map(ids.copy(), invalid), classes(count))
        with reading(content) as dataset:
            assert dataset.nodata >= count
            pixels = dataset.read(1, masked=True)
        np.testing.assert_array_equal(pixels.mask, invalid)
        np.testing.assert_array_equal(pixels.data[~invalid], ids[~invalid])

    def test_floats_as_they_are(self) -> None:
        values = np.array(
            [[[70_000, 0.25, 0.75], [-1e-30, 16_777_217, 3.4e38]], np.arange(6).reshape(2, 3)],
            np.float32,
        )
        invalid = np.array([[0, 0, 0], [0, 0, 1]], bool)
        content = written(value_map(values.copy(), invalid), bands("a", "b"))
        with reading(content) as dataset:
            assert dataset.dtypes == ("float32", "float32")
            assert np.isnan(dataset.nodata)
            pixels = dataset.read()
            np.testing.assert_array_equal(dataset.read_masks(2) == 0, invalid)
        np.testing.assert_array_equal(pixels[:, ~invalid], values[:, ~invalid])
        assert np.isnan(pixels[:, invalid]).all()

    @pytest.mark.parametrize("size", [(1, 1), (1, 300), (300, 1), (5, 7), (513, 255), (256, 257)])
    @pytest.mark.parametrize("kind", ["classes", "values"])
    def test_sizes(self, size: tuple[int, int], kind: str) -> None:
        chance = np.random.default_rng(0)
        if kind == "classes":
            raster = RasterMap(chance.integers(0, 4, (1, *size)).astype(np.uint8), 255)
            content = written(raster, classes(4))
        else:
            raster = RasterMap(chance.normal(size=(2, *size)).astype(np.float32), np.nan)
            content = written(raster, bands("a", "b"))
        with reading(content) as dataset:
            np.testing.assert_array_equal(dataset.read(), raster.pixels)


class TestNames:
    def test_classes_and_their_colours(self) -> None:
        output = OutputContract(
            kind="classes",
            classes=(
                ClassContract(name="water", color="#2060c0"),
                ClassContract(name="Wald & Wiese", color="#00FF7f"),
                ClassContract(name="other"),
            ),
        )
        with reading(written(RasterMap(np.zeros((1, 3, 4), np.uint8), 255), output)) as dataset:
            colours = dataset.colormap(1)
            assert dataset.colorinterp == (ColorInterp.palette,)
            assert dataset.descriptions == ("class",)
            tags = dataset.tags(1)
        assert [colours[i] for i in range(3)] == [
            (0x20, 0x60, 0xC0, 255),
            (0, 255, 0x7F, 255),
            (128, 128, 128, 255),
        ]
        assert [tags[f"CLASS_{i}"] for i in range(3)] == ["water", "Wald & Wiese", "other"]

    def test_many_classes_have_names_only(self) -> None:
        raster = RasterMap(np.full((1, 2, 2), 299, np.uint16), 65_535)
        with reading(written(raster, classes(300))) as dataset:
            assert dataset.tags(1)["CLASS_299"] == "class 299"
            with pytest.raises(ValueError, match="NULL color table"):
                dataset.colormap(1)

    def test_bands_and_their_units(self) -> None:
        output = OutputContract(
            kind="values",
            bands=(BandContract(name="biomass", unit="Mg/ha"), BandContract(name="höhe")),
        )
        with reading(written(RasterMap(np.zeros((2, 3, 4), np.float32), np.nan), output)) as one:
            assert one.descriptions == ("biomass", "höhe")
            assert [unit or None for unit in one.units] == ["Mg/ha", None]

    def test_colours(self) -> None:
        assert rgb("#00ff7F") == (0, 255, 127)
        assert rgb(None) == (128, 128, 128)


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


class TestForm:
    @pytest.mark.parametrize(
        "options",
        [
            {"dtype": "uint8", "bands": 3, "compress": "jpeg", "photometric": "ycbcr"},
            {"tiled": True, "blockxsize": 16, "blockysize": 16, "compress": "lzw", "predictor": 2},
            {"dtype": "uint8", "bands": 1, "nbits": 1, "values": 1, "compress": "ccittfax4"},
            {"interleave": "pixel", "nodata": 0, "bigtiff": "yes"},
            {"dtype": "int16", "compress": "deflate", "predictor": 2, "sparse_ok": True},
            {"dtype": "float64", "compress": "lerc"},
        ],
    )
    @pytest.mark.parametrize("kind", ["classes", "values"])
    def test_made_afresh(self, options: dict[str, Any], kind: str) -> None:
        scene = make_raster(tags={"secret": "of the scene"}, descriptions=["x"], **options)
        with open_scene(scene) as source:
            content = write(source.dataset, 1, kind)
        with reading(content) as dataset:
            assert dataset.driver == "GTiff"
            assert set(dataset.block_shapes) == {(256, 256)}
            assert dataset.compression == Compression.deflate
            assert dataset.interleaving in (None, Interleaving.band)
            assert "x" not in dataset.descriptions
            assert "secret" not in dataset.tags()
            structure = dataset.tags(ns="IMAGE_STRUCTURE")
            assert structure["PREDICTOR"] == ("2" if kind == "classes" else "3")
            assert "NBITS" not in dataset.tags(1, ns="IMAGE_STRUCTURE")
            expected = map_pixels(kind, 32, 48)
            np.testing.assert_array_equal(dataset.read(), expected)

    def test_large_maps_of_few_values_are_small(self) -> None:
        raster = RasterMap(np.zeros((1, 1_000, 1_000), np.uint8), 255)
        assert len(written(raster, classes(2))) < 20_000

    def test_the_time_is_kept(self) -> None:
        scene = make_raster(tags={"TIFFTAG_DATETIME": "2024:05:06 07:08:09"})
        with reading(map_of(scene, 1)) as dataset:
            assert dataset.tags()["TIFFTAG_DATETIME"] == "2024:05:06 07:08:09"


def test_opened_gives_the_memory_back() -> None:
    content = map_of(make_raster(), 1)
    with opened(content) as dataset:
        name = dataset.name
        assert dataset.shape == (32, 48)
    with pytest.raises(RasterioError):
        rasterio.open(name)


@contextmanager
def reading(content: bytes) -> Iterator[DatasetReader]:
    """Opens a map as a careful user would: nothing may be warned of, also not by GDAL."""
    said: list[logging.LogRecord] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = said.append  # type: ignore[method-assign]
    logging.getLogger("rasterio").addHandler(handler)
    try:
        with MemoryFile(content) as memory:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                # That a map of a scene without a place has none is another test's.
                warnings.simplefilter("ignore", NotGeoreferencedWarning)
                dataset = memory.open()
            yield dataset
    finally:
        logging.getLogger("rasterio").removeHandler(handler)
    assert not said, [record.getMessage() for record in said]


def map_of(scene: bytes, upscale: int) -> bytes:
    with open_scene(scene) as source:
        return write(source.dataset, upscale)


def write(scene: DatasetReader, upscale: int, kind: str = "classes") -> bytes:
    pixels = map_pixels(kind, scene.height * upscale, scene.width * upscale)
    output = classes(3, upscale) if kind == "classes" else bands("a", "b", upscale=upscale)
    return write_geotiff(RasterMap(pixels, 255 if kind == "classes" else np.nan), scene, output)


def map_pixels(kind: str, height: int, width: int) -> np.ndarray:
    if kind == "classes":
        return (np.arange(height * width).reshape(1, height, width) % 3).astype(np.uint8)
    return np.linspace(0, 1, 2 * height * width, dtype=np.float32).reshape(2, height, width)


def written(raster: RasterMap, output: OutputContract) -> bytes:
    """A map of a scene of its size."""
    _, height, width = raster.pixels.shape
    with open_scene(make_raster(bands=1, height=height, width=width)) as scene:
        return write_geotiff(raster, scene.dataset, output)


def classes(count: int, upscale: int = 1) -> OutputContract:
    names = tuple(ClassContract(name=f"class {i}") for i in range(count))
    return OutputContract(kind="classes", classes=names, upscale=upscale)


def bands(*names: str, upscale: int = 1) -> OutputContract:
    contracts = tuple(BandContract(name=name) for name in names)
    return OutputContract(kind="values", bands=contracts, upscale=upscale)


def nothing(ids: np.ndarray) -> np.ndarray:
    return np.zeros(ids.shape, bool)


def tags_of(content: bytes) -> set[int]:
    """The numbers of a little-endian TIFF's tags."""
    (at,) = struct.unpack_from("<I", content, 4)
    (count,) = struct.unpack_from("<H", content, at)
    return {struct.unpack_from("<H", content, at + 2 + 12 * i)[0] for i in range(count)}
