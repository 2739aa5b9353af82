"""The UPerNet decoder over a pyramid of maps (Xiao et al. 2018, https://arxiv.org/abs/1807.10221).

Arithmetic and parameter names are those of TerraTorch's `UperNetDecoder` and its
`LearnedInterpolateToPyramidal` neck.
"""

import torch
import torch.nn.functional as F
from torch import nn

_POOLS = (1, 2, 3, 6)


class LearnedPyramid(nn.Module):
    """Four maps of one resolution become a pyramid: times 4, times 2, as is, halved."""

    def __init__(self, widths: tuple[int, int, int, int]) -> None:
        super().__init__()
        first, second, third, fourth = widths
        self.fpn1 = nn.Sequential(
            nn.ConvTranspose2d(first, first // 2, 2, 2),
            nn.BatchNorm2d(first // 2),
            nn.GELU(),
            nn.ConvTranspose2d(first // 2, first // 4, 2, 2),
        )
        self.fpn2 = nn.Sequential(nn.ConvTranspose2d(second, second // 2, 2, 2))
        self.widths = (first // 4, second // 2, third, fourth)

    def forward(self, maps: list[torch.Tensor]) -> list[torch.Tensor]:
        """Resamples four maps (batch, width, rows, columns), at least two rows and columns."""
        first, second, third, fourth = maps
        return [self.fpn1(first), self.fpn2(second), third, F.max_pool2d(fourth, 2, 2)]


class UPerNetDecoder(nn.Module):
    """Pools the coarsest map, adds finer ones on the way down, fuses all of them."""

    def __init__(self, widths: tuple[int, ...], channels: int) -> None:
        super().__init__()
        coarsest = widths[-1]
        self.psp_modules = nn.ModuleList(
            nn.Sequential(nn.AdaptiveAvgPool2d(pool), ConvNormReLU(coarsest, channels, 1))
            for pool in _POOLS
        )
        pooled = coarsest + len(_POOLS) * channels
        self.bottleneck = ConvNormReLU(pooled, channels, 3)
        self.lateral_convs = nn.ModuleList(ConvNormReLU(w, channels, 1) for w in widths[:-1])
        self.fpn_convs = nn.ModuleList(ConvNormReLU(channels, channels, 3) for _ in widths[:-1])
        self.fpn_bottleneck = ConvNormReLU(len(widths) * channels, channels, 3)

    def forward(self, pyramid: list[torch.Tensor]) -> torch.Tensor:
        """Decodes maps from fine to coarse into (batch, channels) at the finest resolution."""
        coarsest = pyramid[-1]
        pools = [_resize(pool(coarsest), coarsest) for pool in self.psp_modules]
        levels = [conv(one) for conv, one in zip(self.lateral_convs, pyramid, strict=False)]
        levels.append(self.bottleneck(torch.cat([coarsest, *pools], dim=1)))
        for i in range(len(levels) - 1, 0, -1):
            levels[i - 1] = levels[i - 1] + _resize(levels[i], levels[i - 1])
        fine = [conv(one) for conv, one in zip(self.fpn_convs, levels, strict=False)]
        fine.append(levels[-1])
        return self.fpn_bottleneck(torch.cat([_resize(one, fine[0]) for one in fine], dim=1))


class ConvNormReLU(nn.Module):
    """A convolution that keeps the size, batch norm and ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Maps (batch, inputs, rows, columns) to (batch, outputs, rows, columns)."""
        return F.relu(self.norm(self.conv(maps)))


def _resize(maps: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    if maps.shape[-2:] == like.shape[-2:]:
        return maps
    return F.interpolate(maps, size=like.shape[-2:], mode="bilinear", align_corners=True)
