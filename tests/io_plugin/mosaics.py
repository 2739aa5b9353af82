"""A mosaic that keeps all rows, to look at the map as a whole."""

from typing import Any

import numpy as np
import numpy.typing as npt

from vllm_raster_io.mosaics import Mosaic
from vllm_raster_io.tiling import Tiling


class WholeMosaic(Mosaic):
    """Takes what `Mosaic` does, but for `take`."""

    def __init__(self, tiling: Tiling, channels: int, *rest: Any, **named: Any) -> None:
        self._parts: list[npt.NDArray[Any]] = []
        super().__init__(tiling, self._keep, channels, *rest, **named)

    def data(self) -> npt.NDArray[Any]:
        """The map."""
        self.end()
        return np.concatenate(self._parts, axis=1)

    def _keep(self, first: int, rows: npt.NDArray[Any]) -> None:
        assert first == sum(one.shape[1] for one in self._parts)
        assert rows.shape[1] > 0
        self._parts.append(rows.copy())
