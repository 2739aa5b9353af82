"""The rasters made for tests hold what was asked for."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from rasterio.control import GroundControlPoint
from rasterio.enums import ColorInterp, MaskFlags
from rasterio.errors import NotGeoreferencedWarning
from rasterio.io import DatasetReader, MemoryFile
from rasterio.transform import Affine

from .factories import make_raster


def test_defaults() -> None:
    with opened(make_raster()) as raster:
        assert raster.driver == "GTiff"
        assert (raster.count, raster.height, raster.width) == (4, 32, 48)
        assert raster.dtypes == ("uint16",) * 4
        assert raster.crs.to_epsg() == 32632
        assert raster.transform == Affine(10, 0, 600_000, 0, -10, 5_300_000)
        assert raster.nodata is None
        assert raster.descriptions == (None,) * 4
        pixels = raster.read()
    assert pixels.min() >= 1
    assert pixels.max() <= 9_998
    assert np.unique(pixels).size > 3_000


def test_random_values_come_from_the_seed() -> None:
    assert make_raster() == make_raster()
    assert make_raster() == make_raster(seed=0)
    assert (read(make_raster()) != read(make_raster(seed=1))).mean() > 0.99


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint32", "float32", "float64"])
def test_random_values_of_each_type_avoid_usual_nodata_values(dtype: str) -> None:
    pixels = read(make_raster(dtype=dtype))
    assert pixels.dtype == dtype
    assert pixels.min() > 0
    if pixels.dtype.kind != "f":
        assert pixels.max() < min(9_999, np.iinfo(dtype).max)


def test_an_array_decides_the_size() -> None:
    values = np.arange(2 * 3 * 5).reshape(2, 3, 5)
    np.testing.assert_array_equal(read(make_raster(values=values)), values)
    np.testing.assert_array_equal(read(make_raster(values=values[0])), values[:1])


def test_a_number_fills_all() -> None:
    pixels = read(make_raster(values=7, bands=2, height=3, width=5))
    np.testing.assert_array_equal(pixels, np.full((2, 3, 5), 7))


def test_a_function_of_band_row_and_column() -> None:
    pixels = read(make_raster(values=lambda band, row, column: 1000 * band + 48 * row + column))
    assert pixels[0, 0, 0] == 0
    assert pixels[3, 2, 1] == 3097
    constant_rows = read(make_raster(values=lambda band, row, column: row[:, :, :1]))
    np.testing.assert_array_equal(constant_rows[2, :, 47], np.arange(32))


@pytest.mark.parametrize("value", [-1, 65_536, 0.5, np.nan])
def test_values_that_do_not_fit_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="do not fit into uint16"):
        make_raster(values=value)


def test_nan_in_floats() -> None:
    assert np.isnan(read(make_raster(values=np.nan, dtype="float32"))).all()


def test_metadata() -> None:
    content = make_raster(
        bands=2,
        nodata=9999,
        descriptions=["BLUE", None],
        tags={"TIFFTAG_DATETIME": "2024:05:01 10:20:30", "scene": "T32UPU"},
        compress="deflate",
        tiled=True,
        blockxsize=16,
        blockysize=16,
    )
    with opened(content) as raster:
        assert raster.nodata == 9999
        assert raster.descriptions == ("BLUE", None)
        assert raster.tags()["TIFFTAG_DATETIME"] == "2024:05:01 10:20:30"
        assert raster.tags()["scene"] == "T32UPU"
        assert raster.compression.value == "DEFLATE"
        assert raster.block_shapes == [(16, 16)] * 2


def test_geographic_crs() -> None:
    with opened(make_raster(crs="EPSG:4326")) as raster:
        assert raster.crs.is_geographic
        assert raster.transform == Affine(0.0001, 0, 10.3, 0, -0.0001, 47.9)


def test_own_transform() -> None:
    transform = Affine(3, 1, 1, 0.5, -4, 2)
    with opened(make_raster(transform=transform)) as raster:
        assert raster.transform == transform


def test_no_georeference_and_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        content = make_raster(crs=None)
    with opened(content) as raster:
        assert raster.crs is None
        assert raster.transform.is_identity


def test_ground_control_points() -> None:
    points = [
        GroundControlPoint(row, column, 10 + column / 100, 48 - row / 100)
        for row, column in [(0, 0), (0, 48), (32, 0), (32, 48)]
    ]
    content = make_raster(crs="EPSG:4326", gcps=points)
    with opened(content) as raster:
        found, crs = raster.gcps
        assert crs.to_epsg() == 4326
        assert raster.crs is None
        assert raster.transform.is_identity
    assert [(p.row, p.col, p.x, p.y) for p in found] == [(p.row, p.col, p.x, p.y) for p in points]


@pytest.mark.parametrize("driver", ["GTiff", "COG"])
def test_mask_lies_within_the_file(driver: str) -> None:
    mask = np.zeros((32, 48), np.bool_)
    mask[5:, 7:] = True
    with opened(make_raster(mask=mask, driver=driver)) as raster:
        assert raster.mask_flag_enums[0] == [MaskFlags.per_dataset]
        np.testing.assert_array_equal(raster.dataset_mask(), np.where(mask, 255, 0))


def test_other_formats_hold_no_mask() -> None:
    with pytest.raises(ValueError, match="PNG"):
        make_raster(driver="PNG", bands=3, dtype="uint8", mask=np.ones((32, 48)))


def test_png() -> None:
    content = make_raster(driver="PNG", bands=4, dtype="uint8", crs=None)
    assert content.startswith(b"\x89PNG")
    with opened(content) as raster:
        assert raster.colorinterp[3] == ColorInterp.alpha
    np.testing.assert_array_equal(read(content), read(make_raster(bands=4, dtype="uint8")))


@contextmanager
def opened(content: bytes) -> Iterator[DatasetReader]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with MemoryFile(content) as memory, memory.open() as raster:
            yield raster


def read(content: bytes) -> npt.NDArray[Any]:
    with opened(content) as raster:
        return raster.read()
