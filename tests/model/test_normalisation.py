"""What the network is given for what the file stores, worked out by hand or by numpy."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F

from vllm_raster_model.contract import InputContract
from vllm_raster_model.grid import Grid
from vllm_raster_model.normalisation import Normaliser, pad_to_grid

# (p * 0.5 + 1 - mean) / std, with means 2 and 4 and deviations 2 and 0.5.
CONTRACT = InputContract(
    bands=("a", "b"), scale=0.5, offset=1, mean=(2, 4), std=(2, 0.5), nodata_fill=3
)
FILL = (0.5, -2.0)  # (3 - 2) / 2 and (3 - 4) / 0.5


def normalise(pixels: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> torch.Tensor:
    """Normalises (bands, height, width)."""
    window = torch.from_numpy(np.asarray(pixels))[None, :, None]
    mask = None if valid is None else torch.tensor(valid)[None]
    return Normaliser(CONTRACT)(window, mask)[0, :, 0]


@pytest.mark.parametrize(
    "dtype", ["uint8", "int16", "uint16", "int32", "uint32", "int64", "float32", "float64"]
)
def test_numbers_by_hand(dtype: str) -> None:
    pixels = np.array([[[0, 2, 100]], [[6, 8, 101]]], dtype)
    values = normalise(pixels)
    assert values.dtype == torch.float32
    np.testing.assert_array_equal(values, [[[-0.5, 0, 24.5]], [[0, 2, 95]]])


@pytest.mark.parametrize("alone", [False, True])
def test_numbers_of_each_date(alone: bool) -> None:
    mean, std = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[1.0, 2.0, 4.0], [0.5, 0.25, 1.0]]
    if alone:  # those of one band are those of all
        mean, std = mean[:1], std[:1]
    contract = InputContract(bands=("a", "b"), frames=3, mean=mean, std=std)
    pixels = torch.arange(2 * 3 * 2, dtype=torch.float64).view(1, 2, 3, 1, 2)
    found = Normaliser(contract)(pixels, None)
    for band in range(2):
        for date in range(3):
            row = 0 if alone else band
            expected = (pixels[0, band, date] - mean[row][date]) / std[row][date]
            np.testing.assert_allclose(found[0, band, date], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "pixel"), [("int16", -32768), ("uint16", 65535), ("int32", -(2**30)), ("uint8", 255)]
)
def test_ends_of_a_type(dtype: str, pixel: int) -> None:
    values = normalise(np.full((2, 1, 1), pixel, dtype))
    np.testing.assert_allclose(
        values.flatten(), [(pixel * 0.5 + 1 - 2) / 2, (pixel * 0.5 + 1 - 4) / 0.5], rtol=1e-6
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("band", [0, 1])
def test_one_bad_band_fills_the_pixel_in_all(bad: float, dtype: str, band: int) -> None:
    pixels = np.full((2, 2, 2), 8, dtype)
    pixels[band, 0, 1] = bad
    expected = [[[1.5, FILL[0]], [1.5, 1.5]], [[2, FILL[1]], [2, 2]]]
    np.testing.assert_array_equal(normalise(pixels), expected)


def test_too_large_for_float32_is_bad_too() -> None:
    pixels = np.array([[[1e300]], [[8]]])
    np.testing.assert_array_equal(normalise(pixels).flatten(), FILL)


def test_mask_fills() -> None:
    values = normalise(np.full((2, 1, 3), 8, "uint16"), [[True, False, True]])
    np.testing.assert_array_equal(values, [[[1.5, FILL[0], 1.5]], [[2, FILL[1], 2]]])


def test_mask_and_nan_fill_together() -> None:
    pixels = np.array([[[8, np.nan, np.nan]], [[np.nan, 8, 8]]])
    values = normalise(np.pad(pixels, ((0, 0), (0, 0), (0, 1)), constant_values=8), [[1, 1, 0, 1]])
    np.testing.assert_array_equal(values[:, 0, :3], np.repeat(np.array(FILL)[:, None], 3, 1))
    np.testing.assert_array_equal(values[:, 0, 3], [1.5, 2])


def test_one_number_for_all_bands() -> None:
    normaliser = Normaliser(InputContract(bands=("a", "b"), mean=(10,), std=(5,)))
    values = normaliser(torch.tensor([20, 0]).view(1, 2, 1, 1, 1), None)
    assert values.flatten().tolist() == [2, -2]


def test_a_date_missing_in_one_frame_fills_the_pixel_in_all() -> None:
    pixels = torch.full((1, 2, 3, 1, 1), 8.0)
    pixels[0, 0, 2] = torch.nan
    values = Normaliser(CONTRACT)(pixels, None)
    assert values.flatten().tolist() == [FILL[0]] * 3 + [FILL[1]] * 3


def test_windows_of_a_batch_keep_their_own_masks() -> None:
    pixels = torch.full((2, 2, 1, 1, 2), 8, dtype=torch.uint8)
    valid = torch.tensor([[[True, False]], [[False, True]]])
    values = Normaliser(CONTRACT)(pixels, valid)
    assert values[:, 0].flatten().tolist() == [1.5, FILL[0], FILL[0], 1.5]


def test_has_nothing_to_load() -> None:
    normaliser = Normaliser(CONTRACT)
    normaliser(torch.zeros(1, 2, 1, 1, 1), None)
    assert not normaliser.state_dict()


@pytest.mark.parametrize(("height", "width"), [(8, 8), (5, 8), (8, 7), (5, 6)])
def test_padding_is_torch_s_where_that_works(height: int, width: int) -> None:
    values = torch.randn(2, 3, 1, height, width)
    expected = F.pad(values[:, :, 0], (0, 8 - width, 0, 8 - height), mode="reflect")
    assert torch.equal(pad_to_grid(values, Grid(2, 2), 4)[:, :, 0], expected)


@pytest.mark.parametrize("height", [1, 2, 3, 4, 16])
@pytest.mark.parametrize("width", [1, 2, 5, 15, 16, 17, 24])
def test_padding_is_numpy_s_also_by_more_than_there_is(height: int, width: int) -> None:
    values = torch.randn(1, 2, 1, height, width)
    grid = Grid.covering(height, width, cell=8, minimum=2)
    rows, columns = grid.rows * 8 - height, grid.columns * 8 - width
    edges: Any = ((0, 0), (0, 0), (0, 0), (0, rows), (0, columns))
    expected = np.pad(values.numpy(), edges, mode="reflect")
    np.testing.assert_array_equal(pad_to_grid(values, grid, 8), expected)
