"""The Prithvi encoder: a ViT over patches of several bands and dates.

Arithmetic and parameter names are those of TerraTorch's `PrithviViT`
(https://github.com/terrastackai/terratorch), whose checkpoints this encoder reads.
"""

import torch
import torch.nn.functional as F
from torch import nn

from vllm_raster_model.networks.layers import Layers
from vllm_raster_model.networks.positions import CoordinateCode, resized_grid_code

_NORM_EPS = 1e-5  # PyTorch's default, which the recorded outputs confirm; timm has 1e-6


class PrithviEncoder(nn.Module):
    """Patches, positions, dates and places in; the tokens of chosen blocks out."""

    def __init__(
        self,
        *,
        bands: int,
        width: int,
        depth: int,
        heads: int,
        patch: int,
        trained_size: int,
        mlp_ratio: float,
        coordinates: tuple[str, ...],
        layers: Layers,
        prefix: str,
    ) -> None:
        super().__init__()
        self.width = width
        self.trained_grid = (trained_size // patch, trained_size // patch)
        self.patch_embed = PatchEmbedding(bands, width, patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.temporal_embed_enc = CoordinateCode(width) if "time" in coordinates else None
        self.location_embed_enc = CoordinateCode(width) if "location" in coordinates else None
        hidden = int(width * mlp_ratio)
        self.blocks = nn.ModuleList(
            Block(width, heads, hidden, layers=layers, prefix=f"{prefix}.blocks.{i}")
            for i in range(depth)
        )
        self.norm = nn.LayerNorm(width, eps=_NORM_EPS)

    def forward(
        self,
        pixels: torch.Tensor,
        temporal_coords: torch.Tensor | None = None,
        location_coords: torch.Tensor | None = None,
    ) -> list[torch.Tensor]:
        """Encodes windows of one shape.

        Args:
            pixels: (batch, bands, frames, height, width), normalised, whole patches.
            temporal_coords: (batch, frames, 2), year and day of year; NaN where unknown.
            location_coords: (batch, 2), latitude and longitude in degrees; NaN where unknown.

        Returns:
            The map of each block, (batch, frames * width, rows, columns); the last one normed.
        """
        patches = self.patch_embed(pixels)
        frames, rows, columns = patches.shape[2:]
        tokens = patches.flatten(2).transpose(1, 2)
        code = resized_grid_code(self.width, frames, self.trained_grid, (rows, columns))
        tokens = tokens + code.to(tokens)
        if self.temporal_embed_enc is not None and temporal_coords is not None:
            dates = self.temporal_embed_enc(temporal_coords)
            tokens = tokens + dates.repeat_interleave(rows * columns, dim=1)
        if self.location_embed_enc is not None and location_coords is not None:
            tokens = tokens + self.location_embed_enc(location_coords)[:, None]
        # The code of the class token's own position is zero.
        tokens = torch.cat((self.cls_token.expand(len(tokens), -1, -1), tokens), dim=1)
        maps = []
        for block in self.blocks:
            tokens = block(tokens)
            maps.append(tokens)
        maps[-1] = self.norm(tokens)
        return [_as_map(one, frames, rows, columns) for one in maps]


class PatchEmbedding(nn.Module):
    """One linear code for each patch of one date."""

    def __init__(self, bands: int, width: int, patch: int) -> None:
        super().__init__()
        size = (1, patch, patch)
        self.proj = nn.Conv3d(bands, width, kernel_size=size, stride=size)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Maps (batch, bands, frames, height, width) to (batch, width, frames, rows, columns)."""
        return self.proj(pixels)


class Block(nn.Module):
    """Attention and a two-layer perceptron, each on the normed tokens and added to them."""

    def __init__(self, width: int, heads: int, hidden: int, *, layers: Layers, prefix: str) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=_NORM_EPS)
        self.attn = Attention(width, heads, layers=layers, prefix=f"{prefix}.attn")
        self.norm2 = nn.LayerNorm(width, eps=_NORM_EPS)
        self.mlp = Perceptron(width, hidden, layers=layers, prefix=f"{prefix}.mlp")

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Maps (batch, tokens, width) to the same shape."""
        tokens = tokens + self.attn(self.norm1(tokens))
        return tokens + self.mlp(self.norm2(tokens))


class Attention(nn.Module):
    """Multi-head attention among all tokens of a window."""

    def __init__(self, width: int, heads: int, *, layers: Layers, prefix: str) -> None:
        super().__init__()
        self.qkv = layers.qkv(width, heads, prefix=f"{prefix}.qkv")
        self.attend = layers.attention(heads, width // heads, prefix=f"{prefix}.attend")
        self.proj = layers.row(width, width, prefix=f"{prefix}.proj")

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Maps (batch, tokens, width) to the same shape."""
        query, key, value = self.qkv(tokens).chunk(3, dim=-1)
        return self.proj(self.attend(query, key, value))


class Perceptron(nn.Module):
    """Two linear layers with a GELU between them."""

    def __init__(self, width: int, hidden: int, *, layers: Layers, prefix: str) -> None:
        super().__init__()
        self.fc1 = layers.column(width, hidden, prefix=f"{prefix}.fc1")
        self.fc2 = layers.row(hidden, width, prefix=f"{prefix}.fc2")

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Maps (batch, tokens, width) to the same shape."""
        return self.fc2(F.gelu(self.fc1(tokens)))


def _as_map(tokens: torch.Tensor, frames: int, rows: int, columns: int) -> torch.Tensor:
    patches = tokens[:, 1:].unflatten(1, (frames, rows, columns))
    return patches.permute(0, 1, 4, 2, 3).flatten(1, 2)
