"""Which pixels of a scene may be used."""

from typing import Any

import numpy as np
import pytest
from rasterio.enums import ColorInterp

from ..factories import make_raster
from .scenes import open_scene, read_all
from .tiff import GDAL_NODATA, single_strip

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

NAN, INF = np.nan, np.inf
RGBA = {"photometric": "RGB", "alpha": "YES"}


class TestNodata:
    @pytest.mark.parametrize(
        ("dtype", "nodata"),
        [
            ("uint8", 0),
            ("uint8", 255),
            ("int8", -128),
            ("uint16", 65_535),
            ("int16", -9_999),
            ("uint32", 2**32 - 1),
            ("int32", -(2**31)),
            ("float32", -9_999.0),
            ("float32", 0.1),
            ("float32", float(np.finfo("float32").min)),
            ("float64", 1e20),
        ],
    )
    def test_within_the_type(self, dtype: str, nodata: float) -> None:
        values = np.array([[1, nodata, 2], [nodata, 3, 4]], dtype)
        assert_valid(make_raster(values=values, dtype=dtype, nodata=nodata), [[1, 0, 1], [0, 1, 1]])

    @pytest.mark.parametrize(
        ("values", "nodata", "valid"),
        [
            (np.uint8([0, 241, 255]), "-9999", [1, 1, 1]),  # 241 is -9999 modulo 256
            (np.uint8([0, 1, 255]), "256", [1, 1, 1]),
            (np.uint16([0, 55_537, 65_535]), "-9999", [1, 1, 1]),  # and 55,537 modulo 65,536
            (np.uint16([0, 1, 65_535]), "1e20", [1, 1, 1]),
            (np.uint16([0, 1, 65_535]), "nan", [1, 1, 1]),
            (np.uint16([0, 1, 65_535]), "inf", [1, 1, 1]),
            (np.uint16([0, 1, 2]), "1.5", [1, 1, 1]),
            (np.uint16([9_999, 1, 2]), "9999.0", [0, 1, 1]),
            (np.uint32([0, 1, 2**32 - 1]), "-1", [1, 1, 1]),
            (
                np.int64([2**60, 2**60 + 1, 3]),
                str(2**60 + 1),
                [1, 0, 1],
            ),  # floats see no difference
            (np.int64([-(2**63), 5, 9]), str(-(2**63)), [0, 1, 1]),
            (np.uint64([2**64 - 2, 2**64 - 1, 9]), str(2**64 - 1), [1, 0, 1]),
            (np.float32([1, 0, NAN]), "-1.7976931348623157e+308", [1, 1, 0]),
        ],
    )
    def test_as_the_file_writes_it(self, values: np.ndarray, nodata: str, valid: list[int]) -> None:
        text = nodata.encode() + b"\0"
        assert_valid(single_strip(values[np.newaxis], {GDAL_NODATA: ("s", text)}), [valid])

    def test_any_used_band_decides(self) -> None:
        values = np.full((3, 2, 4), 5)
        values[0, 0, 0] = values[1, 0, 1] = values[2, 1, 3] = 9
        content = make_raster(values=values, nodata=9)
        assert_valid(content, [[0, 0, 1, 1], [1, 1, 1, 0]])
        assert_valid(content, [[0, 1, 1, 1], [1, 1, 1, 1]], [0])
        assert_valid(content, [[1, 0, 1, 1], [1, 1, 1, 0]], [2, 1])

    def test_all_invalid(self) -> None:
        content = make_raster(values=np.full((2, 3, 4), 9), nodata=9)
        assert_valid(content, np.zeros((3, 4)))


class TestNotFinite:
    values = np.array([[[NAN, 1, 2, 3], [4, 5, 6, 7]], [[1, INF, 2, -INF], [4, 5, NAN, -9_999]]])

    @pytest.mark.parametrize("value", [1e39, -1e300])
    def test_beyond_32_bits_in_one_band(self, value: float) -> None:
        values = np.ones((2, 1, 3))
        values[1, 0, 2] = value
        assert_valid(make_raster(values=values, dtype="float64"), [[1, 1, 0]])

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize("nodata", [None, NAN])
    def test_nan_or_infinite_in_one_band(self, dtype: str, nodata: float | None) -> None:
        content = make_raster(values=self.values, dtype=dtype, nodata=nodata)
        assert_valid(content, [[0, 0, 1, 0], [1, 1, 0, 1]])
        assert_valid(content, [[0, 1, 1, 1], [1, 1, 1, 1]], [0])
        assert_valid(content, [[1, 0, 1, 0], [1, 1, 0, 1]], [1])

    @pytest.mark.parametrize("nodata", [INF, -INF])
    def test_infinite_nodata(self, nodata: float) -> None:
        content = make_raster(values=self.values, dtype="float32", nodata=nodata)
        assert_valid(content, [[0, 0, 1, 0], [1, 1, 0, 1]])

    def test_nodata_besides(self) -> None:
        content = make_raster(values=self.values, dtype="float32", nodata=-9_999)
        assert_valid(content, [[0, 0, 1, 0], [1, 1, 0, 0]])

    def test_pixels_are_left_as_they_are(self) -> None:
        pixels, _ = read_all(make_raster(values=self.values, dtype="float32", nodata=-9_999))
        np.testing.assert_array_equal(pixels, self.values)


