"""Padding on both sides: against torch's and numpy's own."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from vllm_raster_model.networks.padding import PADDINGS, Padding

SIZES = [(16, 16), (15, 16), (17, 30), (24, 9)]


@pytest.mark.parametrize("mode", PADDINGS)
@pytest.mark.parametrize(("height", "width"), SIZES)
@pytest.mark.parametrize("frames", [1, 3])
def test_half_on_each_side(mode: str, height: int, width: int, frames: int) -> None:
    pixels = torch.randn(2, 3, frames, height, width)
    rows, columns = -height % 16, -width % 16
    sides = (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2)
    expected = torch.stack([F.pad(one, sides, mode=mode) for one in pixels])
    padding = Padding(mode, 16)
    found = padding(pixels)
    assert torch.equal(found, expected)
    assert found.shape[-2:] == (padding.padded(height), padding.padded(width))
    maps = found.flatten(1, 2)
    assert torch.equal(padding.cropped(maps, height, width, Fraction(1)), pixels.flatten(1, 2))


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (5, 3)])
def test_reflects_more_than_there_is(size: tuple[int, int]) -> None:
    pixels = torch.randn(1, 2, 1, *size)
    edges: Any = [(0, 0)] * 3 + [((16 - n) // 2, 16 - n - (16 - n) // 2) for n in size]
    expected = np.pad(pixels.numpy(), edges, mode="reflect")
    np.testing.assert_array_equal(Padding("reflect", 16)(pixels), expected)


def test_no_padding() -> None:
    pixels = torch.randn(1, 2, 1, 5, 7)
    padding = Padding(None, 16)
    assert padding(pixels) is pixels
    assert padding.padded(5) == 5


def test_crops_enlarged_maps() -> None:
    padding = Padding("constant", 8)
    marked = padding(torch.ones(1, 1, 1, 5, 6))[:, :, 0]
    enlarged = marked.repeat_interleave(4, -1).repeat_interleave(4, -2)
    cropped = padding.cropped(enlarged, 5, 6, Fraction(4))
    assert cropped.shape == (1, 1, 20, 24)
    assert cropped.all()
