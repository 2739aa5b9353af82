"""The windows that the land-cover checkpoint learns from, real ones and made-up ones."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import made_up_scenes
import numpy as np
import numpy.typing as npt
import rasterio
import torch
from land_cover_labels import HELD_OUT, MARGIN, index_labels

DATA = Path(__file__).resolve().parents[1] / "data"
SCALE = 1e-4
IGNORED = 255

BATCH_PIXELS = 16 * 32 * 32
SMALLEST_BATCH = 4
SIDE_ODDS = np.array([2, 10, 6, 3, 1, 1, 1, 1]) / 25
"""Of sides of 16, 32, ... 128 pixels. What is to be learnt is local, so small windows teach it
cheaply; a few large ones are enough to show their position codes and their pooling."""

Array = npt.NDArray[Any]
Item = dict[str, Any]


@dataclass(frozen=True)
class Scene:
    """Counts (bands, height, width), where they are valid, and the centre in degrees if known."""

    name: str
    pixels: Array
    valid: Array
    location: tuple[float, float] | None

    @classmethod
    def read(cls, name: str) -> "Scene":
        with rasterio.open(DATA / name) as raster:
            location = raster.lnglat()[::-1] if raster.crs else None
            return cls(name, raster.read(), raster.dataset_mask() > 0, location)

    def part(self, rows: slice, columns: slice) -> "Scene":
        pixels, valid = self.pixels[:, rows, columns], self.valid[rows, columns]
        return Scene(self.name, pixels, valid, self.location)

    @property
    def held_out(self) -> "Scene":
        return self.part(*HELD_OUT[self.name])

    @property
    def training(self) -> "Scene":
        # The held-out parts lie at the bottom or at the right.
        ends = (max(one.start - MARGIN, 0) or None for one in HELD_OUT[self.name])
        return self.part(*map(slice, ends))


class Windows:
    """Draws training windows, real and made-up ones, each batch of one size."""

    def __init__(self, parts: Sequence[Scene], rng: np.random.Generator) -> None:
        self.parts = parts
        self.rng = rng

    def batches(self, count: int) -> Iterator[tuple[list[Item], torch.Tensor]]:
        """Draws each batch while the one before is in use."""
        with ThreadPoolExecutor(1) as ahead:
            coming = ahead.submit(self.batch)
            for _ in range(count):
                batch, coming = coming.result(), ahead.submit(self.batch)
                yield batch

    def batch(self) -> tuple[list[Item], torch.Tensor]:
        """Image items and their labels (batch, height, width)."""
        height, width = (16 * self.rng.choice(range(1, 9), 2, p=SIDE_ODDS)).tolist()
        size = max(BATCH_PIXELS // (height * width), SMALLEST_BATCH)
        drawn = [
            self._real(height, width) if i % 2 else self._made_up(height, width)
            for i in range(size)
        ]
        items = [self._item(pixels, self._spoilt(pixels, valid)) for pixels, valid in drawn]
        labels = np.stack([_labels(one) for one in items])
        return items, torch.from_numpy(labels).long()

    def _real(self, height: int, width: int) -> tuple[Array, Array]:
        part = self.parts[self.rng.integers(len(self.parts))]
        pixels, valid = _crop(part, height, width, self.rng)
        if self.rng.random() < 0.5:
            pixels, valid = pixels.swapaxes(1, 2), valid.T
            pixels, valid = _resized(pixels, valid, height, width)
        flips = tuple(self.rng.choice((1, -1), 2).tolist())
        pixels, valid = pixels[:, :: flips[0], :: flips[1]], valid[:: flips[0], :: flips[1]]
        if self.rng.random() < 0.5:
            gain = self.rng.uniform(0.6, 1.5) * self.rng.uniform(0.85, 1.15, (4, 1, 1))
            pixels = _counts(pixels * SCALE * gain)
        return pixels.copy(), valid.copy()

    def _made_up(self, height: int, width: int) -> tuple[Array, Array]:
        reflectance = made_up_scenes.scene(self.rng, height, width)
        return _counts(reflectance), np.ones((height, width), bool)

    def _spoilt(self, pixels: Array, valid: Array) -> Array:
        """Makes part of some windows invalid, with the values that stand there in files."""
        height, width = valid.shape
        if self.rng.random() < 0.25:
            top, left = self.rng.integers(0, height), self.rng.integers(0, width)
            valid[top : top + height // 2, left : left + width // 2] = False
            pixels[:, ~valid] = self.rng.choice((0, 9999, 65535))
        return valid

    def _item(self, pixels: Array, valid: Array) -> Item:
        item = {"pixel_values": pixels, "valid": valid}
        if self.rng.random() < 0.5:
            item["location_coords"] = (self.rng.uniform(-80, 80), self.rng.uniform(-180, 180))
        return item


def _crop(part: Scene, height: int, width: int, rng: np.random.Generator) -> tuple[Array, Array]:
    top, left = (
        rng.integers(0, max(have - want, 0) + 1)
        for have, want in zip(part.valid.shape, (height, width), strict=True)
    )
    window = part.part(slice(top, top + height), slice(left, left + width))
    return _resized(window.pixels, window.valid, height, width)


def _resized(pixels: Array, valid: Array, height: int, width: int) -> tuple[Array, Array]:
    """Cuts, or reflects where the window is too small."""
    pixels, valid = pixels[:, :height, :width], valid[:height, :width]
    below, right = height - valid.shape[0], width - valid.shape[1]
    return (
        np.pad(pixels, ((0, 0), (0, below), (0, right)), mode="reflect"),
        np.pad(valid, ((0, below), (0, right)), mode="reflect"),
    )


def _counts(reflectance: Array) -> Array:
    return np.clip(np.rint(reflectance / SCALE), 0, 65535).astype(np.uint16)


def _labels(item: Item) -> Array:
    return np.where(item["valid"], index_labels(item["pixel_values"]), IGNORED)
