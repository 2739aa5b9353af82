"""Padding of windows to whole patches, the same on both sides, as TerraTorch does it."""

from fractions import Fraction

import torch
import torch.nn.functional as F

PADDINGS = ("reflect", "replicate", "constant", "circular")
"""Modes, as `torch.nn.functional.pad` calls them."""


class Padding:
    """Pads height and width to a multiple, half of it in front, and crops what came of that.

    Args:
        mode: One of `PADDINGS`; None for no padding.
        multiple: In pixels.
    """

    def __init__(self, mode: str | None, multiple: int) -> None:
        self.mode = mode
        self.multiple = multiple

    def padded(self, length: int) -> int:
        """The length of a side after padding."""
        return length if self.mode is None else -(-length // self.multiple) * self.multiple

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """Pads the last two dimensions of windows (…, height, width)."""
        height, width = pixels.shape[-2:]
        top, bottom = self._sides(height)
        left, right = self._sides(width)
        if not any((top, bottom, left, right)):
            return pixels
        assert self.mode is not None
        if self.mode == "reflect":
            # Unlike torch's own, which cannot reflect more than there is.
            pixels = pixels.index_select(
                -2, reflected(-top, height + bottom, height, pixels.device)
            )
            return pixels.index_select(-1, reflected(-left, width + right, width, pixels.device))
        flat = pixels.flatten(1, -3)  # torch pads two dimensions of a batch of maps
        flat = F.pad(flat, (left, right, top, bottom), mode=self.mode)
        return flat.unflatten(1, pixels.shape[1:-2])

    def cropped(self, maps: torch.Tensor, height: int, width: int, scale: Fraction) -> torch.Tensor:
        """Takes from the map of a padded window the part of a window of height and width.

        Args:
            maps: (batch, channels, padded height * scale, padded width * scale).
            height: Of the window.
            width: Of the window.
            scale: Pixels of the map to a pixel of the window; where there is padding, whole.
        """
        top, left = int(self._sides(height)[0] * scale), int(self._sides(width)[0] * scale)
        return maps[..., top : top + int(height * scale), left : left + int(width * scale)]

    def _sides(self, length: int) -> tuple[int, int]:
        total = self.padded(length) - length
        return total // 2, total - total // 2


def reflected(start: int, stop: int, length: int, device: torch.device) -> torch.Tensor:
    """Where the pixels from `start` to `stop` are found in a side of `length`, by reflection.

    The pixel at the edge is not repeated. A side of one pixel is that pixel everywhere.
    """
    period = max(2 * (length - 1), 1)
    position = torch.arange(start, stop, device=device) % period
    return torch.minimum(position, period - position) if length > 1 else position * 0
