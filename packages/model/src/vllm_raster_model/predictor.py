"""From raw windows to maps: what both served classes and the PyTorch model share."""

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import torch
from torch import nn

from vllm_raster_model.config import RasterConfig
from vllm_raster_model.crew import Crew, InTurn
from vllm_raster_model.grid import Grid
from vllm_raster_model.layout import keep_channels_last
from vllm_raster_model.networks import Layers, build_network
from vllm_raster_model.normalisation import Normaliser, pad_to, pad_to_grid
from vllm_raster_model.precision import settle_precision

logger = logging.getLogger("vllm.raster.model")

Window = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""Pixels, mask, dates and place, as `WindowPredictor.forward` takes them."""

PIXELS_AT_ONCE = 256 * 256
"""That a CPU computes in one call, of all dates: four windows of 128 × 128, one from 256 × 256 on.

By benchmarks/batching.py: fewer leave the cost of each call in sight, up to 18 %; twice as many
gain up to 8 %, but of a step of few windows some threads would have none. On other devices there is
no such limit beside the engine's budget, which bounds the memory that a batch takes.
"""


class _Begun(NamedTuple):
    """A window that is being computed, and its place among those that are computed with it.

    It is known by where its pixels are in memory, which nothing else is as long as they are kept.
    """

    window: Window
    made: Future[list[torch.Tensor]]
    place: int

    def cells(self) -> torch.Tensor:
        return self.made.result()[self.place]


class WindowPredictor(nn.Module):
    """Normalises, pads and maps windows of any sizes, equal ones together.

    Its parameters are the network's, under `network.`.

    Attributes:
        crew: Who computes.
        failed: Whether the network ever failed on a window whose cells were asked for.
    """

    def __init__(self, config: RasterConfig, layers: Layers, prefix: str = "") -> None:
        super().__init__()
        self.config = config
        self.normaliser = Normaliser(config.contract.input)
        name = f"{prefix}.network" if prefix else "network"
        self.network = build_network(
            config.vision_config, config.contract, layers, name, config.image_channels
        )
        self.takes_any_size = getattr(self.network, "takes_any_size", False)
        self.crew: Crew = InTurn()
        self.failed = False
        self._worked = False
        self._begun: dict[int, _Begun] = {}
        self._begun_before: dict[int, _Begun] = {}
        self._devices = layers.parallel_size

    def settle(self) -> None:
        """Chooses how the network computes, once its weights are loaded, and says so.

        Raises:
            ContractError: A type is asked for that is none, or that it cannot compute in.
        """
        if self._device.type == "cpu" and keep_channels_last(self.network):
            logger.info("Convolutions with channels last.")
        logger.info("%s", settle_precision(self.network, self.config.contract, self._devices))

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
            One float32 (channels, rows of cells * block, columns of cells * block) a window, in
            the order of the windows, where a block is the output of a cell.
        """
        windows = list(zip(pixel_values, valid, temporal_coords, location_coords, strict=True))
        return self._each(windows, lambda group: [one for _, one in self._maps(group)])

    def cells(self, windows: Sequence[Window]) -> list[torch.Tensor]:
        """Maps windows, and cuts the maps into cells.

        Args:
            windows: Of each its pixels, mask, dates and place, as above.

        Returns:
            One (cells, numbers a cell) a window, in the order of the windows; NaN alone where the
            network failed, as it may on one window and not on those beside it.
        """
        begun = [self._taken(one) for one in windows]
        left = [one for one, future in zip(windows, begun, strict=True) if future is None]
        computed = iter(self._each(left, self._cells))
        return [next(computed) if one is None else one.cells() for one in begun]

    @torch.inference_mode()
    def begin(self, windows: Sequence[Window]) -> None:
        """Begins to compute windows that `cells` will be asked for.

        They are kept until it is, or until this has been called twice more.
        """
        self._begun_before, self._begun = self._begun, {}
        groups = [[windows[i] for i in one] for one in self._alike([one[0] for one in windows])]
        begun = self.crew.begin(self._cells, groups)
        for group, future in zip(groups, begun, strict=False):
            for i, window in enumerate(group):
                self._begun[window[0].data_ptr()] = _Begun(window, future, i)

    def _taken(self, window: Window) -> _Begun | None:
        place = window[0].data_ptr()
        return self._begun.pop(place, None) or self._begun_before.pop(place, None)

    def _each(
        self,
        windows: Sequence[Window],
        work: Callable[[Sequence[Window]], list[torch.Tensor]],
    ) -> list[torch.Tensor]:
        """What `work` makes of each window, given some that are alike."""
        groups = self._alike([pixels for pixels, *_ in windows])
        made = self.crew.each(lambda group: work([windows[i] for i in group]), groups)
        results = {
            i: one
            for indices, group in zip(groups, made, strict=True)
            for i, one in zip(indices, group, strict=True)
        }
        return [results[i] for i in range(len(windows))]

    def _cells(self, windows: Sequence[Window]) -> list[torch.Tensor]:
        """The cells of windows that are alike.

        An error would end the engine, and with it the requests of others. Of several devices each
        must take the same way, so that there it does; and where vLLM tries the network at its
        start, which is not on a CPU, one that fails then is told of at once.
        """
        try:
            made = [grid.cells_of(one) for grid, one in self._maps(windows)]
            self._worked = True
            return made
        except Exception:
            if self._devices > 1 or not (self._worked or self._device.type == "cpu"):
                raise
            if len(windows) > 1:
                return [cells for one in windows for cells in self._cells([one])]
            self.failed = True
            pixels = windows[0][0]
            logger.exception("The network failed on a window of shape %s.", tuple(pixels.shape))
            grid, block = self.config.grid(*pixels.shape[-2:]), self.config.contract.cell_block
            numbers = self.config.image_channels * block**2
            return [torch.full((grid.cells, numbers), torch.nan, device=self._device)]

    def _maps(self, windows: Sequence[Window]) -> list[tuple[Grid, torch.Tensor]]:
        """Maps windows that are alike in one call, each with its grid."""
        pixels, valid, *coordinates = zip(*windows, strict=True)
        inputs = [self._prepare(*one) for one in zip(pixels, valid, strict=True)]
        dates, places = (torch.stack(one).to(self._device) for one in coordinates)
        scores = self.network(torch.cat(inputs) if len(inputs) > 1 else inputs[0], dates, places)
        grids = [self.config.grid(*one.shape[-2:]) for one in pixels]
        block = self.config.contract.cell_block
        return [
            (grid, pad_to_grid(one, grid, block))
            for grid, one in zip(grids, scores.float(), strict=True)
        ]

    @property
    def _device(self) -> torch.device:
        return next(self.network.parameters()).device

    def _alike(self, windows: Sequence[torch.Tensor]) -> list[list[int]]:
        """Groups the windows that have the same shape as the network is given them.

        A group is as large as the device computes well in one call.
        """
        groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for i, window in enumerate(windows):
            groups[(*window.shape[:2], *self._size(*window.shape[-2:]))].append(i)
        on_cpu = self._device.type == "cpu"
        return [
            indices[first : first + most]
            for (_, frames, height, width), indices in groups.items()
            for most in [windows_at_once(frames * height * width) if on_cpu else len(indices)]
            for first in range(0, len(indices), most)
        ]

    def _prepare(self, pixels: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        mask = valid.to(self._device)[None] if valid.numel() else None
        values = self.normaliser(pixels.to(self._device)[None], mask)
        return pad_to(values, *self._size(*pixels.shape[-2:]))

    def _size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of a window as the network is given it.

        It is padded to whole cells here, unless the network has its own way of padding.
        """
        tile = self.config.contract.tile
        if self.takes_any_size:
            return max(height, tile.minimum or 1), max(width, tile.minimum or 1)
        grid = self.config.grid(height, width)
        return grid.rows * tile.multiple_of, grid.columns * tile.multiple_of


def windows_at_once(pixels: int) -> int:
    """How many windows of so many pixels, of all dates, a CPU computes in one call."""
    return max(1, PIXELS_AT_ONCE // pixels)


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
    return predictor.cells(list(zip(windows, *others, strict=True)))
