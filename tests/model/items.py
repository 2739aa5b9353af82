"""Image items for the checkpoints that tests make."""

from typing import Any

import numpy as np
import numpy.typing as npt

from vllm_raster_model.config import RasterConfig

from .checkpoints import BANDS

Array = npt.NDArray[Any]

EVERYWHERE = {"temporal_coords": [[2021, 167]], "location_coords": [47.5, 11.3]}


def pixels(
    height: int, width: int, *, bands: int = BANDS, dtype: str = "uint16", seed: int = 0
) -> Array:
    """Random counts that fit into any type: (bands, height, width)."""
    end = min(4000, np.iinfo(dtype).max) if np.dtype(dtype).kind in "iu" else 4000
    return np.random.default_rng(seed).integers(0, end, (bands, height, width)).astype(dtype)


def window(height: int, width: int, *, seed: int = 0, **fields: Any) -> dict[str, Any]:
    """An image item of random counts, with other fields as given."""
    return {"pixel_values": pixels(height, width, seed=seed), **fields}


def mask(height: int, width: int) -> Array:
    """A mask that is false somewhere and true elsewhere, if there is room for both."""
    valid = np.ones((height, width), bool)
    valid[height // 2 :, : width // 2] = False
    return valid


def enlarged(item: dict[str, Any], config: RasterConfig) -> Array:
    """What the network `Enlarge` makes of an item, worked out by numpy."""
    contract, grid = config.contract, config.grid(*item["pixel_values"].shape[-2:])
    values = item["pixel_values"].astype(float) * contract.input.scale + contract.input.offset
    valid = np.isfinite(values).all(axis=0) & item.get("valid", True)
    values = np.where(valid, values, contract.input.nodata_fill)
    mean, std = (np.reshape(one, (-1, 1, 1)) for one in (contract.input.mean, contract.input.std))
    cell = contract.tile.multiple_of
    rows, columns = grid.rows * cell - valid.shape[0], grid.columns * cell - valid.shape[1]
    padded = np.pad((values - mean) / std, ((0, 0), (0, rows), (0, columns)), mode="reflect")
    block = np.ones((1, contract.output.upscale, contract.output.upscale))
    return np.kron(padded[: contract.output.channels], block)


class Lazy:
    """Stands for an array, and makes it only when numpy asks."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim
        self.times_read = 0

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        self.times_read += 1
        return self._array.astype(dtype or self.dtype)
