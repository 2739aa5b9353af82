"""Convolutions that several decoders are made of."""

import torch
import torch.nn.functional as F
from torch import nn


class ConvNormReLU(nn.Module):
    """A convolution that keeps the size, batch norm and ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int = 1) -> None:
        super().__init__()
        padding = kernel // 2 * dilation
        self.conv = nn.Conv2d(
            inputs, outputs, kernel, padding=padding, dilation=dilation, bias=False
        )
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Maps (batch, inputs, rows, columns) to (batch, outputs, rows, columns)."""
        return F.relu(self.norm(self.conv(maps)))


def resize_like(maps: torch.Tensor, like: torch.Tensor, align_corners: bool) -> torch.Tensor:
    """Stretches maps bilinearly to the rows and columns of others."""
    size = like.shape[-2:]
    if maps.shape[-2:] == size:
        return maps
    return F.interpolate(maps, size=size, mode="bilinear", align_corners=align_corners)
