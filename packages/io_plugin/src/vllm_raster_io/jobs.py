"""One request from its scene to its map."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from vllm_raster_io.access import Access
from vllm_raster_io.answers import RasterAnswer
from vllm_raster_io.augmentation import Symmetry, averaged, whole_blocks
from vllm_raster_io.blending import Mosaic
from vllm_raster_io.closing import Closing
from vllm_raster_io.contract import OutputContract, RasterContract
from vllm_raster_io.deadlines import Deadline
from vllm_raster_io.errors import ServingError, TilingError
from vllm_raster_io.plans import Plan
from vllm_raster_io.products import ScoreField
from vllm_raster_io.reports import answer_of
from vllm_raster_io.requests import RasterRequest
from vllm_raster_io.resampling import Taps
from vllm_raster_io.tiling import Window
from vllm_raster_io.windows import Loaded, lazy_item

Scores = npt.NDArray[np.float32]


class Job(Closing):
    """Cuts a scene into image items, and puts the maps of its windows together.

    Args:
        request: What is asked.
        contract: What the checkpoint takes and gives.
        access: Which files may be read and written.
        deadline: Until when all must be done; without it, there is no hurry.

    Raises:
        RasterIOError: The request cannot be served; the message says why.
    """

    def __init__(
        self,
        request: RasterRequest,
        contract: RasterContract,
        access: Access | None = None,
        deadline: Deadline | None = None,
    ) -> None:
        self.request = request
        self.plan = Plan(request, contract, access or Access(), deadline)

    @property
    def instruction(self) -> str | None:
        """What is asked in words."""
        return self.plan.instruction

    def items(self) -> list[dict[str, Any]]:
        """An image item a window and way to see it, in the order of the windows.

        No pixels are read yet.
        """
        return [
            lazy_item(*self._seen(window, way), self.plan.view.dtype) | extras
            for window, extras in zip(self.plan.windows, self._extras(), strict=True)
            for way in self.plan.ways
        ]

    def answer(self, maps: Sequence[npt.NDArray[Any]], request_id: str | None) -> RasterAnswer:
        """The map of the scene, from those of its windows.

        Args:
            maps: One (channels, height, width) an item, in the order of the items, padded
                at the bottom and the right.
            request_id: As the server knows the request.

        Raises:
            ServingError: The maps are not those of this scene's windows.
        """
        plan = self.plan
        output, ways = plan.contract.output, len(plan.ways)
        mosaic = Mosaic(plan.tiling, output.channels, output.upscale, plan.request.blending)
        try:
            if len(maps) != len(plan.windows) * ways:
                raise TilingError(f"{len(maps)} came for {len(plan.windows) * ways} items")
            for i, window in enumerate(plan.windows):
                mosaic.feed(window, self._merged(window, maps[i * ways : (i + 1) * ways]))
        except (TilingError, ValueError) as error:
            raise ServingError(f"The network's maps do not fit the scene: {error}") from error
        invalid = _of_map(plan.view.invalid, output)
        return answer_of(plan, ScoreField(mosaic.data(), invalid, self._way_back()), request_id)

    def close(self) -> None:
        """Gives the scene's memory back."""
        self.plan.close()

    def _extras(self) -> list[dict[str, Any]]:
        return [dict(self.plan.coordinates.item(i)) for i in range(len(self.plan.windows))]

    def _seen(self, window: Window, way: Symmetry) -> tuple[Callable[[], Loaded], tuple[int, ...]]:
        """What reads a window in one way, and its shape."""
        view, block = self.plan.view, self.plan.contract.output.downscale
        shape = view.shape(window)
        if way == Symmetry():
            return partial(view.read, window), shape
        sides = way.size(*(-(-side // block) * block for side in shape[-2:]))

        def load() -> Loaded:
            pixels, valid = (whole_blocks(one, block) for one in view.read(window))
            return np.ascontiguousarray(way.apply(pixels)), np.ascontiguousarray(way.apply(valid))

        return load, (*shape[:-2], *sides)

    def _merged(self, window: Window, maps: Sequence[npt.NDArray[Any]]) -> Scores:
        """The mean of what came of a window in all ways, laid as the window."""
        output = self.plan.contract.output
        size = output.extent(window.height), output.extent(window.width)
        laid = []
        for way, scores in zip(self.plan.ways, maps, strict=True):
            height, width = way.size(*size)
            laid.append(way.undo(scores[:, :height, :width]))
        return averaged(laid)

    def _way_back(self) -> tuple[Taps, Taps] | None:
        """What brings the network's pixels back to the scene's."""
        plan = self.plan
        if not plan.view.resamples:
            return None
        output = plan.contract.output
        rows, columns = (
            Taps.between(output.extent(seen), ratio, size, 1.0)
            for seen, ratio, size in zip(
                (plan.view.height, plan.view.width), plan.region.ratios, plan.map_size, strict=True
            )
        )
        return rows, columns


def _of_map(invalid: npt.NDArray[np.bool_], output: OutputContract) -> npt.NDArray[np.bool_]:
    """Which of the map's pixels are invalid: those of a block of which no pixel is valid."""
    for axis in (0, 1):
        if output.downscale > 1:
            blocks = np.arange(0, invalid.shape[axis], output.downscale)
            invalid = np.logical_and.reduceat(invalid, blocks, axis=axis)
        if output.upscale > 1:
            invalid = invalid.repeat(output.upscale, axis=axis)
    return invalid
