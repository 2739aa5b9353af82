"""Prithvi's masked autoencoder, given all of the image: what it makes of it again.

Arithmetic and parameter names are those of TerraTorch's `PrithviMAE` and of the published files,
with nothing masked: so the token that stands for masked patches has no weight here.
"""

from collections.abc import Sequence
from typing import Any

import torch
from einops import rearrange
from torch import nn
from transformers import PreTrainedConfig

from vllm_raster_model.contract import InputContract, RasterContract
from vllm_raster_model.errors import ContractError
from vllm_raster_model.networks.layers import Layers
from vllm_raster_model.networks.positions import CoordinateCode
from vllm_raster_model.networks.prithvi import (
    NORM_EPS,
    Block,
    PrithviEncoder,
    check_width,
    grid_of,
    steps_of,
    with_positions,
)
from vllm_raster_model.normalisation import mean_and_std


class PrithviMAEConfig(PreTrainedConfig):
    """The shape of the network.

    Bands, frames and coordinates are the `raster` block's to say.

    Attributes:
        embed_dim: Width of the encoder's tokens; a multiple of 16 and of `num_heads`.
        depth: Number of the encoder's blocks.
        num_heads: The encoder's attention heads.
        decoder_embed_dim: Width of the decoder's tokens, likewise.
        decoder_depth: Number of the decoder's blocks.
        decoder_num_heads: The decoder's attention heads.
        patch_size: Side of a patch in pixels.
        tubelet_size: Dates in a patch.
        image_size: Side, in pixels, of the windows that the position codes were made for, or their
            height and width; the codes are stretched to windows of other sizes.
        mlp_ratio: Width of the perceptrons in units of a token's.
    """

    model_type = "prithvi_mae"

    def __init__(
        self,
        embed_dim: int = 1024,
        depth: int = 24,
        num_heads: int = 16,
        decoder_embed_dim: int = 512,
        decoder_depth: int = 8,
        decoder_num_heads: int = 16,
        patch_size: int = 16,
        tubelet_size: int = 1,
        image_size: int | Sequence[int] = 224,
        mlp_ratio: float = 4.0,
        **kwargs: Any,
    ) -> None:
        self.embed_dim = embed_dim
        self.depth = depth
        self.num_heads = num_heads
        self.decoder_embed_dim = decoder_embed_dim
        self.decoder_depth = decoder_depth
        self.decoder_num_heads = decoder_num_heads
        self.patch_size = patch_size
        self.tubelet_size = tubelet_size
        self.image_size = image_size if isinstance(image_size, int) else list(image_size)
        self.mlp_ratio = mlp_ratio
        super().__init__(**kwargs)
        for prefix in ("", "decoder_"):
            width, heads = getattr(self, f"{prefix}embed_dim"), getattr(self, f"{prefix}num_heads")
            check_width(f"{prefix}embed_dim", width, f"{prefix}num_heads", heads)


