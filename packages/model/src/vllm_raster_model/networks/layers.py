"""The layers that networks are built from, so that one definition serves everywhere.

A network asks a `Layers` for its linear and attention layers. `TorchLayers` gives plain
PyTorch, for training and for use without vLLM; the engine's seam gives vLLM's parallel
layers, with the same parameter names and the same call.
"""

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import nn


class Layers(Protocol):
    """A maker of layers. Linear layers map (…, inputs) to (…, outputs)."""

    parallel_size: int
    """Over how many devices heads and hidden units are split."""

    def column(self, inputs: int, outputs: int, *, prefix: str) -> nn.Module:
        """A linear layer whose outputs are split over the devices."""

    def row(self, inputs: int, outputs: int, *, prefix: str) -> nn.Module:
        """A linear layer whose inputs are split over the devices; its outputs are whole."""

    def qkv(self, width: int, heads: int, *, prefix: str) -> nn.Module:
        """A linear layer for queries, keys and values, split by heads; outputs 3 * width."""

    def attention(self, heads: int, head_width: int, *, prefix: str) -> nn.Module:
        """Full attention among (batch, tokens, heads * head_width) queries, keys, values."""


class TorchLayers:
    """Plain PyTorch, on one device."""

    parallel_size = 1

    def column(self, inputs: int, outputs: int, *, prefix: str) -> nn.Module:
        """See `Layers.column`."""
        return nn.Linear(inputs, outputs)

    def row(self, inputs: int, outputs: int, *, prefix: str) -> nn.Module:
        """See `Layers.row`."""
        return nn.Linear(inputs, outputs)

    def qkv(self, width: int, heads: int, *, prefix: str) -> nn.Module:
        """See `Layers.qkv`."""
        return nn.Linear(width, 3 * width)

    def attention(self, heads: int, head_width: int, *, prefix: str) -> nn.Module:
        """See `Layers.attention`."""
        return TorchAttention(heads)


class TorchAttention(nn.Module):
    """Full scaled dot-product attention over heads."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Attends; all of shape (batch, tokens, heads * head width)."""
        split = (x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in (query, key, value))
        return F.scaled_dot_product_attention(*split).transpose(1, 2).flatten(2)
