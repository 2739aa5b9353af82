"""How much of a map is the same in a shorter type: what real scenes say of a checkpoint."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from vllm_raster_model.config import InstructedRasterConfig, RasterConfig
from vllm_raster_model.contract import OutputContract
from vllm_raster_model.errors import ContractError, ImageItemError
from vllm_raster_model.networks.precision import Shortened, short_parts

TOLERANCE = 0.02
"""A value is taken for the same where it moves by less than this part of the standard deviation
that its band has over the scene."""


@dataclass(frozen=True)
class Agreement:
    """What a scene says.

    Attributes:
        share: Of its valid pixels, from 0 to 1: those of the same class, or with all values moved
            by less than `TOLERANCE`.
        pixels: Number of valid pixels.
        largest: Largest difference of a score or value, in units of the band's standard deviation.
    """

    share: float
    pixels: int
    largest: float


Item = Mapping[str, Any]
Maps = list[tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]]


class Comparison:
    """A checkpoint, in plain PyTorch, and scenes mapped in both types.

    Args:
        checkpoint: Its folder.
        dtype: The shorter type.
        targets: What an instructed checkpoint is told to map; None for all that it may be told.

    Raises:
        ContractError: Its network computes in float32 only.
    """

    def __init__(
        self,
        checkpoint: Path,
        dtype: torch.dtype = torch.bfloat16,
        targets: Sequence[str] | None = None,
    ) -> None:
        from transformers import AutoConfig, AutoProcessor

        from vllm_raster_model import pytorch
        from vllm_raster_model.registration import register_with_transformers

        register_with_transformers()
        self.config: RasterConfig = AutoConfig.from_pretrained(checkpoint)
        kind: Any = pytorch.RasterForImageToImage
        if isinstance(self.config, InstructedRasterConfig):
            kind = pytorch.InstructedRasterForImageToImage
        self._model = kind.from_pretrained(checkpoint).eval()
        self._processor = AutoProcessor.from_pretrained(checkpoint)
        network = self._model.predictor.network
        if not short_parts(network):
            raise ContractError(f"{type(network).__name__} computes in float32 only")
        self._shortened = Shortened(network, dtype)
        self._targets = targets

    @torch.inference_mode()
    def of(self, pixels: npt.NDArray[Any], valid: npt.NDArray[np.bool_]) -> Agreement:
        """Compares the maps of a scene, cut into windows edge to edge.

        Args:
            pixels: (bands[, frames], height, width), as the file stores it.
            valid: (height, width).
        """
        items = list(self._windows(pixels, valid))
        if not items:
            raise ImageItemError("The scene has no valid pixel: nothing of it can be compared")
        whole = self._maps(items)
        with self._shortened:
            short = self._maps(items)
        return compared(whole, short, self.config.contract.output)

    def _windows(
        self, pixels: npt.NDArray[Any], valid: npt.NDArray[np.bool_]
    ) -> Iterator[dict[str, Any]]:
        side = self.config.contract.tile.size
        height, width = valid.shape
        for top in range(0, height, side):
            for left in range(0, width, side):
                part = (..., slice(top, top + side), slice(left, left + side))
                if valid[part].any():
                    yield {"pixel_values": pixels[part], "valid": valid[part]}

    def _maps(self, items: Sequence[Item]) -> Maps:
        """Each window's map, without its padding, and which of its pixels are valid."""
        output = self.config.contract.output
        maps: Maps = []
        for item in items:
            valid = item["valid"].repeat(output.upscale, 0).repeat(output.upscale, 1)
            valid = valid[:: output.downscale, :: output.downscale]
            for text in self._texts():
                found = self._model(**self._processor(images=[item], text=text))[0]
                maps.append((found[:, : valid.shape[0], : valid.shape[1]].numpy(), valid))
        return maps

    def _texts(self) -> Sequence[list[str] | None]:
        """One prompt for each thing that the checkpoint may be told to map."""
        instructions = self.config.contract.instructions
        if instructions is None:
            return [None]
        targets = instructions.wordings if self._targets is None else self._targets
        first = (instructions.wordings[one][0] for one in targets)
        return [[instructions.template.replace("{instruction}", one)] for one in first]


def compared(whole: Maps, short: Maps, output: OutputContract) -> Agreement:
    """Compares maps, (channels, rows, columns) each, at their valid pixels."""
    ours, theirs = (
        np.concatenate([one[:, valid] for one, valid in maps], axis=1) for maps in (whole, short)
    )
    spread = np.maximum(ours.std(axis=1, keepdims=True), np.finfo(np.float32).tiny)
    moved = np.abs(ours - theirs) / spread
    if output.kind == "classes" and len(ours) > 1:
        same = ours.argmax(axis=0) == theirs.argmax(axis=0)
    else:
        same = (moved < TOLERANCE).all(axis=0)
    return Agreement(float(same.mean()), same.size, float(moved.max()))


def record(checkpoint: Path, share: float, dtype: str = "bfloat16") -> None:
    """Writes into config.json which share of the pixels of real scenes agrees."""
    path = checkpoint / "config.json"
    stored = json.loads(path.read_text())
    # Downwards: what is just too little must not be rounded up to enough.
    known = stored["raster"].setdefault("agreement", {})
    known[dtype] = int(share * 1e6) / 1e6
    path.write_text(json.dumps(stored, indent=2) + "\n")


def read_scene(path: Path) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Pixels and mask of a scene: a `.npy` array, or any file that rasterio opens.

    Raises:
        ImageItemError: It is no array, or rasterio is not installed.
    """
    if path.suffix == ".npy":
        pixels = np.load(path, allow_pickle=False)
        if pixels.ndim not in (3, 4):
            raise ImageItemError(
                f"{path} must hold (bands[, frames], height, width), got the shape {pixels.shape}"
            )
        return pixels, np.ones(pixels.shape[-2:], bool)
    try:
        import rasterio
    except ImportError as error:
        raise ImageItemError(
            f"{path} is read with rasterio, which is not installed: install it, or give an array "
            "in a .npy file"
        ) from error
    with rasterio.open(path) as scene:
        return scene.read(), scene.dataset_mask() > 0
