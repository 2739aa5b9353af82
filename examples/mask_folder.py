"""A folder of images and masks, as windows to learn from; `train_instructed.py` says its layout.

What cannot be learnt from ends the program with one line, which names the file.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import rasterio
import torch
from rasterio.enums import ColorInterp
from rasterio.errors import RasterioIOError
from torch.utils.data import Dataset

from vllm_raster_model.contract import InputContract

EXAMPLE = '{"trees": ["find the trees", "forest"]}'
SUFFIXES = (".tif", ".tiff")
STANDS_FOR_THE_IMAGE = ("<image>", "<row>")
LONGEST_WORDING = 1000

Window = tuple[tuple[int, int], tuple[int, int]]
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Example:
    """An image item, the words for what is asked of it, and the answer (height, width).

    `known` is true where there is an answer.
    """

    item: dict[str, Any]
    words: str
    wanted: torch.Tensor
    known: torch.Tensor


class MaskFolder(Dataset[Example]):
    """Windows of the folder's images, each with one of its targets, drawn at random.

    `scale` is what stands for 1 in the masks. All masks are read once to begin with, to find
    those that are no use before anything is learnt from them.
    """

    def __init__(
        self,
        folder: Path,
        taken: InputContract,
        *,
        side: int,
        length: int,
        scale: float = 1,
        seed: int = 0,
    ) -> None:
        self.wordings = read_wordings(folder / "wordings.json")
        self.pairs = list(pairs_of(folder, self.wordings))
        self.frames, self.scale = taken.frames, scale
        self.side, self.length, self.seed = side, length, seed
        for image, mask, _ in self.pairs:
            with opened(image) as pixels, opened(mask) as answer:
                check_pair(pixels, answer, taken)
                _, known = read_mask(answer, scale)
            if not known.any():
                print(f"{mask} says nothing: all of it is nodata or NaN")

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Example:
        rng = np.random.default_rng((self.seed, index))
        image, mask, target = self.pairs[rng.integers(len(self.pairs))]
        with opened(image) as pixels, opened(mask) as answer:
            window = self._window(pixels.height, pixels.width, rng)
            values = pixels.read(bands_of(pixels), window=window)
            valid = (pixels.dataset_mask(window=window) > 0) & np.isfinite(values).all(axis=0)
            for alpha in set(pixels.indexes) - {*bands_of(pixels)}:
                valid &= pixels.read(alpha, window=window) > 0
            wanted, known = read_mask(answer, self.scale, window)
        # A file has all bands of the first date, then all of the second.
        frames = values.reshape(self.frames, -1, *valid.shape).swapaxes(0, 1)
        words = str(rng.choice(self.wordings[target]))
        return Example(
            {"pixel_values": frames, "valid": valid},
            words,
            torch.from_numpy(wanted),
            torch.from_numpy(known & valid),
        )

    def _window(self, height: int, width: int, rng: np.random.Generator) -> Window:
        top, left = (int(rng.integers(max(one - self.side, 0) + 1)) for one in (height, width))
        return (top, min(top + self.side, height)), (left, min(left + self.side, width))


def read_wordings(path: Path) -> dict[str, list[str]]:
    """How each target may be asked for."""
    if not path.is_file():
        raise SystemExit(f"{path} is missing: it says how a target may be asked for, as {EXAMPLE}")
    try:
        given = json.loads(path.read_text())
    except ValueError as error:
        raise SystemExit(f"{path} is not json: {error}") from None
    if not isinstance(given, dict) or not given:
        raise SystemExit(f"{path} must hold a list of wordings for each target, as {EXAMPLE}")
    for target, wordings in given.items():
        if not isinstance(wordings, list) or not wordings:
            raise SystemExit(f"{path} must have a list of wordings for {target!r}, as {EXAMPLE}")
        for one in wordings:
            if not isinstance(one, str) or not one.strip() or len(one) > LONGEST_WORDING:
                raise SystemExit(
                    f"{path} has for {target!r} {str(one)[:60]!r}, which no client may send: a "
                    f"wording has 1 to {LONGEST_WORDING} characters, not all of them blank"
                )
            if any(word in one for word in STANDS_FOR_THE_IMAGE):
                raise SystemExit(
                    f"{path} has {one!r}: {' and '.join(STANDS_FOR_THE_IMAGE)} stand for the image"
                )
    return given


def pairs_of(folder: Path, wordings: dict[str, list[str]]) -> Iterator[tuple[Path, Path, str]]:
    """Each image with one of its masks and the target; tells what there is besides."""
    used = set()
    for target in wordings:
        masks = files_in(folder / "masks" / target)
        if not masks:
            raise SystemExit(
                f"{folder / 'masks' / target} has no GeoTIFF (*.tif), but wordings.json has the "
                f"target {target!r}"
            )
        for mask in masks:
            image = folder / "images" / mask.name
            if not image.is_file():
                raise SystemExit(f"{mask} has no image: {image} is missing")
            used.add(image)
            yield image, mask, target
    folders = sorted(one for one in (folder / "masks").iterdir() if one.is_dir())
    for one in folders:
        if one.name not in wordings:
            print(f"{one} is not used: wordings.json has no target of this name")
    for image in files_in(folder / "images"):
        if image not in used:
            print(f"{image} is not used: it has no mask")


def files_in(folder: Path) -> list[Path]:
    return sorted(one for one in folder.glob("*") if one.suffix.lower() in SUFFIXES)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    try:
        with rasterio.open(path) as dataset:
            yield dataset
    except RasterioIOError as error:
        raise SystemExit(f"{path} cannot be read: {error}") from None


def bands_of(image: Any) -> list[int]:
    """An alpha band is a mask."""
    kinds = zip(image.indexes, image.colorinterp, strict=True)
    return [band for band, kind in kinds if kind is not ColorInterp.alpha]


def check_pair(image: Any, mask: Any, taken: InputContract) -> None:
    bands, expected = len(bands_of(image)), len(taken.bands) * taken.frames
    if bands != expected:
        dates = f" on each of {taken.frames} dates" if taken.frames > 1 else ""
        raise SystemExit(
            f"{image.name} has {bands} bands, but the checkpoint takes {expected}: "
            f"{', '.join(taken.bands)}{dates}, in this order. Write files of these, or start from "
            "a checkpoint of your own (docs/instructions.md)"
        )
    if mask.count != 1:
        raise SystemExit(f"{mask.name} has {mask.count} bands, a mask has one")
    if mask.shape != image.shape:
        raise SystemExit(
            f"{mask.name} has {mask.height} × {mask.width} pixels, its image {image.name} "
            f"{image.height} × {image.width}: they must be of one size"
        )
    if mask.crs and image.crs:
        pixel = max(abs(image.transform.a), abs(image.transform.b))
        near = np.allclose(mask.transform, image.transform, rtol=0, atol=pixel / 100)
        if mask.crs != image.crs or not near:
            raise SystemExit(f"{mask.name} lies elsewhere than its image {image.name}")


def read_mask(mask: Any, scale: float, window: Window | None = None) -> tuple[Array, Array]:
    """What is wanted, from 0 to 1, and where that is known (both (height, width))."""
    values = mask.read(1, window=window).astype(np.float32)
    known = np.isfinite(values)
    # What says yes or no is an answer, whatever the file calls nodata.
    if mask.nodata not in (0, scale):
        known &= mask.dataset_mask(window=window) > 0
    low, high = min(0, values[known].min(initial=0)), max(0, values[known].max(initial=0))
    if low < 0 or high > scale:
        what_to_do = f". Where {high:g} stands for 1, say --mask-scale {high:g}" if low >= 0 else ""
        raise SystemExit(
            f"{mask.name} has values from {low:g} to {high:g}, but a mask may have 0 to {scale:g}, "
            f"and nodata or NaN where that is unknown{what_to_do}"
        )
    return np.where(known, values / np.float32(scale), 0), known
