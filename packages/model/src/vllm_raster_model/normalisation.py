"""From stored counts to the network's input, on the model's own device."""

import torch
from torch import nn

from vllm_raster_model.contract import InputContract
from vllm_raster_model.grid import Grid


class Normaliser(nn.Module):
    """Applies the contract's scale, offset, fill, mean and standard deviation.

    It has no weights: all of its numbers come from the checkpoint's configuration.
    """

    def __init__(self, contract: InputContract) -> None:
        super().__init__()
        self.contract = contract
        # No buffers: transformers builds models on the meta device, which would empty them.
        self._numbers: dict[torch.device, tuple[torch.Tensor, torch.Tensor]] = {}

    def forward(self, pixels: torch.Tensor, valid: torch.Tensor | None) -> torch.Tensor:
        """Normalises windows of one shape.

        Args:
            pixels: (batch, bands, frames, height, width), any real type, as the file stores it.
            valid: (batch, height, width), true where a pixel may be used; None for everywhere.
                A pixel that is NaN or infinite is never used.

        Returns:
            float32, of the shape of `pixels`.
        """
        values = pixels.to(torch.float32) * self.contract.scale + self.contract.offset
        usable = None if valid is None else valid.bool()[:, None, None]
        if pixels.is_floating_point():
            finite = torch.isfinite(values).all(dim=(1, 2), keepdim=True)
            usable = finite if usable is None else usable & finite
        if usable is not None:
            values = torch.where(usable, values, self.contract.nodata_fill)
        mean, std = self._mean_and_std(values.device)
        return (values - mean) / std

    def _mean_and_std(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        if device not in self._numbers:
            self._numbers[device] = (
                torch.tensor(self.contract.mean, device=device).view(1, -1, 1, 1, 1),
                torch.tensor(self.contract.std, device=device).view(1, -1, 1, 1, 1),
            )
        return self._numbers[device]


def pad_to_grid(values: torch.Tensor, grid: Grid, cell: int) -> torch.Tensor:
    """Pads the last two dimensions to whole cells, at the bottom and the right, by reflection.

    Unlike torch's own reflection it also pads by more than there is to reflect.
    """
    height, width = values.shape[-2:]
    for dim, length, target in ((-2, height, grid.rows * cell), (-1, width, grid.columns * cell)):
        if length != target:
            values = values.index_select(dim, _reflected(length, target, values.device))
    return values


def _reflected(length: int, target: int, device: torch.device) -> torch.Tensor:
    period = max(2 * (length - 1), 1)
    position = torch.arange(target, device=device) % period
    return torch.minimum(position, period - position) if length > 1 else position * 0