class TestMask:
    mask = np.array([[1, 0, 1], [1, 1, 0]], bool)

    @pytest.mark.parametrize("driver", ["GTiff", "COG"])
    def test_of_the_whole_file(self, driver: str) -> None:
        content = make_raster(values=np.full((2, 2, 3), 5), mask=self.mask, driver=driver)
        assert_valid(content, self.mask)
        assert_valid(content, self.mask, [1])

    def test_with_nodata(self) -> None:
        values = np.full((2, 2, 3), 5)
        values[1, 0, 0] = 9
        content = make_raster(values=values, mask=self.mask, nodata=9)
        assert_valid(content, [[0, 0, 1], [1, 1, 0]])
        assert_valid(content, self.mask, [0])

    def test_with_alpha(self) -> None:
        content = make_raster(values=rgba("uint8"), dtype="uint8", mask=self.mask, **RGBA)
        assert_valid(content, [[0, 0, 1], [1, 1, 0]])

    def test_nodata_of_all_bands_at_once(self) -> None:
        values = np.full((3, 2, 3), 5)
        values[:, 0, 0] = 1, 2, 3
        values[0, 1, 1] = 1
        content = make_raster(values=values, dtype="uint8", tags={"NODATA_VALUES": "1 2 3"})
        assert_valid(content, [[0, 1, 1], [1, 1, 1]])


class TestAlpha:
    @pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "uint32", "float32"])
    def test_pixels_without_any(self, dtype: str) -> None:
        content = make_raster(values=rgba(dtype), dtype=dtype, **RGBA)
        with open_scene(content) as scene:
            assert scene.alpha == [False, False, False, True]
        assert_valid(content, [[0, 1, 1], [1, 1, 1]])
        assert_valid(content, [[0, 1, 1], [1, 1, 1]], [2])

    def test_with_nodata(self) -> None:
        values = rgba("uint8")
        values[1, 1, 2] = 9
        content = make_raster(values=values, dtype="uint8", nodata=9, **RGBA)
        assert_valid(content, [[0, 1, 1], [1, 1, 0]])

    def test_is_a_band_like_any_other_where_it_is_asked_for(self) -> None:
        # GDAL takes the fourth band of an 8-bit file for alpha, unless the writer says otherwise.
        content = make_raster(values=rgba("uint8"), dtype="uint8")
        assert_valid(content, np.ones((2, 3)), [0, 1, 2, 3])

    @pytest.mark.parametrize("bands", [2, 4])
    @pytest.mark.parametrize("dtype", ["uint8", "uint16"])
    def test_of_a_png(self, bands: int, dtype: str) -> None:
        values = rgba(dtype)[4 - bands :]
        content = make_raster(values=values, dtype=dtype, driver="PNG", crs=None)
        with open_scene(content) as scene:
            assert scene.alpha == [False] * (bands - 1) + [True]
            assert scene.dataset.colorinterp[-1] == ColorInterp.alpha
        assert_valid(content, [[0, 1, 1], [1, 1, 1]])

    def test_transparent_value_of_a_png(self) -> None:
        values = np.array([[1, 2, 3]])
        content = make_raster(values=values, dtype="uint8", driver="PNG", crs=None, nodata=2)
        assert_valid(content, [[1, 0, 1]])


def rgba(dtype: str) -> np.ndarray:
    """Four bands; alpha is 0 in the first pixel, the least there is in the second, else full."""
    values = np.full((4, 2, 3), 5, dtype)
    values[3] = 255 if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max
    values[3, 0, :2] = 0, 1
    return values


def assert_valid(content: bytes, expected: Any, indices: list[int] | None = None) -> None:
    _, valid = read_all(content, indices)
    assert valid.dtype == np.bool_
    np.testing.assert_array_equal(valid, np.asarray(expected, bool))
