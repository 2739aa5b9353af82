"""Heads: from the decoder's map to one channel a class or a quantity.

Arithmetic, arguments and parameter names are those of TerraTorch's `SegmentationHead` and
`RegressionHead`. Dropout does nothing when a network is used, but has a place in the names.
"""

from fractions import Fraction
from itertools import pairwise

import torch
from torch import nn

from vllm_raster_model.errors import ContractError
from vllm_raster_model.networks.parts import Feature

ACTIVATIONS = (
    "CELU", "ELU", "GELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "Identity",
    "LeakyReLU", "LogSigmoid", "Mish", "PReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid",
    "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink",
)  # fmt: skip
"""The activations of `torch.nn` that work on single numbers and need no argument."""


def activation(name: str, part: str) -> nn.Module:
    """The activation of a name, `ReLU` or `torch.nn.ReLU`.

    Raises:
        ContractError: None of `ACTIVATIONS` goes by it.
    """
    module, _, plain = name.rpartition(".")
    if plain not in ACTIVATIONS or module not in ("", "torch.nn", "torch.nn.modules.activation"):
        raise ContractError(f"{part}: the activation {name!r} is not one of {list(ACTIVATIONS)}")
    made: nn.Module = getattr(nn, plain)()
    return made


class SegmentationHead(nn.Module):
    """Convolutions with ReLU, one for each of `channel_list`, and a score a class."""

    def __init__(
        self,
        inputs: Feature,
        channels: int,
        channel_list: list[int] | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        widths = [inputs.channels, *(channel_list or [])]
        before = nn.Sequential(
            *(
                nn.Sequential(nn.Conv2d(old, new, 3, padding=1), nn.ReLU())
                for old, new in pairwise(widths)
            )
        )
        self.head = nn.Sequential(before, nn.Dropout(dropout), nn.Conv2d(widths[-1], channels, 1))
        self.output = Feature(channels, inputs.scale)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Maps (batch, inputs, rows, columns) to (batch, channels, rows, columns)."""
        scores: torch.Tensor = self.head(maps)
        return scores


class RegressionHead(nn.Module):
    """Learned enlargements, convolutions with batch norm, a value a quantity, an activation."""

    def __init__(
        self,
        inputs: Feature,
        channels: int,
        final_act: str | None = None,
        learned_upscale_layers: int = 0,
        channel_list: list[int] | None = None,
        batch_norm: bool = True,  # TerraTorch takes it and norms in any case
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        width, before = inputs.channels, list[nn.Module]()
        if learned_upscale_layers:
            layers = (PixelShuffleUpscale(width) for _ in range(learned_upscale_layers))
            before.append(nn.Sequential(*layers))
        if channel_list is not None:
            widths = [width, *channel_list]
            before.append(
                nn.Sequential(
                    *(
                        nn.Sequential(
                            nn.Conv2d(old, new, 3, padding=1, bias=False),
                            nn.BatchNorm2d(new),
                            nn.ReLU(),
                        )
                        for old, new in pairwise(widths)
                    )
                )
            )
            width = widths[-1]
        self.head = nn.Sequential(*before, nn.Dropout2d(dropout), nn.Conv2d(width, channels, 1))
        self.final_act = activation(final_act or "Identity", type(self).__name__)
        scale = inputs.map_scale(type(self).__name__) * Fraction(2) ** learned_upscale_layers
        self.output = Feature(channels, scale)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Maps (batch, inputs, rows, columns) to (batch, channels, rows, columns), enlarged."""
        values: torch.Tensor = self.final_act(self.head(maps))
        return values


class PixelShuffleUpscale(nn.Module):
    """A map of twice the resolution and as many channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 4 * channels, 3, padding=1)
        self.bn = nn.BatchNorm2d(channels)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Maps (batch, channels, rows, columns) to twice the rows and columns."""
        enlarged = nn.functional.pixel_shuffle(self.conv(maps), 2)
        return nn.functional.relu(self.bn(enlarged))


HEADS: dict[str, type[nn.Module]] = {
    one.__name__: one for one in (SegmentationHead, RegressionHead)
}
"""The heads by the names that TerraTorch gives them."""
