"""Making a request's map while the maps of its windows come back."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from vllm_raster_io.augmentation import averaged
from vllm_raster_io.errors import ServingError, TilingError
from vllm_raster_io.maps import RasterMap
from vllm_raster_io.mosaics import Mosaic
from vllm_raster_io.plans import Plan
from vllm_raster_io.products import MapMaker, class_dtype, class_ids, confidence_maker, map_maker
from vllm_raster_io.resampling import Taps
from vllm_raster_io.strips import Strips

Array = npt.NDArray[Any]


class Assembly:
    """Takes the maps of windows one by one, and keeps what is not finished yet of their scores.

    Beside the map itself that is as much as one row of windows covers.

    Args:
        plan: The request.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        encoding, output = plan.encoding, plan.contract.output
        self._maker = map_maker(encoding.product, plan.map_size, output, encoding.dtype)
        makers = [self._maker]
        self._beside: MapMaker | None = None
        if encoding.confidence:
            self._beside = confidence_maker(plan.map_size, encoding.dtype)
            makers.append(self._beside)
        self._ids = class_dtype(output.channels) if plan.answer == "ids" else None
        strips = Strips(makers, plan.map_size[1], _way_back(plan))
        self._mosaic = Mosaic(
            plan.tiling,
            strips.take,
            1 if self._ids else output.channels,
            output.upscale,
            "none" if self._ids else plan.request.blending,
            self._ids or np.float32,
        )
        self._seen: dict[int, dict[int, Array]] = {}

    def feed(self, index: int, scores: Array) -> None:
        """Takes the map of an item.

        Args:
            index: Its place among the items of the job, each once.
            scores: (channels, height, width), padded at the bottom and the right; or
                (1, height, width) of class ids, of an integer type, where no scores are needed.

        Raises:
            ServingError: It is not that of this scene's window.
            LimitError: It takes too long, or nobody waits for it any more.
        """
        plan = self._plan
        plan.go_on()
        window, way = divmod(index, len(plan.ways))
        with _telling():
            if window not in range(len(plan.windows)):
                raise TilingError(f"one came for item {index} of {len(plan.windows)} windows")
            ways = self._seen.setdefault(window, {})
            ways[way] = self._laid(window, way, self._checked(scores))
            if len(ways) == len(plan.ways):
                del self._seen[window]
                laid = [ways[i] for i in range(len(ways))]
                merged = laid[0] if len(laid) == 1 else averaged(laid)
                self._mosaic.feed(plan.windows[window], merged)

    def finish(self) -> tuple[RasterMap, RasterMap | None]:
        """The map, and that of confidence where it goes beside; to be called once.

        Raises:
            ServingError: Some window is missing.
        """
        with _telling():
            self._mosaic.end()
        invalid = self._plan.invalid()
        beside = None if self._beside is None else self._beside.finish(invalid)
        return self._maker.finish(invalid), beside

    def _checked(self, scores: Array) -> Array:
        """The scores, or ids where these are enough."""
        channels = self._plan.contract.output.channels
        if scores.dtype.kind in "iu":
            if self._ids is None:
                raise TilingError("class ids came, but scores are needed")
            return scores
        if len(scores) != channels:
            raise TilingError(f"one has {len(scores)} channels, but the checkpoint {channels}")
        # A model that was not asked for ids, or cannot, gives scores.
        return scores if self._ids is None else class_ids(scores, self._ids)

    def _laid(self, window: int, way: int, scores: Array) -> Array:
        """What came of a window in one way, laid as the window, without what it is padded with."""
        plan, output = self._plan, self._plan.contract.output
        size = (plan.windows[window].height, plan.windows[window].width)
        height, width = plan.ways[way].size(*map(output.extent, size))
        return plan.ways[way].undo(scores[:, :height, :width])


@contextmanager
def _telling() -> Iterator[None]:
    """Says of maps that do not fit that it is not the client's fault."""
    try:
        yield
    except ValueError as error:
        raise ServingError(f"The network's maps do not fit the scene: {error}") from error


def _way_back(plan: Plan) -> tuple[Taps, Taps] | None:
    """What brings the network's pixels back to the scene's."""
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
