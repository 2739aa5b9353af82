"""Atrous spatial pyramid pooling (Chen et al. 2017, https://arxiv.org/abs/1706.05587).

Arithmetic, arguments and parameter names are those of TerraTorch's `ASPPSegmentationHead` and
`ASPPRegressionHead`, which it registers as decoders: behind them comes a head as behind the others.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from vllm_raster_model.networks.decoders.convolutions import ConvNormReLU, resize_like
from vllm_raster_model.networks.parts import Feature, pick, refuse_unless


class _ASPPDecoder(nn.Module):
    """Convolutions of several reaches over a map and over its mean, fused."""

    def __init__(
        self,
        inputs: list[Feature],
        dilations: Sequence[int],
        in_channels: int | None,
        channels: int | None,
        align_corners: bool,
        input_transform: str | None,
        in_index: Any,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        refuse_unless(
            input_transform in (None, "resize_concat"),
            name,
            "input_transform",
            input_transform,
            "null or resize_concat",
        )
        self.indices = list(in_index) if input_transform else [in_index]
        self.features = [pick(inputs, i, name, "in_index") for i in self.indices]
        width = sum(one.channels for one in self.features)
        refuse_unless(in_channels == width, name, "in_channels", in_channels, str(width))
        refuse_unless(isinstance(channels, int), name, "channels", channels, "a number")
        assert isinstance(channels, int)
        self.align_corners = align_corners
        self.image_pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), ConvNormReLU(width, channels, 1))
        self.aspp_modules = nn.Module()
        self.aspp_modules.model_sequence = nn.ModuleList(
            ConvNormReLU(width, channels, 1 if one == 1 else 3, dilation=one) for one in dilations
        )
        self.bottleneck = ConvNormReLU((len(dilations) + 1) * channels, channels, 3)

    def output_of(self, channels: int) -> Feature:
        """The feature that it gives, of so many channels."""
        return Feature(channels, self.features[0].map_scale(type(self).__name__))

    def fuse(self, maps: list[torch.Tensor]) -> torch.Tensor:
        """Fuses the maps that it reads into (batch, channels) at the first one's resolution."""
        first, *others = (maps[i] for i in self.indices)
        read = torch.cat(
            [first, *(resize_like(one, first, self.align_corners) for one in others)], 1
        )
        # A stretched single pixel is that pixel everywhere.
        mean = self.image_pool(read).expand(-1, -1, *read.shape[-2:])
        reaches = [one(read) for one in self.aspp_modules.model_sequence]
        fused: torch.Tensor = self.bottleneck(torch.cat([mean, *reaches], dim=1))
        return fused


class ASPPSegmentationHead(_ASPPDecoder):
    """Fuses by `_ASPPDecoder` and gives a channel a class."""

    def __init__(
        self,
        inputs: list[Feature],
        dilations: Sequence[int] = (1, 6, 12, 18),
        in_channels: int | None = None,
        channels: int | None = None,
        num_classes: int = 2,
        align_corners: bool = False,
        head_dropout_ratio: float = 0.3,
        input_transform: str | None = None,
        in_index: Any = -1,
    ) -> None:
        super().__init__(
            inputs, dilations, in_channels, channels, align_corners, input_transform, in_index
        )
        self.output = self.output_of(num_classes)
        self.dropout = nn.Dropout2d(head_dropout_ratio)
        self.conv_seg = nn.Conv2d(channels or 0, num_classes, 1)

    def forward(self, maps: list[torch.Tensor]) -> torch.Tensor:
        """Decodes into (batch, num_classes, rows, columns)."""
        decoded: torch.Tensor = self.conv_seg(self.dropout(self.fuse(maps)))
        return decoded


class ASPPRegressionHead(_ASPPDecoder):
    """Fuses by `_ASPPDecoder` and gives a channel a quantity."""

    def __init__(
        self,
        inputs: list[Feature],
        dilations: Sequence[int] = (1, 6, 12, 18),
        in_channels: int | None = None,
        channels: int | None = None,
        out_channels: int = 1,
        align_corners: bool = False,
        head_dropout_ratio: float = 0.3,
        input_transform: str | None = None,
        in_index: Any = -1,
    ) -> None:
        super().__init__(
            inputs, dilations, in_channels, channels, align_corners, input_transform, in_index
        )
        self.output = self.output_of(out_channels)
        self.dropout = nn.Dropout2d(head_dropout_ratio)
        self.conv_reg = nn.Conv2d(channels or 0, out_channels, 1)

    def forward(self, maps: list[torch.Tensor]) -> torch.Tensor:
        """Decodes into (batch, out_channels, rows, columns)."""
        decoded: torch.Tensor = self.conv_reg(self.dropout(self.fuse(maps)))
        return decoded
