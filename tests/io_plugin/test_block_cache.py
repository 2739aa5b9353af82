"""How much GDAL keeps of what it has read."""

import os
from pathlib import Path

import pytest
import rasterio
from rasterio.env import get_gdal_config

from vllm_raster_io import block_cache
from vllm_raster_io.block_cache import LEAST, MOST, BlockCache, bytes_to_keep
from vllm_raster_io.errors import RasterError
from vllm_raster_io.files import DiskFile
from vllm_raster_io.rasters import Scene
from vllm_raster_io.tiling import Window

from ..factories import make_raster
from .scenes import open_scene

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")


@pytest.fixture(autouse=True)
def _by_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GDAL_CACHEMAX", raising=False)


def size() -> object:
    with rasterio.Env():
        return get_gdal_config("GDAL_CACHEMAX")


@pytest.mark.parametrize(
    ("window", "block", "kept"),
    [
        ((0, 0, 512, 512), (512, 512), 512 * 512 * 4),
        ((512, 1024, 512, 512), (256, 256), 512 * 512 * 4),
        # Two rows of blocks of 512 rows, each of 6,000 pixels of 4 bytes.
        ((448, 0, 512, 512), (512, 512), 2 * 512 * 6000 * 4),
        ((0, 448, 512, 512), (512, 512), 2 * 512 * 6000 * 4),
        ((0, 0, 512, 512), (1, 6000), 513 * 6000 * 4),
        ((0, 0, 512, 512), (16, 6000), 33 * 16 * 6000 * 4),
        ((0, 0, 100, 512), (512, 512), 2 * 512 * 6000 * 4),
    ],
)
def test_what_must_be_kept(
    window: tuple[int, int, int, int], block: tuple[int, int], kept: int
) -> None:
    assert bytes_to_keep(Window(*window), 6000, block, 4) == kept


def test_grows_with_what_is_read_and_shrinks() -> None:
    cache, one, other = BlockCache(), object(), object()
    cache.hold(one, 0)
    assert size() == LEAST
    cache.hold(one, 3 * LEAST)
    cache.hold(one, LEAST)
    cache.hold(other, 2 * LEAST)
    assert size() == 5 * LEAST
    cache.hold(other, 2 * MOST)
    assert size() == MOST
    cache.release(other)
    assert size() == 3 * LEAST
    cache.release(one)
    cache.release(one)
    assert size() == LEAST


def test_what_is_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    before = size()
    monkeypatch.setenv("GDAL_CACHEMAX", "64")
    BlockCache().hold(object(), 100 * LEAST)
    assert size() == before


@pytest.mark.parametrize(
    ("bands", "interleave", "overlap", "wanted"),
    [
        (6, "pixel", 0, LEAST),
        (6, "pixel", 64, 3 * 256 * 4096 * 6 * 2),
        # One band is asked for, and all of its blocks are decoded.
        (40, "pixel", 0, 512 * 512 * 40 * 2),
        (40, "band", 0, LEAST),
    ],
)
def test_of_a_scene(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bands: int,
    interleave: str,
    overlap: int,
    wanted: int,
) -> None:
    cache = BlockCache()
    monkeypatch.setattr("vllm_raster_io.datasets.BLOCK_CACHE", cache)
    path = tmp_path / "scene.tif"
    made = {"driver": "GTiff", "height": 1024, "width": 4096, "count": bands, "dtype": "uint16"}
    made |= {"tiled": True, "blockxsize": 256, "blockysize": 256, "sparse_ok": True}
    with rasterio.open(path, "w", **made, interleave=interleave):
        pass  # of zeros, which take no room
    with Scene(DiskFile(os.open(path, os.O_RDONLY))) as scene:
        scene.read(Window(0, 512 - overlap, 512, 512), range(bands if overlap else 1))
        assert size() == max(wanted, LEAST)
    assert size() == LEAST
    assert block_cache.BLOCK_CACHE is not cache


def test_what_is_read_too_late_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = BlockCache()
    monkeypatch.setattr("vllm_raster_io.datasets.BLOCK_CACHE", cache)
    scene = open_scene(make_raster(height=64, width=64, nodata=0, blockysize=7))
    scene.read(Window(10, 0, 32, 32), [0])
    assert cache._needs
    scene.close()
    with pytest.raises(RasterError):
        scene.read(Window(10, 0, 32, 32), [0])
    assert not cache._needs
