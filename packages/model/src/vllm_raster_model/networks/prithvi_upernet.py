"""A Prithvi encoder with a UPerNet decoder, and its configuration."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedConfig

from vllm_raster_model.contract import RasterContract
from vllm_raster_model.errors import ContractError
from vllm_raster_model.networks.layers import Layers
from vllm_raster_model.networks.prithvi import PrithviEncoder
from vllm_raster_model.networks.upernet import LearnedPyramid, UPerNetDecoder


class PrithviUPerNetConfig(PreTrainedConfig):
    """The shape of the network.

    Bands, frames, coordinates and output channels are the `raster` block's to say.

    Attributes:
        embed_dim: Width of a token; a multiple of 16 and of `num_heads`.
        depth: Number of transformer blocks.
        num_heads: Attention heads.
        patch_size: Side of a patch in pixels; divides the cell.
        image_size: Side, in pixels, of the windows that the position code was made for; the
            code is stretched to windows of other sizes.
        mlp_ratio: Width of the perceptrons in units of `embed_dim`.
        out_indices: The four blocks whose tokens are decoded, from fine to coarse.
        decoder_channels: Width of the decoder.
    """

    model_type = "prithvi_upernet"

    def __init__(
        self,
        embed_dim: int = 1024,
        depth: int = 24,
        num_heads: int = 16,
        patch_size: int = 16,
        image_size: int = 224,
        mlp_ratio: float = 4.0,
        out_indices: tuple[int, int, int, int] = (5, 11, 17, 23),
        decoder_channels: int = 256,
        **kwargs: Any,
    ) -> None:
        self.embed_dim = embed_dim
        self.depth = depth
        self.num_heads = num_heads
        self.patch_size = patch_size
        self.image_size = image_size
        self.mlp_ratio = mlp_ratio
        self.out_indices = list(out_indices)
        self.decoder_channels = decoder_channels
        super().__init__(**kwargs)
        self._check()

    def _check(self) -> None:
        if self.embed_dim % 16 or self.embed_dim % self.num_heads:
            raise ContractError(
                f"vision_config.embed_dim must be a multiple of 16 and of num_heads="
                f"{self.num_heads}, got {self.embed_dim}"
            )
        if len(self.out_indices) != 4 or not all(
            -self.depth <= i < self.depth for i in self.out_indices
        ):
            raise ContractError(
                f"vision_config.out_indices must name four of {self.depth} blocks, "
                f"got {self.out_indices}"
            )


class PrithviUPerNet(nn.Module):
    """Windows of bands and dates in, a score for each channel and pixel out."""

    config_class = PrithviUPerNetConfig

    def __init__(
        self,
        config: PrithviUPerNetConfig,
        contract: RasterContract,
        layers: Layers,
        prefix: str = "network",
        channels: int | None = None,
    ) -> None:
        super().__init__()
        _check_fit(config, contract)
        bands, frames = len(contract.input.bands), contract.input.frames
        self.out_indices = config.out_indices
        self.encoder = PrithviEncoder(
            bands=bands,
            width=config.embed_dim,
            depth=config.depth,
            heads=config.num_heads,
            patch=config.patch_size,
            trained_size=config.image_size,
            mlp_ratio=config.mlp_ratio,
            coordinates=contract.input.coordinates,
            layers=layers,
            prefix=f"{prefix}.encoder",
        )
        width = config.embed_dim * frames
        self.neck = LearnedPyramid((width, width, width, width))
        self.decoder = UPerNetDecoder(self.neck.widths, config.decoder_channels)
        self.head = nn.Conv2d(config.decoder_channels, channels or contract.output.channels, 1)

    def forward(
        self,
        pixels: torch.Tensor,
        temporal_coords: torch.Tensor | None = None,
        location_coords: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Maps windows of one shape; arguments as `PrithviEncoder.forward` takes them.

        Returns:
            (batch, channels, height, width), float32 scores before any softmax.
        """
        maps = self.encoder(pixels, temporal_coords, location_coords)
        scores = self.head(self.decoder(self.neck([maps[i] for i in self.out_indices])))
        if scores.shape[-2:] != pixels.shape[-2:]:
            scores = F.interpolate(scores, size=pixels.shape[-2:], mode="bilinear")
        return scores


def _check_fit(config: PrithviUPerNetConfig, contract: RasterContract) -> None:
    cell, patch = contract.tile.multiple_of, config.patch_size
    if cell % patch:
        raise ContractError(
            f"raster.tile.multiple_of must be a multiple of patch_size={patch}, got {cell}"
        )
    smallest = contract.tile.minimum_cells * cell
    if smallest < 2 * patch:
        raise ContractError(
            f"raster.tile.minimum must be at least two patches of {patch} pixels, got {smallest}: "
            "the pyramid halves the grid of patches"
        )
    if contract.output.upscale != 1:
        raise ContractError(
            f"prithvi_upernet does not upscale: raster.output.upscale must be 1, "
            f"got {contract.output.upscale}"
        )
