"""Maps as GeoTIFF and COG: the values, the names and the form of the file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from rasterio import Affine
from rasterio.crs import CRS
from rasterio.enums import ColorInterp, Compression, Interleaving
from rasterio.errors import RasterioError
from rasterio.io import MemoryFile

from vllm_raster_io.georeference import Georeference
from vllm_raster_io.maps import RasterMap, opened, rgb, write_cog, write_geotiff

from ..factories import make_raster
from .geotiffs import WRITERS, Writer, map_of, map_pixels, reading, write, written
from .scenes import open_scene

each_writer = pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
PLACE = Georeference(CRS.from_epsg(32632), Affine(10, 0, 600_000, 0, -10, 5_300_000))
COLOURS = ((0x20, 0x60, 0xC0), (0, 255, 0x7F), (128, 128, 128))


@each_writer
class TestValues:
    @pytest.mark.parametrize("size", [(1, 1), (1, 300), (300, 1), (5, 7), (513, 255), (256, 257)])
    @pytest.mark.parametrize("kind", ["uint8", "uint16", "uint32", "float32"])
    def test_are_as_they_were(self, size: tuple[int, int], kind: str, writer: Writer) -> None:
        chance = np.random.default_rng(0)
        if kind == "float32":
            raster = RasterMap(chance.normal(size=(2, *size)).astype(np.float32), np.nan)
        else:
            most = np.iinfo(kind).max
            raster = RasterMap(chance.integers(0, most, (1, *size), kind), most)
        with reading(written(raster, writer)) as dataset:
            assert set(dataset.dtypes) == {kind}
            np.testing.assert_array_equal(dataset.read(), raster.pixels)
            np.testing.assert_equal(dataset.nodata, raster.nodata)

    def test_large_and_small_floats(self, writer: Writer) -> None:
        values = np.array([[[70_000, 0.25, 0.75], [-1e-30, 16_777_217, 3.4e38]]], np.float32)
        values[0, 0, 0] = np.nan
        with reading(written(RasterMap(values, np.nan), writer)) as dataset:
            np.testing.assert_array_equal(dataset.read(), values)
            np.testing.assert_array_equal(dataset.read_masks(1) == 0, np.isnan(values[0]))

    def test_nothing_but_nodata_is_invalid(self, writer: Writer) -> None:
        ids = np.array([[[0, 1], [2, 255]]], np.uint8)
        with reading(written(RasterMap(ids, 255, colours=COLOURS), writer)) as dataset:
            np.testing.assert_array_equal(dataset.read_masks(1), [[255, 255], [255, 0]])
            np.testing.assert_array_equal(dataset.read(1), ids[0])

    @pytest.mark.parametrize("compression", ["none", "deflate", "lzw", "zstd"])
    @pytest.mark.parametrize("kind", ["classes", "values"])
    def test_compressions_lose_nothing(self, writer: Writer, compression: str, kind: str) -> None:
        pixels = map_pixels(kind, 300, 310)
        nodata = 255 if kind == "classes" else np.nan
        content = writer(RasterMap(pixels, nodata), PLACE, {}, compression)
        with reading(content) as dataset:
            known = None if compression == "none" else Compression[compression]
            assert dataset.compression == known
            np.testing.assert_array_equal(dataset.read(), pixels)
            structure = dataset.tags(ns="IMAGE_STRUCTURE")
        expected = {"classes": "2", "values": "3"}[kind] if known else None
        assert structure.get("PREDICTOR") == expected


@each_writer
class TestNames:
    def test_classes_and_their_colours(self, writer: Writer) -> None:
        raster = RasterMap(
            np.zeros((1, 3, 4), np.uint8),
            255,
            ("class",),
            colours=COLOURS,
            tags=({"CLASS_0": "water", "CLASS_1": "Wald & Wiese"},),
        )
        with reading(written(raster, writer)) as dataset:
            colours = dataset.colormap(1)
            assert dataset.colorinterp == (ColorInterp.palette,)
            assert dataset.descriptions == ("class",)
            assert dataset.tags(1)["CLASS_1"] == "Wald & Wiese"
        assert [colours[i] for i in range(3)] == [(*one, 255) for one in COLOURS]

    def test_many_classes_have_names_only(self, writer: Writer) -> None:
        raster = RasterMap(
            np.full((1, 2, 2), 299, np.uint16),
            65_535,
            colours=COLOURS * 100,
            tags=({"CLASS_299": "the last"},),
        )
        with reading(written(raster, writer)) as dataset:
            assert dataset.tags(1)["CLASS_299"] == "the last"
            with pytest.raises(ValueError, match="NULL color table"):
                dataset.colormap(1)

    def test_bands_and_their_units(self, writer: Writer) -> None:
        raster = RasterMap(
            np.zeros((2, 3, 4), np.float32), np.nan, ("biomass", "höhe"), units=("Mg/ha", "")
        )
        with reading(written(raster, writer)) as one:
            assert one.descriptions == ("biomass", "höhe")
            assert [unit or None for unit in one.units] == ["Mg/ha", None]

    def test_a_scale(self, writer: Writer) -> None:
        raster = RasterMap(np.full((3, 2, 2), 127, np.uint8), 255, ("a", "b", "c"), scale=1 / 254)
        with reading(written(raster, writer)) as dataset:
            assert dataset.scales == (1 / 254,) * 3
            assert dataset.offsets == (0,) * 3
            assert float(dataset.tags()["SCALE"]) == 1 / 254
            # Three bands of bytes are no picture, and no alpha.
            assert ColorInterp.red not in dataset.colorinterp


def test_colours() -> None:
    assert rgb("#00ff7F") == (0, 255, 127)
    assert rgb(None) == (128, 128, 128)


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
            assert structure.get("PREDICTOR") == (None if kind == "classes" else "3")
            assert "NBITS" not in dataset.tags(1, ns="IMAGE_STRUCTURE")
            expected = map_pixels(kind, 32, 48)
            np.testing.assert_array_equal(dataset.read(), expected)

    def test_large_maps_of_few_values_are_small(self) -> None:
        raster = RasterMap(np.zeros((1, 1_000, 1_000), np.uint8), 255)
        assert len(written(raster)) < 20_000

    def test_the_time_is_kept(self) -> None:
        scene = make_raster(tags={"TIFFTAG_DATETIME": "2024:05:06 07:08:09"})
        with reading(map_of(scene, 1)) as dataset:
            assert dataset.tags()["TIFFTAG_DATETIME"] == "2024:05:06 07:08:09"


class TestCog:
    @pytest.mark.parametrize("size", [(5, 7), (512, 512), (600, 1_300)])
    @pytest.mark.parametrize("kind", ["classes", "values"])
    @pytest.mark.parametrize("compression", ["none", "deflate", "zstd"])
    def test_is_one(
        self, size: tuple[int, int], kind: str, compression: str, tmp_path: Path
    ) -> None:
        validate = pytest.importorskip("rio_cogeo.cogeo").cog_validate
        pixels = map_pixels(kind, *size)
        raster = RasterMap(pixels, 255 if kind == "classes" else np.nan)
        file = tmp_path / "map.tif"
        file.write_bytes(write_cog(raster, PLACE, {}, compression))
        assert validate(file, strict=True, quiet=True) == (True, [], [])
        with rasterio.open(file) as dataset:
            assert bool(dataset.overviews(1)) == (max(size) > 512)
            assert dataset.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"

    def test_overviews_of_ids_are_ids(self) -> None:
        ids = np.random.default_rng(0).choice(np.array([0, 2], np.uint8), (1, 700, 700))
        content = write_cog(RasterMap(ids, 255, colours=COLOURS), PLACE, {})
        with MemoryFile(content) as memory, memory.open(overview_level=0) as dataset:
            assert dataset.shape == (350, 350)
            assert set(np.unique(dataset.read(1))) == {0, 2}


def test_a_geotiff_above_4_gib_would_be_a_bigtiff(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []
    open_file = MemoryFile.open

    def watched(self: MemoryFile, **options: Any) -> Any:
        told.append(options)
        return open_file(self, **options)

    monkeypatch.setattr(MemoryFile, "open", watched)
    write_geotiff(RasterMap(map_pixels("classes", 4, 4), 255), PLACE, {})
    assert told[0]["bigtiff"] == "if_safer"


def test_opened_gives_the_memory_back() -> None:
    content = map_of(make_raster(), 1)
    with opened(content) as dataset:
        name = dataset.name
        assert dataset.shape == (32, 48)
    with pytest.raises(RasterioError):
        rasterio.open(name)
