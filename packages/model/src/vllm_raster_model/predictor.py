"""From raw windows to maps: what both served classes and the PyTorch model share."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from vllm_raster_model.config import RasterConfig
from vllm_raster_model.networks import Layers, build_network
from vllm_raster_model.normalisation import Normaliser, pad_to_grid


class WindowPredictor(nn.Module):
    """Normalises, pads and maps windows of any sizes, equal ones together.

    Its parameters are the network's, under `network.`.
    """

    def __init__(self, config: RasterConfig, layers: Layers, prefix: str = "") -> None:
        super().__init__()
        self.config = config
        self.normaliser = Normaliser(config.contract.input)
        name = f"{prefix}.network" if prefix else "network"
        self.network = build_network(
            config.vision_config, config.contract, layers, name, config.image_channels
        )

    def forward(
        self,
        pixel_values: Sequence[torch.Tensor],
        valid: Sequence[torch.Tensor],
        temporal_coords: Sequence[torch.Tensor],
        location_coords: Sequence[torch.Tensor],
    ) -> list[torch.Tensor]:
        """Maps windows, each with its own mask and coordinates.

        Args:
            pixel_values: One (bands, frames, height, width) a window, as the file stores it.
            valid: One (height, width) a window, or an empty tensor where all pixels are valid.
            temporal_coords: One (frames, 2) a window; NaN where unknown.
            location_coords: One (2,) a window; NaN where unknown.

        Returns:
            One float32 (channels, padded height * upscale, padded width * upscale) a window, in
            the order of the windows.
        """
        maps: list[torch.Tensor | None] = [None] * len(pixel_values)
        for indices in self._alike(pixel_values):
            inputs = [self._prepare(pixel_values[i], valid[i]) for i in indices]
            scores = self.network(
                torch.cat(inputs),
                torch.stack([temporal_coords[i] for i in indices]).to(self._device),
                torch.stack([location_coords[i] for i in indices]).to(self._device),
            )
            for i, one in zip(indices, scores.float(), strict=True):
                maps[i] = one
        return [one for one in maps if one is not None]

    @property
    def _device(self) -> torch.device:
        return next(self.network.parameters()).device

    def _alike(self, windows: Sequence[torch.Tensor]) -> list[list[int]]:
        """Groups the windows that have the same shape once they are padded."""
        groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for i, window in enumerate(windows):
            groups[(*window.shape[:2], self.config.grid(*window.shape[-2:]))].append(i)
        return list(groups.values())

    def _prepare(self, pixels: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        grid = self.config.grid(*pixels.shape[-2:])
        mask = valid.to(self._device)[None] if valid.numel() else None
        values = self.normaliser(pixels.to(self._device)[None], mask)
        return pad_to_grid(values, grid, self.config.contract.tile.multiple_of)


def predicted_cells(predictor: WindowPredictor, fields: Mapping[str, Any]) -> list[torch.Tensor]:
    """Maps windows as vLLM hands them to a model, and cuts the maps into cells.

    Args:
        predictor: Of the model.
        fields: Each a tensor with a first dimension for the windows, or a list of one tensor a
            window; `pixel_values` a list of lists of one tensor.

    Returns:
        One (cells, numbers a cell) a window, in the order of the windows.
    """
    windows: list[torch.Tensor] = [window for (window,) in fields["pixel_values"]]
    others = (list(fields[name]) for name in ("valid", "temporal_coords", "location_coords"))
    maps = predictor(windows, *others)
    return [
        predictor.config.grid(*window.shape[-2:]).cells_of(one)
        for window, one in zip(windows, maps, strict=True)
    ]
