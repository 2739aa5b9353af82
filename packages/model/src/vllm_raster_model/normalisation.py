"""From stored counts to the network's input, on the model's own device."""

import torch
from torch import nn

from vllm_raster_model.contract import InputContract
from vllm_raster_model.grid import Grid
from vllm_raster_model.networks.padding import reflected


class Normaliser(nn.Module):
    """Applies the contract's scale, offset, fill, mean and standard deviation.

    It has no weights: all of its numbers come from the checkpoint's configuration.
    """

    def __init__(self, contract: InputContract) -> None:
        super().__init__()
        self.contract = contract
        # No buffers: transformers builds models on the meta device, which would empty them.
        self._numbers: dict[torch.device, tuple[torch.Tensor, ...]] = {}

    def forward(self, pixels: torch.Tensor, valid: torch.Tensor | None) -> torch.Tensor:
        """Normalises windows of one shape.

        Args:
            pixels: (batch, bands, frames, height, width), any real type, as the file stores it.
            valid: (batch, height, width), true where a pixel may be used; None for everywhere.
                A pixel that is NaN or infinite is never used.

        Returns:
            float32, of the shape of `pixels`.
        """
        factor, shift, fill = self._numbers_on(pixels.device)
        # In place: each copy of a large window takes as long as a small network.
        values = pixels.to(torch.float32, copy=True).mul_(factor).add_(shift)
        usable = None if valid is None else valid.bool()[:, None, None]
        if pixels.is_floating_point():
            finite = torch.isfinite(values).all(dim=(1, 2), keepdim=True)
            usable = finite if usable is None else usable & finite
        return values if usable is None else torch.where(usable, values, fill)

    def _numbers_on(self, device: torch.device) -> tuple[torch.Tensor, ...]:
        """What a count is multiplied by, what is added then, and what takes a bad one's place.

        (count * scale + offset - mean) / std in one step, of numbers worked out in float64.
        """
        if device not in self._numbers:
            facts = self.contract
            mean, std = (_each(one, torch.float64) for one in (facts.mean, facts.std))
            numbers = (
                facts.scale / std,
                (facts.offset - mean) / std,
                (facts.nodata_fill - mean) / std,
            )
            self._numbers[device] = tuple(one.to(device, torch.float32) for one in numbers)
        return self._numbers[device]


def mean_and_std(
    contract: InputContract, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """The contract's numbers, each as (1, bands or 1, frames or 1, 1, 1)."""
    mean, std = (_each(one, torch.float32).to(device) for one in (contract.mean, contract.std))
    return mean, std


def _each(numbers: tuple[float | tuple[float, ...], ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor(numbers, dtype=dtype).view(1, len(numbers), -1, 1, 1)


def pad_to_grid(values: torch.Tensor, grid: Grid, cell: int) -> torch.Tensor:
    """Pads the last two dimensions to whole cells of `cell` a side, as `pad_to` does."""
    return pad_to(values, grid.rows * cell, grid.columns * cell)


def pad_to(values: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Pads the last two dimensions to a size, at the bottom and the right, by reflection.

    Unlike torch's own reflection it also pads by more than there is to reflect.
    """
    for dim, target in ((-2, height), (-1, width)):
        length = values.shape[dim]
        if length != target:
            values = values.index_select(dim, reflected(0, target, length, values.device))
    return values
