"""A chain of learned enlargements (Long et al. 2015, https://arxiv.org/abs/1411.4038).

Arithmetic, arguments and parameter names are those of TerraTorch's `FCNDecoder`.
"""

from fractions import Fraction
from itertools import pairwise

import torch
from torch import nn

from vllm_raster_model.networks.parts import Feature, pick, refuse_unless

_NORM_EPS = 1e-6


class FCNDecoder(nn.Module):
    """Doubles the resolution of one map `num_convs` times."""

    def __init__(
        self, inputs: list[Feature], channels: int = 256, num_convs: int = 4, in_index: int = -1
    ) -> None:
        super().__init__()
        name = type(self).__name__
        refuse_unless(
            isinstance(num_convs, int) and num_convs > 0, name, "num_convs", num_convs, "at least 1"
        )
        read = pick(inputs, in_index, name, "in_index")
        self.in_index = in_index
        self.features = [read]
        self.output = Feature(channels, read.map_scale(name) * Fraction(2) ** num_convs)
        widths = [read.channels] + [channels] * num_convs
        self.convs = nn.Sequential(*(_doubling(old, new) for old, new in pairwise(widths)))

    def forward(self, maps: list[torch.Tensor]) -> torch.Tensor:
        """Decodes one of the maps into (batch, channels, rows, columns)."""
        decoded: torch.Tensor = self.convs(maps[self.in_index])
        return decoded


class ChannelNorm(nn.Module):
    """Layer norm over the channels of each pixel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(channels, eps=_NORM_EPS)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Keeps the shape (batch, channels, rows, columns)."""
        normed: torch.Tensor = self.ln(maps.permute(0, 2, 3, 1))
        return normed.permute(0, 3, 1, 2)


def _doubling(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.ConvTranspose2d(inputs, outputs, 2, 2),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        ChannelNorm(outputs),
        nn.GELU(),
    )
