"""The codes of positions, dates and places, against their formulae written out in numpy."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from vllm_raster_model.networks.positions import (
    CoordinateCode,
    grid_code,
    resized_grid_code,
    sine_cosine,
)

from .terratorch import TerraTorchCase

Array = npt.NDArray[Any]
YEAR_AND_DAY = (2021.0, 167.0)


def code_of(width: int, position: float) -> list[float]:
    """The code of one position: sin(p / 10000^(2i / width)) for all i, then the cosines."""
    angles = [position / 10000 ** (2 * i / width) for i in range(width // 2)]
    return [math.sin(a) for a in angles] + [math.cos(a) for a in angles]


def mae_code(width: int, frames: int, rows: int, columns: int) -> Array:
    """The 3-D code of MAE and Prithvi: 6/16 for the column, 6/16 for the row, 4/16 for the date."""
    parts = (width // 16 * 6, width // 16 * 6, width // 16 * 4)
    codes = [
        [value for part, at in zip(parts, (x, y, t), strict=True) for value in code_of(part, at)]
        for t in range(frames)
        for y in range(rows)
        for x in range(columns)
    ]
    return np.array(codes).reshape(frames, rows, columns, width)


@pytest.mark.parametrize("position", [0, 1, 3.5, 2021])
@pytest.mark.parametrize("width", [2, 8, 36])
def test_one_position(width: int, position: float) -> None:
    code = sine_cosine(width, torch.tensor([position], dtype=torch.float64))
    np.testing.assert_allclose(code[0], code_of(width, position), rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(16, 1, 1, 1), (64, 1, 4, 4), (32, 3, 2, 5), (1024, 2, 5, 3)])
def test_grid(shape: tuple[int, int, int, int]) -> None:
    code = grid_code(*shape)
    assert code.dtype == torch.float32
    np.testing.assert_allclose(code, mae_code(*shape), rtol=0, atol=1e-6)


def test_grid_is_what_terratorch_stores() -> None:
    stored = TerraTorchCase.stored("floods_upernet").weights["encoder.pos_embed"][0]
    assert not stored[0].any()  # that of the class token
    torch.testing.assert_close(stored[1:], grid_code(64, 1, 4, 4).view(16, 64))


def test_trained_grid_is_not_stretched() -> None:
    code = resized_grid_code(32, 2, (3, 5), (3, 5))
    assert torch.equal(code, grid_code(32, 2, 3, 5).reshape(-1, 32))


@pytest.mark.parametrize("wanted", [(2, 2), (4, 9), (7, 3), (8, 1)])
def test_stretched_grid(wanted: tuple[int, int]) -> None:
    code = mae_code(32, 2, 4, 3)
    for axis, length in zip((1, 2), wanted, strict=True):
        code = np.tensordot(bicubic(code.shape[axis], length), code, (1, axis))
        code = np.moveaxis(code, 0, axis)
    found = resized_grid_code(32, 2, (4, 3), wanted)
    np.testing.assert_allclose(found, code.reshape(-1, 32), rtol=0, atol=1e-5)


def bicubic(length: int, wanted: int) -> Array:
    """Weights (wanted, length) of cubic convolution, a = -0.75, ends aligned and repeated."""
    weights = np.zeros((wanted, length))
    for i in range(wanted):
        at = i * (length - 1) / (wanted - 1) if wanted > 1 else 0.0
        for j in range(math.floor(at) - 1, math.floor(at) + 3):
            weights[i, min(max(j, 0), length - 1)] += cubic(abs(at - j))
    return weights


def cubic(distance: float, a: float = -0.75) -> float:
    if distance <= 1:
        return (a + 2) * distance**3 - (a + 3) * distance**2 + 1
    return a * (distance**3 - 5 * distance**2 + 8 * distance - 4) if distance < 2 else 0.0


@pytest.mark.parametrize("width", [16, 64])
def test_coordinates(width: int) -> None:
    code = CoordinateCode(width)
    code.scale.data.fill_(0.5)
    found = code(torch.tensor([YEAR_AND_DAY], dtype=torch.float64)).detach()
    expected = [0.5 * v for at in YEAR_AND_DAY for v in code_of(width // 2, at)]
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=2e-4)  # float32, as trained


@pytest.mark.parametrize("unknown", [(math.nan, math.nan), (math.nan, 1), (1, math.inf)])
def test_unknown_coordinates_give_zero(unknown: tuple[float, float]) -> None:
    code = CoordinateCode(16)
    pairs = torch.tensor([[YEAR_AND_DAY, unknown], [unknown, YEAR_AND_DAY]])
    found = code(pairs).detach()
    assert found.shape == (2, 2, 16)
    assert not found[0, 1].any()
    assert not found[1, 0].any()
    alone = code(torch.tensor([YEAR_AND_DAY])).detach()[0]
    assert alone.any()
    assert torch.equal(found[0, 0], alone)
    assert torch.equal(found[1, 1], alone)