class PrithviMAE(nn.Module):
    """Windows of bands and dates in, the same windows as the network remembers them out.

    Channels are the bands of the first date, then those of the next one, in the unit of the file:
    normalising is undone.
    """

    config_class = PrithviMAEConfig
    thread_safe = True
    short_parts = ("encoder.blocks", "decoder.decoder_blocks")

    def __init__(
        self,
        config: PrithviMAEConfig,
        contract: RasterContract,
        layers: Layers,
        prefix: str = "network",
        channels: int | None = None,
    ) -> None:
        super().__init__()
        _check_fit(config, contract, channels)
        bands = len(contract.input.bands)
        self.unit = contract.input
        self.patch = (config.tubelet_size, config.patch_size, config.patch_size)
        self.encoder = PrithviEncoder(
            bands=bands,
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
        self.decoder = PrithviMAEDecoder(config, contract.input, layers, f"{prefix}.decoder")

    def forward(
        self,
        pixels: torch.Tensor,
        temporal_coords: torch.Tensor | None = None,
        location_coords: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Maps windows of one shape; arguments as `PrithviEncoder.forward` takes them.

        Returns:
            (batch, frames * bands, height, width) in the unit of the file.
        """
        tubelet, side, _ = self.patch
        grid = (pixels.shape[2] // tubelet, pixels.shape[-2] // side, pixels.shape[-1] // side)
        last = len(self.encoder.blocks) - 1
        *_, tokens = self.encoder(pixels, temporal_coords, location_coords, wanted={last})
        patches = self.decoder(tokens, grid, temporal_coords, location_coords)
        steps, rows, columns = grid
        images = rearrange(
            patches,
            "b (t h w) (s p q c) -> b c (t s) (h p) (w q)",
            t=steps,
            h=rows,
            w=columns,
            s=tubelet,
            p=side,
            q=side,
        )
        mean, std = mean_and_std(self.unit, images.device)
        images = (images.float() * std + mean - self.unit.offset) / self.unit.scale
        return rearrange(images, "b c t h w -> b (t c) h w")


class PrithviMAEDecoder(nn.Module):
    """The encoder's tokens in, the numbers of each patch out."""

    def __init__(
        self, config: PrithviMAEConfig, unit: InputContract, layers: Layers, prefix: str
    ) -> None:
        super().__init__()
        width = config.decoder_embed_dim
        self.trained_grid = grid_of(config.image_size, config.patch_size)
        self.decoder_embed = nn.Linear(config.embed_dim, width)
        times, places = ("time" in unit.coordinates), ("location" in unit.coordinates)
        self.temporal_embed_dec = CoordinateCode(width) if times else None
        self.location_embed_dec = CoordinateCode(width) if places else None
        heads, hidden = config.decoder_num_heads, int(width * config.mlp_ratio)
        self.decoder_blocks = nn.ModuleList(
            Block(width, heads, hidden, layers=layers, prefix=f"{prefix}.decoder_blocks.{i}")
            for i in range(config.decoder_depth)
        )
        self.decoder_norm = nn.LayerNorm(width, eps=NORM_EPS)
        numbers = config.tubelet_size * config.patch_size**2 * len(unit.bands)
        self.decoder_pred = nn.Linear(width, numbers)

    def forward(
        self,
        tokens: torch.Tensor,
        grid: tuple[int, int, int],
        temporal_coords: torch.Tensor | None,
        location_coords: torch.Tensor | None,
    ) -> torch.Tensor:
        """Decodes (batch, 1 + patches, width) to (batch, patches, numbers of a patch)."""
        tokens = self.decoder_embed(tokens)
        patches = with_positions(
            tokens[:, 1:],
            grid,
            self.trained_grid,
            (self.temporal_embed_dec, temporal_coords),
            (self.location_embed_dec, location_coords),
        )
        tokens = torch.cat((tokens[:, :1], patches), dim=1)
        for block in self.decoder_blocks:
            tokens = block(tokens)
        numbers: torch.Tensor = self.decoder_pred(self.decoder_norm(tokens))
        return numbers[:, 1:]


def _check_fit(config: PrithviMAEConfig, contract: RasterContract, channels: int | None) -> None:
    steps_of(contract.input.frames, config.tubelet_size)
    output, made = contract.output, len(contract.input.bands) * contract.input.frames
    if output.kind == "classes" or (channels or output.channels) != made:
        raise ContractError(
            f"The autoencoder gives {made} bands, all of each date: raster.output must have kind "
            f"image or values and so many bands, got {output.kind!r} and "
            f"{channels or output.channels} channels"
        )
    if (output.upscale, output.downscale) != (1, 1):
        raise ContractError(
            "The autoencoder gives a pixel for a pixel: raster.output.upscale and downscale must "
            f"be 1, got {output.upscale} and {output.downscale}"
        )
    if contract.tile.multiple_of % config.patch_size:
        raise ContractError(
            f"raster.tile.multiple_of must be a multiple of patch_size={config.patch_size}, "
            f"got {contract.tile.multiple_of}"
        )
