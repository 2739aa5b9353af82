"""Which windows a network of patches takes, and how fine its output is."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

from vllm_raster_model.contract import RasterContract
from vllm_raster_model.errors import ContractError
from vllm_raster_model.networks.parts import Feature


@dataclass(frozen=True)
class Geometry:
    """Which windows a network takes, and how fine its output is.

    Attributes:
        scale: Output pixels to an input pixel along each axis.
        minimum: Smallest side of a window in pixels.
        multiple: What a side must be a multiple of, in pixels; 1 for a network that pads.
    """

    scale: Fraction
    minimum: int
    multiple: int

    @classmethod
    def of(
        cls,
        output: Feature,
        scales: Iterable[Fraction],
        patch: int,
        *,
        rescale: bool,
        padded: bool,
    ) -> Self:
        """That of a network.

        Args:
            output: The last map.
            scales: Of all maps that come before it.
            patch: Side of a patch in pixels.
            rescale: Whether the output is stretched to the window's size.
            padded: Whether windows are padded to an even number of patches, half on each side.
        """
        scale = Fraction(1) if rescale else output.map_scale("The output") / patch
        fewest = max(math.ceil(1 / one) for one in scales)
        whole = 1 if rescale else output.whole
        if not padded:
            return cls(scale, fewest * patch, whole * patch)
        # Padding makes two patches of one pixel, and an even number in any case.
        minimum = 1 if fewest <= 2 else fewest * patch
        if scale >= 1 and whole <= 2:
            return cls(scale, minimum, 1)
        # Half of the padding on each side would move the output by a part of its pixel.
        return cls(scale, minimum, math.lcm(2, whole) * patch)

    @property
    def upscale(self) -> int:
        """The contract's `output.upscale`.

        Raises:
            ContractError: A pixel is no whole number of the other's.
        """
        return self._whole().numerator

    @property
    def downscale(self) -> int:
        """The contract's `output.downscale`; raises as `upscale` does."""
        return self._whole().denominator

    def _whole(self) -> Fraction:
        if 1 not in (self.scale.numerator, self.scale.denominator):
            raise ContractError(
                f"The network gives {self.scale} output pixels to an input pixel along each axis, "
                "and neither that nor its inverse is whole: set rescale to true"
            )
        return self.scale

    def check(self, contract: RasterContract) -> None:
        """Checks what a `raster` block says of windows and output.

        Raises:
            ContractError: It is not that of this network.
        """
        output, tile = contract.output, contract.tile
        if (self.upscale, self.downscale) != (output.upscale, output.downscale):
            raise ContractError(
                f"raster.output.upscale and downscale must be {self.upscale} and "
                f"{self.downscale} for this network, got {output.upscale} and {output.downscale}"
            )
        if tile.multiple_of % self.multiple:
            raise ContractError(
                f"raster.tile.multiple_of must be a multiple of {self.multiple} pixels for this "
                f"network, got {tile.multiple_of}"
            )
        smallest = tile.minimum or (1 if self.multiple == 1 else tile.multiple_of)
        if smallest < self.minimum:
            raise ContractError(
                f"raster.tile.minimum must be at least {self.minimum} pixels for this network, "
                f"got {smallest}"
            )
