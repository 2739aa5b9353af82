"""Necks: from the encoder's tokens to the maps that a decoder reads.

Arithmetic, arguments and parameter names are those of TerraTorch's necks
(https://github.com/terrastackai/terratorch).
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from vllm_raster_model.networks.parts import Feature, build_part, pick, refuse_unless

Grid = tuple[int, int]
"""Rows and columns of patches."""


class Neck(nn.Module):
    """A step between encoder and decoder.

    Attributes:
        outputs: The features that it gives.
    """

    outputs: list[Feature]

    def forward(self, features: list[torch.Tensor], grid: Grid) -> list[torch.Tensor]:
        """Maps features of one image size to those of `outputs`."""
        raise NotImplementedError


class SelectIndices(Neck):
    """Keeps some of the features, in the order given."""

    def __init__(self, inputs: list[Feature], indices: Sequence[int]) -> None:
        super().__init__()
        self.indices = list(indices)
        self.outputs = [pick(inputs, i, "SelectIndices", "indices") for i in self.indices]

    def forward(self, features: list[torch.Tensor], grid: Grid) -> list[torch.Tensor]:
        """See `Neck.forward`."""
        return [features[i] for i in self.indices]


class ReshapeTokensToImage(Neck):
    """Lays tokens out as maps, those of several dates beside each other in the channels.

    TerraTorch guesses the grid from the number of tokens and takes it for a square wherever it
    can be one; here the grid is the image's.
    """

    def __init__(
        self,
        inputs: list[Feature],
        remove_cls_token: bool = True,
        effective_time_dim: int = 1,
        h: int | None = None,
        temporal_inputs: bool = False,
        *,
        steps: int,
        largest: Grid,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        refuse_unless(remove_cls_token is True, name, "remove_cls_token", remove_cls_token, "true")
        refuse_unless(not temporal_inputs, name, "temporal_inputs", temporal_inputs, "false")
        refuse_unless(
            effective_time_dim == steps,
            name,
            "effective_time_dim",
            effective_time_dim,
            f"the number of dates over the tubelet size, {steps}",
        )
        refuse_unless(
            h is None or h == largest[0],
            name,
            "h",
            h,
            f"null or the rows of patches of the largest window, {largest[0]}",
        )
        self.steps = steps
        self.outputs = [
            one if one.scale is not None else Feature(one.channels * steps, Fraction(1))
            for one in inputs
        ]

    def forward(self, features: list[torch.Tensor], grid: Grid) -> list[torch.Tensor]:
        """See `Neck.forward`; takes tokens (batch, 1 + steps * rows * columns, width)."""
        return [one if one.ndim == 4 else self._as_map(one, grid) for one in features]

    def _as_map(self, tokens: torch.Tensor, grid: Grid) -> torch.Tensor:
        patches = tokens[:, 1:].unflatten(1, (self.steps, *grid))
        return patches.permute(0, 1, 4, 2, 3).flatten(1, 2)


class InterpolateToPyramidal(Neck):
    """Enlarges each map, the last one by `scale_factor` and each before it by that much more."""

    def __init__(self, inputs: list[Feature], scale_factor: int = 2, mode: str = "nearest") -> None:
        super().__init__()
        name, modes = type(self).__name__, ("nearest", "nearest-exact", "bilinear", "bicubic")
        refuse_unless(_positive(scale_factor), name, "scale_factor", scale_factor, "an integer > 0")
        refuse_unless(mode in modes, name, "mode", mode, f"one of {list(modes)}")
        self.factors = [scale_factor**n for n in range(len(inputs), 0, -1)]
        self.mode = mode
        self.outputs = [
            Feature(one.channels, one.map_scale(name) * factor)
            for one, factor in zip(inputs, self.factors, strict=True)
        ]

    def forward(self, features: list[torch.Tensor], grid: Grid) -> list[torch.Tensor]:
        """See `Neck.forward`."""
        return [
            F.interpolate(one, scale_factor=factor, mode=self.mode)
            for one, factor in zip(features, self.factors, strict=True)
        ]


class MaxpoolToPyramidal(Neck):
    """Shrinks each map, the first one not at all and each behind it by `kernel_size` more."""

    def __init__(self, inputs: list[Feature], kernel_size: int = 2) -> None:
        super().__init__()
        name = type(self).__name__
        refuse_unless(_positive(kernel_size), name, "kernel_size", kernel_size, "an integer > 0")
        self.factors = [kernel_size**n for n in range(len(inputs))]
        self.outputs = [
            Feature(one.channels, one.map_scale(name) / factor)
            for one, factor in zip(inputs, self.factors, strict=True)
        ]

    def forward(self, features: list[torch.Tensor], grid: Grid) -> list[torch.Tensor]:
        """See `Neck.forward`."""
        return [
            one if factor == 1 else F.max_pool2d(one, factor)
            for one, factor in zip(features, self.factors, strict=True)
        ]


class LearnedInterpolateToPyramidal(Neck):
    """Four maps of one resolution become a pyramid: times 4, times 2, as is, halved."""

    def __init__(self, inputs: list[Feature]) -> None:
        super().__init__()
        add_pyramid(self, inputs)
        self.outputs = pyramid_features(inputs, type(self).__name__)

    def forward(self, features: list[torch.Tensor], grid: Grid) -> list[torch.Tensor]:
        """See `Neck.forward`."""
        return as_pyramid(self, features)


def add_pyramid(module: nn.Module, inputs: list[Feature]) -> None:
    """Gives a module the layers of a learned pyramid, `fpn1` and `fpn2`.

    Raises:
        ContractError: There are not four features.
    """
    refuse_unless(len(inputs) == 4, type(module).__name__, "the number of maps", len(inputs), "4")
    first, second = inputs[0].channels, inputs[1].channels
    module.fpn1 = nn.Sequential(
        nn.ConvTranspose2d(first, first // 2, 2, 2),
        nn.BatchNorm2d(first // 2),
        nn.GELU(),
        nn.ConvTranspose2d(first // 2, first // 4, 2, 2),
    )
    module.fpn2 = nn.Sequential(nn.ConvTranspose2d(second, second // 2, 2, 2))


def pyramid_features(inputs: list[Feature], reader: str) -> list[Feature]:
    """The features of a learned pyramid over four maps."""
    narrower, finer = (4, 2, 1, 1), (Fraction(4), Fraction(2), Fraction(1), Fraction(1, 2))
    return [
        Feature(one.channels // part, one.map_scale(reader) * scale)
        for one, part, scale in zip(inputs, narrower, finer, strict=True)
    ]


def as_pyramid(module: Any, maps: list[torch.Tensor]) -> list[torch.Tensor]:
    """Applies a learned pyramid to four maps of at least two rows and columns."""
    first, second, third, fourth = maps
    return [module.fpn1(first), module.fpn2(second), third, F.max_pool2d(fourth, 2, 2)]


class AddBottleneckLayer(Neck):
    """Adds the last map once more, with half of its channels."""

    def __init__(self, inputs: list[Feature]) -> None:
        super().__init__()
        last = inputs[-1]
        last.map_scale(type(self).__name__)
        self.bottleneck = nn.Conv2d(last.channels, last.channels // 2, 1)
        self.outputs = [*inputs, Feature(last.channels // 2, last.scale)]

    def forward(self, features: list[torch.Tensor], grid: Grid) -> list[torch.Tensor]:
        """See `Neck.forward`."""
        return [*features, self.bottleneck(features[-1])]


NECKS: dict[str, type[nn.Module]] = {
    one.__name__: one
    for one in (
        SelectIndices,
        ReshapeTokensToImage,
        InterpolateToPyramidal,
        MaxpoolToPyramidal,
        LearnedInterpolateToPyramidal,
        AddBottleneckLayer,
    )
}
"""The necks by the names that TerraTorch gives them."""


def build_necks(
    described: Sequence[Any], features: list[Feature], steps: int, largest: Grid
) -> tuple[nn.ModuleList, list[list[Feature]]]:
    """Builds the necks of a configuration, one after the other.

    Args:
        described: One `{"name": …}` with arguments a neck; where there is none at all, tokens
            are laid out as maps, as in TerraTorch.
        features: What the encoder gives.
        steps: Dates over tubelet size.
        largest: Grid of patches of the largest window.

    Returns:
        The necks, and the features before the first and behind each of them.

    Raises:
        ContractError: A neck is not known or does not fit.
    """
    stages = [features]
    necks = nn.ModuleList()
    for i, one in enumerate(
        described or [{"name": "ReshapeTokensToImage", "effective_time_dim": steps}]
    ):
        neck = build_part(f"necks[{i}]", NECKS, one, stages[-1], steps=steps, largest=largest)
        necks.append(neck)
        stages.append(neck.outputs)
    return necks, stages


def _positive(value: Any) -> bool:
    return isinstance(value, int) and value > 0
