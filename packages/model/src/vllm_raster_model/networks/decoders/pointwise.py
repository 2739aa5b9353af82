"""Decoders that see each patch by itself.

Arithmetic, arguments and parameter names are those of TerraTorch's `IdentityDecoder`,
`LinearDecoder` and `MLPDecoder`.
"""

import torch
from torch import nn

from vllm_raster_model.networks import heads
from vllm_raster_model.networks.parts import Feature, pick, refuse_unless


class IdentityDecoder(nn.Module):
    """Hands one of the maps on."""

    def __init__(self, inputs: list[Feature], out_index: int = -1) -> None:
        super().__init__()
        name = type(self).__name__
        self.output = pick(inputs, out_index, name, "out_index")
        self.output.map_scale(name)
        self.out_index = out_index
        self.features = [self.output]

    def forward(self, maps: list[torch.Tensor]) -> torch.Tensor:
        """Gives one of the maps."""
        return maps[self.out_index]


class LinearDecoder(nn.Module):
    """Turns each pixel of one map into a block of `upsampling_size` pixels a side."""

    def __init__(
        self, inputs: list[Feature], num_classes: int, upsampling_size: int, in_index: int = -1
    ) -> None:
        super().__init__()
        name = type(self).__name__
        read = pick(inputs, in_index, name, "in_index")
        self.in_index = in_index
        self.features = [read]
        self.output = Feature(num_classes, read.map_scale(name) * upsampling_size)
        self.conv = nn.ConvTranspose2d(read.channels, num_classes, upsampling_size, upsampling_size)

    def forward(self, maps: list[torch.Tensor]) -> torch.Tensor:
        """Decodes one of the maps into (batch, num_classes, rows, columns)."""
        decoded: torch.Tensor = self.conv(maps[self.in_index])
        return decoded


class MLPDecoder(nn.Module):
    """A linear layer over all maps at each pixel, and an activation.

    TerraTorch takes `channels` and `out_dim` and uses neither.
    """

    def __init__(
        self,
        inputs: list[Feature],
        channels: int = 100,
        out_dim: int = 100,
        activation: str = "ReLU",
        out_index: int = -1,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        alike = all(one == inputs[0] for one in inputs)
        refuse_unless(alike, name, "its maps", inputs, "all of one width and resolution")
        self.output = pick(inputs, out_index, name, "out_index")
        self.output.map_scale(name)
        self.features = inputs
        width = self.output.channels
        self.hidden_layer = nn.Linear(width * len(inputs), width)
        self.activation = heads.activation(activation, name)

    def forward(self, maps: list[torch.Tensor]) -> torch.Tensor:
        """Decodes all maps into one of the width of each, (batch, width, rows, columns)."""
        hidden = self.hidden_layer(torch.cat(maps, dim=1).permute(0, 2, 3, 1))
        decoded: torch.Tensor = self.activation(hidden)
        return decoded.permute(0, 3, 1, 2)
