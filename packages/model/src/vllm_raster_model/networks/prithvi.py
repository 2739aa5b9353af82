"""The Prithvi encoder: a ViT over patches of several bands and dates.

Arithmetic and parameter names are those of TerraTorch's `PrithviViT`
(https://github.com/terrastackai/terratorch), whose checkpoints this encoder reads.
"""

from collections.abc import Collection, Sequence

import torch
import torch.nn.functional as F
from torch import nn

from vllm_raster_model.errors import ContractError
from vllm_raster_model.networks.layers import Layers
from vllm_raster_model.networks.positions import CoordinateCode, resized_grid_code

NORM_EPS = 1e-5  # PyTorch's default, which the recorded outputs confirm; timm has 1e-6


class PrithviEncoder(nn.Module):
    """Patches, positions, dates and places in; the tokens of all blocks out."""

    def __init__(
        self,
        *,
        bands: int,
        width: int,
        depth: int,
        heads: int,
        patch: int,
        tubelet: int,
        trained_size: int | Sequence[int],
        mlp_ratio: float,
        coordinates: tuple[str, ...],
        layers: Layers,
        prefix: str,
    ) -> None:
        super().__init__()
        self.width = width
        self.trained_grid = grid_of(trained_size, patch)
        self.patch_embed = PatchEmbedding(bands, width, (tubelet, patch, patch))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.temporal_embed_enc = CoordinateCode(width) if "time" in coordinates else None
        self.location_embed_enc = CoordinateCode(width) if "location" in coordinates else None
        hidden = int(width * mlp_ratio)
        self.blocks = nn.ModuleList(
            Block(width, heads, hidden, layers=layers, prefix=f"{prefix}.blocks.{i}")
            for i in range(depth)
        )
        self.norm = nn.LayerNorm(width, eps=NORM_EPS)

    def forward(
        self,
        pixels: torch.Tensor,
        temporal_coords: torch.Tensor | None = None,
        location_coords: torch.Tensor | None = None,
        wanted: Collection[int] | None = None,
    ) -> list[torch.Tensor]:
        """Encodes windows of one shape.

        Args:
            pixels: (batch, bands, frames, height, width), normalised; what is left over beside
                whole patches is not looked at.
            temporal_coords: (batch, frames, 2), year and day of year; NaN where unknown.
            location_coords: (batch, 2), latitude and longitude in degrees; NaN where unknown.
            wanted: Blocks whose tokens are given; None for all.

        Returns:
            The tokens behind each block, (batch, 1 + steps * rows * columns, width) with the class
            token first and a step a tubelet of frames; the last ones normed. Those that are not
            wanted are empty.
        """
        patches = self.patch_embed(pixels)
        grid = patches.shape[2:]
        tokens = with_positions(
            patches.flatten(2).transpose(1, 2),
            (grid[0], grid[1], grid[2]),
            self.trained_grid,
            (self.temporal_embed_enc, temporal_coords),
            (self.location_embed_enc, location_coords),
        )
        # The code of the class token's own position is zero.
        tokens = torch.cat((self.cls_token.expand(len(tokens), -1, -1), tokens), dim=1)
        given = range(len(self.blocks)) if wanted is None else wanted
        stages = [tokens.new_empty(0)] * len(self.blocks)
        for i, block in enumerate(self.blocks[: max(given) + 1]):
            tokens = block(tokens)
            if i in given:
                stages[i] = tokens
        if len(self.blocks) - 1 in given:
            stages[-1] = self.norm(tokens)
        return stages


Told = tuple[CoordinateCode | None, torch.Tensor | None]
"""How coordinates are coded, and the coordinates; None where there are none."""


def with_positions(
    tokens: torch.Tensor,
    grid: tuple[int, int, int],
    trained_grid: tuple[int, int],
    dates: Told,
    places: Told,
) -> torch.Tensor:
    """Adds to tokens the codes of where and when they are.

    Args:
        tokens: (batch, steps * rows * columns, width), without a class token.
        grid: Steps, rows and columns.
        trained_grid: Rows and columns that the position code was made for.
        dates: Code and coordinates (batch, steps, 2).
        places: Code and coordinates (batch, 2).
    """
    steps, rows, columns = grid
    code = resized_grid_code(tokens.shape[-1], steps, trained_grid, (rows, columns))
    tokens = tokens + code.to(tokens)
    coder, told = dates
    if coder is not None and told is not None:
        tokens = tokens + coder(told).repeat_interleave(rows * columns, dim=1)
    coder, told = places
    if coder is not None and told is not None:
        tokens = tokens + coder(told)[:, None]
    return tokens


class PatchEmbedding(nn.Module):
    """One linear code for each patch of one date, or of a few."""

    def __init__(self, bands: int, width: int, size: tuple[int, int, int]) -> None:
        super().__init__()
        self.proj = nn.Conv3d(bands, width, kernel_size=size, stride=size)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Maps (batch, bands, frames, height, width) to (batch, width, steps, rows, columns)."""
        return self.proj(pixels)


class Block(nn.Module):
    """Attention and a two-layer perceptron, each on the normed tokens and added to them."""

    def __init__(self, width: int, heads: int, hidden: int, *, layers: Layers, prefix: str) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=NORM_EPS)
        self.attn = Attention(width, heads, layers=layers, prefix=f"{prefix}.attn")
        self.norm2 = nn.LayerNorm(width, eps=NORM_EPS)
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


def grid_of(size: int | Sequence[int], patch: int) -> tuple[int, int]:
    """Rows and columns of patches in a window, given by its side or its height and width."""
    height, width = (size, size) if isinstance(size, int) else size
    return height // patch, width // patch


def steps_of(frames: int, tubelet: int) -> int:
    """Number of tubelets in the frames of a window.

    Raises:
        ContractError: It is not whole.
    """
    if frames % tubelet:
        raise ContractError(
            f"raster.input.frames must be a multiple of tubelet_size={tubelet}, got {frames}"
        )
    return frames // tubelet


def check_width(name: str, width: int, heads_name: str, heads: int) -> None:
    """Checks the width of tokens.

    Raises:
        ContractError: The position code or the attention heads cannot share it evenly.
    """
    if width % 16 or width % heads:
        raise ContractError(
            f"vision_config.{name} must be a multiple of 16 and of {heads_name}={heads}, "
            f"got {width}"
        )
