"""Sine and cosine codes of positions, dates and places, as the Prithvi models use them.

Formulae: Vaswani et al. 2017, section 3.5, with the width split over axes as in
Prithvi-EO-2.0 (Szwarcman et al. 2024): six sixteenths for columns, six for rows, four for
frames; dates and places in halves (year and day of year, latitude and longitude).
"""

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import nn

_BASE = 10000.0


def sine_cosine(width: int, positions: torch.Tensor) -> torch.Tensor:
    """Codes positions (n,) as (n, width): sines, then cosines, from fast to slow.

    Args:
        width: Even.
        positions: In the type that the code is computed in.
    """
    steps = torch.arange(width // 2, dtype=positions.dtype, device=positions.device)
    angles = positions[:, None] * (1.0 / _BASE ** (steps / (width / 2.0)))
    return torch.cat((angles.sin(), angles.cos()), dim=1)


def grid_code(width: int, frames: int, rows: int, columns: int) -> torch.Tensor:
    """Codes a grid of patches: (frames, rows, columns, width), float32.

    Args:
        width: A multiple of 16.
        frames: Number of dates.
        rows: Rows of patches.
        columns: Columns of patches.
    """
    sixteenth = width // 16
    t = sine_cosine(sixteenth * 4, torch.arange(frames, dtype=torch.float64))
    y = sine_cosine(sixteenth * 6, torch.arange(rows, dtype=torch.float64))
    x = sine_cosine(sixteenth * 6, torch.arange(columns, dtype=torch.float64))
    shape = (frames, rows, columns, -1)
    parts = (
        x[None, None].expand(shape),
        y[None, :, None].expand(shape),
        t[:, None, None].expand(shape),
    )
    return torch.cat(parts, dim=-1).float()


@lru_cache(maxsize=32)
def resized_grid_code(
    width: int, frames: int, trained: tuple[int, int], wanted: tuple[int, int]
) -> torch.Tensor:
    """The code of the trained grid, stretched to another: (frames * rows * columns, width).

    The stretch is bicubic with aligned corners, as in TerraTorch's Prithvi. The answer is kept
    for the next window of the size and must not be written to.
    """
    with torch.inference_mode(False), torch.no_grad():
        return _resized_grid_code(width, frames, trained, wanted)


def _resized_grid_code(
    width: int, frames: int, trained: tuple[int, int], wanted: tuple[int, int]
) -> torch.Tensor:
    code = grid_code(width, frames, *trained)
    if trained != wanted:
        planes = code.permute(0, 3, 1, 2)
        planes = F.interpolate(planes, size=wanted, mode="bicubic", align_corners=True)
        code = planes.permute(0, 2, 3, 1)
    return code.reshape(-1, width)


class CoordinateCode(nn.Module):
    """Codes pairs of numbers: (year, day of year) or (latitude, longitude in degrees).

    The code of a pair that holds a NaN, which is how an unknown one is given, is zero.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.halves = (width // 2, width - width // 2)
        self.scale = nn.Parameter(torch.full((1,), 0.1))

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        """Codes (…, 2) as (…, width)."""
        shape = pairs.shape[:-1]
        known = torch.isfinite(pairs).all(dim=-1, keepdim=True)
        flat = torch.where(known, pairs, 0).reshape(-1, 2).to(self.scale.dtype)
        first, second = self.halves
        code = torch.cat((sine_cosine(first, flat[:, 0]), sine_cosine(second, flat[:, 1])), dim=1)
        return self.scale * code.view(*shape, -1) * known
