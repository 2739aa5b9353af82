"""A Prithvi encoder with any neck, decoder and head for maps, as TerraTorch puts them together.

Arithmetic, arguments and parameter names are those of TerraTorch's `EncoderDecoderFactory`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedConfig

from vllm_raster_model.contract import RasterContract
from vllm_raster_model.errors import ContractError
from vllm_raster_model.networks.decoders import DECODERS
from vllm_raster_model.networks.heads import HEADS
from vllm_raster_model.networks.layers import Layers
from vllm_raster_model.networks.necks import Grid, SelectIndices, build_necks
from vllm_raster_model.networks.padding import PADDINGS, Padding
from vllm_raster_model.networks.parts import Feature, build_part
from vllm_raster_model.networks.prithvi import PrithviEncoder, check_width, steps_of


class PrithviDenseConfig(PreTrainedConfig):
    """The shape of the network.

    Bands, frames, coordinates and output channels are the `raster` block's to say. Necks, decoder
    and head are described by `{"name": …}` and the arguments that TerraTorch's class of that name
    takes.

    Attributes:
        embed_dim: Width of a token; a multiple of 16 and of `num_heads`.
        depth: Number of transformer blocks.
        num_heads: Attention heads.
        patch_size: Side of a patch in pixels.
        tubelet_size: Dates in a patch.
        image_size: Side, in pixels, of the windows that the position code was made for, or their
            height and width; the code is stretched to windows of other sizes.
        mlp_ratio: Width of the perceptrons in units of `embed_dim`.
        out_indices: The blocks whose tokens the necks are given; None for all.
        necks: What is between encoder and decoder; where there is nothing, tokens become maps.
        decoder: What makes one map of them.
        head: What makes channels of that map; None for the map itself.
        rescale: Whether the output is stretched to the window's size.
        padding: How a window is padded to an even number of patches, half on each side: a mode of
            `torch.nn.functional.pad`; None for not at all, then windows are whole patches.
    """

    model_type = "prithvi_dense"

    def __init__(
        self,
        embed_dim: int = 1024,
        depth: int = 24,
        num_heads: int = 16,
        patch_size: int = 16,
        tubelet_size: int = 1,
        image_size: int | Sequence[int] = 224,
        mlp_ratio: float = 4.0,
        out_indices: Sequence[int] | None = None,
        necks: Sequence[dict[str, Any]] = (
            {"name": "SelectIndices", "indices": [5, 11, 17, 23]},
            {"name": "ReshapeTokensToImage"},
            {"name": "LearnedInterpolateToPyramidal"},
        ),
        decoder: dict[str, Any] | None = None,
        head: dict[str, Any] | None = None,
        rescale: bool = True,
        padding: str | None = "reflect",
        **kwargs: Any,
    ) -> None:
        self.embed_dim = embed_dim
        self.depth = depth
        self.num_heads = num_heads
        self.patch_size = patch_size
        self.tubelet_size = tubelet_size
        self.image_size = image_size if isinstance(image_size, int) else list(image_size)
        self.mlp_ratio = mlp_ratio
        self.out_indices = None if out_indices is None else list(out_indices)
        self.necks = list(necks)
        self.decoder = {"name": "UperNetDecoder"} if decoder is None else decoder
        self.head = head
        self.rescale = rescale
        self.padding = padding
        super().__init__(**kwargs)
        self._check()

    def _check(self) -> None:
        check_width("embed_dim", self.embed_dim, "num_heads", self.num_heads)
        indices = self.out_indices
        if indices is not None and not all(-self.depth <= i < self.depth for i in indices):
            raise ContractError(
                f"vision_config.out_indices must name some of {self.depth} blocks, got {indices}"
            )
        if self.padding not in (None, *PADDINGS):
            raise ContractError(
                f"vision_config.padding must be null or one of {list(PADDINGS)}, "
                f"got {self.padding!r}"
            )


@dataclass(frozen=True)
class Geometry:
    """Which windows a network takes, and how fine its output is.

    Attributes:
        scale: Output pixels to an input pixel along each axis.
        minimum: Smallest side of a window in pixels.
        multiple: What a side must be a multiple of, in pixels.
    """

    scale: Fraction
    minimum: int
    multiple: int

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


class _Parts:
    """Necks, decoder and head, and what is known of the features between them."""

    def __init__(
        self, config: PrithviDenseConfig, frames: int, channels: int, largest: Grid
    ) -> None:
        steps = steps_of(frames, config.tubelet_size)
        count = config.depth if config.out_indices is None else len(config.out_indices)
        tokens = [Feature(config.embed_dim, None)] * count
        self.necks, stages = build_necks(config.necks, tokens, steps, largest)
        self.decoder = build_part("decoder", DECODERS, config.decoder, stages[-1])
        self.head = None
        self.output: Feature = self.decoder.output
        if config.head is not None:
            self.head = build_part("head", HEADS, config.head, self.output, channels)
            self.output = self.head.output
        between = [one for stage in stages[1:] for one in stage] + self.decoder.features
        self.scales = [one.scale for one in between if one.scale is not None]

    def geometry(self, config: PrithviDenseConfig) -> Geometry:
        """See `Geometry`."""
        patch = config.patch_size
        scale = Fraction(1)
        if not config.rescale:
            scale = self.output.map_scale("The output") / patch
        fewest = max(math.ceil(1 / one) for one in self.scales)
        whole = math.lcm(*(one.denominator for one in self.scales)) if not config.rescale else 1
        if config.padding is None:
            return Geometry(scale, fewest * patch, whole * patch)
        # Padding makes two patches of one pixel, and an even number in any case.
        minimum = 1 if fewest <= 2 else fewest * patch
        if scale >= 1 and whole <= 2:
            return Geometry(scale, minimum, 1)
        # Half of the padding on each side would move the output by a part of its pixel.
        return Geometry(scale, minimum, math.lcm(2, whole) * patch)


class PrithviDense(nn.Module):
    """Windows of bands and dates in, a score for each channel and output pixel out."""

    config_class = PrithviDenseConfig

    def __init__(
        self,
        config: PrithviDenseConfig,
        contract: RasterContract,
        layers: Layers,
        prefix: str = "network",
        channels: int | None = None,
    ) -> None:
        super().__init__()
        wanted = channels or contract.output.channels
        size = contract.tile.size
        self.padding = Padding(config.padding, 2 * config.patch_size)
        rows = self.padding.padded(size) // config.patch_size
        parts = _Parts(config, contract.input.frames, wanted, (rows, rows))
        self.geometry = parts.geometry(config)
        _check_fit(self.geometry, parts.output.channels, wanted, contract)
        self.patch_size = config.patch_size
        self.out_indices = _numbers(config.out_indices, config.depth)
        self.rescale = config.rescale
        self.encoder = PrithviEncoder(
            bands=len(contract.input.bands),
            width=config.embed_dim,
            depth=config.depth,
            heads=config.num_heads,
            patch=config.patch_size,
            tubelet=config.tubelet_size,
            trained_size=config.image_size,
            mlp_ratio=config.mlp_ratio,
            coordinates=contract.input.coordinates,
            layers=layers,
            prefix=f"{prefix}.encoder",
        )
        self.neck, self.decoder, self.head = parts.necks, parts.decoder, parts.head
        self.wanted = set(self.out_indices)
        if isinstance(self.neck[0], SelectIndices):
            self.wanted = {self.out_indices[i] for i in self.neck[0].indices}

    @classmethod
    def describe(
        cls, config: PrithviDenseConfig, frames: int = 1, tile: int | None = None
    ) -> Geometry:
        """Which windows the network of a configuration takes, and how fine its output is.

        Args:
            config: Of the network.
            frames: Dates in one input.
            tile: Side of the largest window, for a ReshapeTokensToImage that is told its rows.

        Raises:
            ContractError: A part is not supported or does not fit the others.
        """
        patches = (tile or config.patch_size) // config.patch_size
        with torch.device("meta"):
            return _Parts(config, frames, 1, (patches, patches)).geometry(config)

    @property
    def minimum_side(self) -> int:
        """Smallest side of a window in pixels."""
        return self.geometry.minimum

    @property
    def takes_any_size(self) -> bool:
        """Whether the network pads windows by itself, so that they need not be whole cells."""
        return self.geometry.multiple == 1

    def forward(
        self,
        pixels: torch.Tensor,
        temporal_coords: torch.Tensor | None = None,
        location_coords: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Maps windows of one shape; arguments as `PrithviEncoder.forward` takes them.

        Returns:
            (batch, channels, height * scale, width * scale), scores before any softmax.
        """
        height, width = pixels.shape[-2:]
        pixels = self.padding(pixels)
        padded = pixels.shape[-2:]
        stages = self.encoder(pixels, temporal_coords, location_coords, self.wanted)
        features = [stages[i] for i in self.out_indices]
        grid = (padded[0] // self.patch_size, padded[1] // self.patch_size)
        for neck in self.neck:
            features = neck(features, grid)
        scores = self.decoder(features)
        if self.head is not None:
            scores = self.head(scores)
        if self.rescale and scores.shape[-2:] != padded:
            scores = F.interpolate(scores, size=padded, mode="bilinear")
        return self.padding.cropped(scores, height, width, self.geometry.scale)


def _numbers(indices: Sequence[int] | None, depth: int) -> list[int]:
    return list(range(depth)) if indices is None else [i % depth for i in indices]


def _check_fit(geometry: Geometry, channels: int, wanted: int, contract: RasterContract) -> None:
    if channels != wanted:
        raise ContractError(
            f"Without a head the network gives the decoder's {channels} channels, "
            f"but {wanted} are wanted"
        )
    output, tile = contract.output, contract.tile
    if (geometry.upscale, geometry.downscale) != (output.upscale, output.downscale):
        raise ContractError(
            f"raster.output.upscale and downscale must be {geometry.upscale} and "
            f"{geometry.downscale} for this network, got {output.upscale} and {output.downscale}"
        )
    if tile.multiple_of % geometry.multiple:
        raise ContractError(
            f"raster.tile.multiple_of must be a multiple of {geometry.multiple} pixels for this "
            f"network, got {tile.multiple_of}"
        )
    smallest = tile.minimum or (1 if geometry.multiple == 1 else tile.multiple_of)
    if smallest < geometry.minimum:
        raise ContractError(
            f"raster.tile.minimum must be at least {geometry.minimum} pixels for this network, "
            f"got {smallest}"
        )
