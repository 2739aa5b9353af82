"""The processor of a checkpoint, in the form that transformers saves and loads.

It checks image items and turns them into tensors; pixels keep the type they have in the file,
for the model normalises them on its own device. In the text, each `<image>` becomes its grid
of cells.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from transformers import (
    AutoConfig,
    AutoProcessor,
    BatchFeature,
    PreTrainedTokenizerBase,
    ProcessorMixin,
)

from vllm_raster_model.config import InstructedRasterConfig, RasterConfig
from vllm_raster_model.contract import RasterContract
from vllm_raster_model.errors import ImageItemError
from vllm_raster_model.grid import Grid
from vllm_raster_model.tokenizer import IMAGE_TOKEN, ROW_TOKEN, minimal_tokenizer

ImageItem = Mapping[str, Any]
"""`pixel_values` (bands[, frames], height, width); optionally `valid` (height, width),
`temporal_coords` (frames, 2) as year and day of year, `location_coords` (2,) as latitude and
longitude in degrees. Values may be arrays, or objects that become arrays when numpy asks."""

_FIELDS = ("pixel_values", "valid", "temporal_coords", "location_coords")


class RasterProcessor(ProcessorMixin):
    """Prepares text and image items for the models of this package.

    Args:
        tokenizer: Must know `image_token` and `row_token`, each as one token.
        bands: Number of bands of an image item.
        frames: Number of dates of an image item.
        cell: Side of a grid cell in pixels.
        minimum_cells: Fewest rows and columns of cells.
        image_token: Stands for the image in the text, and for each cell after processing.
        row_token: Ends each row of cells.
        image_end_token: Comes after the last row; None for no token.
        answer_token: Ends every text; None for no token.
    """

    tokenizer_class = "AutoTokenizer"

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase | None = None,
        bands: int = 3,
        frames: int = 1,
        cell: int = 16,
        minimum_cells: int = 1,
        image_token: str = IMAGE_TOKEN,
        row_token: str = ROW_TOKEN,
        image_end_token: str | None = None,
        answer_token: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.bands, self.frames = bands, frames
        self.cell, self.minimum_cells = cell, minimum_cells
        self.image_token, self.row_token = image_token, row_token
        self.image_end_token, self.answer_token = image_end_token, answer_token
        super().__init__(tokenizer, **kwargs)

    @classmethod
    def of(cls, contract: RasterContract) -> Self:
        """The processor that belongs to a `raster` block, with the minimal tokenizer."""
        return cls(
            minimal_tokenizer(),
            bands=len(contract.input.bands),
            frames=contract.input.frames,
            cell=contract.tile.multiple_of,
            minimum_cells=contract.tile.minimum_cells,
        )

    def __call__(
        self,
        images: ImageItem | Sequence[ImageItem] | None = None,
        text: str | Sequence[str] | None = None,
        **_: Any,
    ) -> BatchFeature:
        """Prepares image items, text, or both.

        Args:
            images: Image items, in the order in which the texts name them.
            text: One text or several, with `<image>` where an image stands.

        Returns:
            `pixel_values` as tensors (bands, frames, height, width) in a list, `valid` as
            boolean tensors (height, width), empty where all pixels are valid,
            `temporal_coords` (frames, 2) and `location_coords` (2,), float64 and NaN where
            unknown; `input_ids` as lists of token ids.

        Raises:
            ImageItemError: An item is not as this checkpoint needs it, or texts and images
                do not agree in number.
        """
        items = [images] if isinstance(images, Mapping) else list(images or [])
        tensors = [self._tensors(item) for item in items]
        data: dict[str, Any] = {}
        if items:
            data.update({name: [one[name] for one in tensors] for name in _FIELDS})
        if text is not None:
            texts = [text] if isinstance(text, str) else list(text)
            grids = [self.grid(*one["pixel_values"].shape[-2:]) for one in tensors]
            data["input_ids"] = self._input_ids(texts, grids)
        return BatchFeature(data)

    def grid(self, height: int, width: int) -> Grid:
        """The grid of cells over a window of this many pixels."""
        return Grid.covering(height, width, cell=self.cell, minimum=self.minimum_cells)

    def _input_ids(self, texts: list[str], grids: list[Grid]) -> list[list[int]]:
        named = sum(one.count(self.image_token) for one in texts)
        if named != len(grids):
            raise ImageItemError(
                f"The text names {named} images by {self.image_token!r}, but {len(grids)} came"
            )
        left = iter(grids)
        expanded = []
        for one in texts:
            pieces = one.split(self.image_token)
            whole = pieces[0]
            for piece in pieces[1:]:
                grid = next(left)
                row = self.image_token * grid.columns + self.row_token
                whole += row * grid.rows + (self.image_end_token or "") + piece
            expanded.append(whole + (self.answer_token or ""))
        return [self.tokenizer(one)["input_ids"] for one in expanded]

    def _tensors(self, item: ImageItem) -> dict[str, torch.Tensor]:
        if not isinstance(item, Mapping) or "pixel_values" not in item:
            raise ImageItemError(
                f"An image item must be a mapping with 'pixel_values', got {_describe(item)}"
            )
        if unknown := set(item) - set(_FIELDS):
            raise ImageItemError(
                f"An image item may have {list(_FIELDS)}, got also {sorted(unknown)}"
            )
        pixels = self._pixels(item["pixel_values"])
        height, width = pixels.shape[-2:]
        return {
            "pixel_values": pixels,
            "valid": _mask(item.get("valid"), (height, width)),
            "temporal_coords": _coordinates(item, "temporal_coords", (self.frames, 2)),
            "location_coords": _coordinates(item, "location_coords", (2,)),
        }

    def _pixels(self, value: Any) -> torch.Tensor:
        array = np.asarray(value)
        if array.shape != np.shape(value):
            # The prompt is made for the shape that was told.
            raise ImageItemError(
                f"pixel_values have the shape {array.shape}, but told {np.shape(value)}"
            )
        if array.ndim == 3 and self.frames == 1:
            array = array[:, None]
        expected = (self.bands, self.frames)
        if array.ndim != 4 or array.shape[:2] != expected or 0 in array.shape:
            raise ImageItemError(
                f"pixel_values must be (bands, frames, height, width) with {self.bands} bands and "
                f"{self.frames} frames, got shape {np.shape(value)}"
            )
        if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
            raise ImageItemError(
                f"pixel_values must be integers or floats of at most 64 bits, got {array.dtype}"
            )
        native = array.astype(array.dtype.newbyteorder("="), copy=False)
        return torch.from_numpy(_owned(native))


def _mask(value: Any, shape: tuple[int, int]) -> torch.Tensor:
    if value is None:
        return torch.zeros((0, 0), dtype=torch.bool)
    array = np.asarray(value)
    if array.shape != shape:
        raise ImageItemError(f"valid must have the shape of the pixels, {shape}, got {array.shape}")
    array = array.astype(bool, copy=False)
    return torch.zeros((0, 0), dtype=torch.bool) if array.all() else torch.from_numpy(_owned(array))


def _coordinates(item: ImageItem, name: str, shape: tuple[int, ...]) -> torch.Tensor:
    value = item.get(name)
    if value is None:
        return torch.full(shape, torch.nan, dtype=torch.float64)
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ImageItemError(f"{name} must be numbers, got {_describe(value)}") from error
    if array.shape != shape:
        raise ImageItemError(f"{name} must have shape {shape}, got {array.shape}")
    return torch.from_numpy(_owned(array))


def _owned(array: np.ndarray) -> np.ndarray:
    owned = np.require(array, requirements=["C", "W"])
    # One that is turned along a single row is in order to numpy, but not to PyTorch.
    return owned if all(step >= 0 for step in owned.strides) else owned.copy()


def _describe(value: object) -> str:
    return f"keys {sorted(value)}" if isinstance(value, Mapping) else type(value).__name__


# So transformers' `Auto` classes read checkpoints, and warn of nothing, for whoever imports this.
for _config in (RasterConfig, InstructedRasterConfig):
    AutoConfig.register(_config.model_type, _config, exist_ok=True)
    AutoProcessor.register(_config, RasterProcessor, exist_ok=True)
