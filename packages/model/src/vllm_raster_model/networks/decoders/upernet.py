"""The UPerNet decoder over a pyramid of maps (Xiao et al. 2018, https://arxiv.org/abs/1807.10221).

Arithmetic, arguments and parameter names are those of TerraTorch's `UperNetDecoder`.
"""

from collections.abc import Sequence

import torch
from torch import nn

from vllm_raster_model.networks.decoders.convolutions import ConvNormReLU, resize_like
from vllm_raster_model.networks.necks import add_pyramid, as_pyramid, pyramid_features
from vllm_raster_model.networks.parts import Feature


class UperNetDecoder(nn.Module):
    """Pools the coarsest map, adds finer ones on the way down, fuses all of them.

    With `scale_modules`, as TerraTorch before 1.2 has it, four maps of one resolution become a
    pyramid first, by weights of the decoder's own.
    """

    def __init__(
        self,
        inputs: list[Feature],
        pool_scales: Sequence[int] = (1, 2, 3, 6),
        channels: int = 256,
        align_corners: bool = True,
        scale_modules: bool = False,
    ) -> None:
        super().__init__()
        self.scale_modules = scale_modules
        self.align_corners = align_corners
        if scale_modules:
            add_pyramid(self, inputs)
            inputs = pyramid_features(inputs, type(self).__name__)
        self.features = inputs
        self.output = Feature(channels, inputs[0].map_scale(type(self).__name__))
        widths = [one.channels for one in inputs]
        self.psp_modules = nn.ModuleList(
            nn.Sequential(nn.AdaptiveAvgPool2d(pool), ConvNormReLU(widths[-1], channels, 1))
            for pool in pool_scales
        )
        pooled = widths[-1] + len(self.psp_modules) * channels
        self.bottleneck = ConvNormReLU(pooled, channels, 3)
        self.lateral_convs = nn.ModuleList(ConvNormReLU(w, channels, 1) for w in widths[:-1])
        self.fpn_convs = nn.ModuleList(ConvNormReLU(channels, channels, 3) for _ in widths[:-1])
        self.fpn_bottleneck = ConvNormReLU(len(widths) * channels, channels, 3)

    def forward(self, maps: list[torch.Tensor]) -> torch.Tensor:
        """Decodes maps from fine to coarse into (batch, channels) at the finest resolution."""
        if self.scale_modules:
            maps = as_pyramid(self, maps)
        coarsest = maps[-1]
        pools = [self._resize(pool(coarsest), coarsest) for pool in self.psp_modules]
        levels = [conv(one) for conv, one in zip(self.lateral_convs, maps, strict=False)]
        levels.append(self.bottleneck(torch.cat([coarsest, *pools], dim=1)))
        for i in range(len(levels) - 1, 0, -1):
            levels[i - 1] = levels[i - 1] + self._resize(levels[i], levels[i - 1])
        fine = [conv(one) for conv, one in zip(self.fpn_convs, levels, strict=False)]
        fine.append(levels[-1])
        fused = torch.cat([self._resize(one, fine[0]) for one in fine], dim=1)
        decoded: torch.Tensor = self.fpn_bottleneck(fused)
        return decoded

    def _resize(self, maps: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        return resize_like(maps, like, self.align_corners)
