"""A U-Net's decoder (Ronneberger et al. 2015, https://arxiv.org/abs/1505.04597).

Arithmetic, arguments and parameter names are those of TerraTorch's `UNetDecoder`, which is the one
of segmentation_models_pytorch 0.5 over all maps of the pyramid.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from vllm_raster_model.errors import ContractError
from vllm_raster_model.networks.parts import Feature, refuse_unless

_NORMS = {"batchnorm": nn.BatchNorm2d, "identity": nn.Identity, "instancenorm": nn.InstanceNorm2d}


class UNetDecoder(nn.Module):
    """Enlarges the coarsest map step by step, each time beside the next finer map."""

    def __init__(
        self,
        inputs: list[Feature],
        channels: Sequence[int],
        use_batchnorm: bool | str | dict[str, Any] = "batchnorm",
        attention_type: str | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        refuse_unless(
            isinstance(channels, Sequence) and len(channels) == len(inputs),
            name,
            "channels",
            channels,
            f"one number for each of {len(inputs)} maps",
        )
        refuse_unless(
            attention_type in (None, "scse"), name, "attention_type", attention_type, "null or scse"
        )
        self.features = inputs
        self.output = Feature(channels[-1], inputs[0].map_scale(name))
        coarse_first = [one.channels for one in reversed(inputs)]
        before = [coarse_first[0], *channels[:-1]]
        skips = [*coarse_first[1:], 0]
        self.decoder = nn.Module()
        self.decoder.blocks = nn.ModuleList(
            UNetBlock(wide, skip, narrow, use_batchnorm, attention_type)
            for wide, skip, narrow in zip(before, skips, channels, strict=True)
        )

    def forward(self, maps: list[torch.Tensor]) -> torch.Tensor:
        """Decodes maps from fine to coarse into (batch, channels[-1]) at the finest resolution."""
        decoded = maps[-1]
        blocks = list(self.decoder.blocks)
        for block, finer in zip(blocks, reversed(maps[:-1]), strict=False):
            decoded = block(decoded, finer.shape[-2:], finer)
        # TerraTorch gives the finest map twice: the last step enlarges nothing and adds nothing.
        last: torch.Tensor = blocks[-1](decoded, maps[0].shape[-2:], None)
        return last


class UNetBlock(nn.Module):
    """Enlarges a map to the next finer one's size and convolves both together, twice."""

    def __init__(
        self,
        inputs: int,
        skip: int,
        outputs: int,
        norm: bool | str | dict[str, Any],
        attention: str | None,
    ) -> None:
        super().__init__()
        self.conv1 = _convolution(inputs + skip, outputs, norm)
        self.conv2 = _convolution(outputs, outputs, norm)
        self.attention1 = nn.Module()
        self.attention2 = nn.Module()
        self.attends = attention is not None
        if self.attends:
            self.attention1.attention = SqueezeAttention(inputs + skip)
            self.attention2.attention = SqueezeAttention(outputs)

    def forward(
        self, maps: torch.Tensor, size: tuple[int, int], finer: torch.Tensor | None
    ) -> torch.Tensor:
        """Maps (batch, inputs, rows, columns) to (batch, outputs, *size)."""
        maps = F.interpolate(maps, size=size, mode="nearest")
        if finer is not None:
            maps = torch.cat([maps, finer], dim=1)
            if self.attends:
                maps = self.attention1.attention(maps)
        maps = self.conv2(self.conv1(maps))
        return self.attention2.attention(maps) if self.attends else maps


class SqueezeAttention(nn.Module):
    """Weighs channels and places (Roy et al. 2018, https://arxiv.org/abs/1803.02579)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.cSE = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, channels // 16, 1),
            nn.ReLU(),
            nn.Conv2d(channels // 16, channels, 1),
            nn.Sigmoid(),
        )
        self.sSE = nn.Sequential(nn.Conv2d(channels, 1, 1), nn.Sigmoid())

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Keeps the shape (batch, channels, rows, columns)."""
        return maps * self.cSE(maps) + maps * self.sSE(maps)


def _convolution(inputs: int, outputs: int, norm: bool | str | dict[str, Any]) -> nn.Sequential:
    kind, arguments = _norm_kind(norm)
    bias = kind == "identity"
    conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=bias)
    return nn.Sequential(conv, _NORMS[kind](outputs, **arguments), nn.ReLU())


def _norm_kind(norm: bool | str | dict[str, Any]) -> tuple[str, dict[str, Any]]:
    if isinstance(norm, dict):
        arguments = dict(norm)
        kind = arguments.pop("type", None)
    else:
        arguments = {}
        names = {True: "batchnorm", False: "identity"}
        kind = names[norm] if isinstance(norm, bool) else str(norm).lower()
    if kind not in _NORMS:
        raise ContractError(
            f"UNetDecoder: use_batchnorm must be true, false or one of {sorted(_NORMS)}, "
            f"got {norm!r}"
        )
    return kind, arguments
