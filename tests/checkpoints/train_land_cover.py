"""Trains the small land-cover checkpoint that the tests serve.

    python tests/checkpoints/train_land_cover.py [--out FOLDER] [--steps N]

It learns `land_cover_labels.index_labels` from two real Sentinel-2 scenes, less their held-out
parts, and from made-up scenes that cover the spectra those two lack. Takes a few minutes on two
cores; the same machine gives the same files again.
"""

import argparse
import math
import time
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
import torch.nn.functional as F
from land_cover_labels import CLASS_NAMES, HELD_OUT, MARGIN, index_labels, mean_iou
from torch import nn

from vllm_raster_model.config import RasterConfig
from vllm_raster_model.processor import RasterProcessor
from vllm_raster_model.pytorch import RasterForImageToImage
from vllm_raster_model.tokenizer import minimal_tokenizer

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "data"

SEED = 20
STEPS = 4500
PEAK_RATE = 8e-3
WARM_UP = 100
LARGEST_GRADIENT = 0.3
BATCH_PIXELS = 16 * 32 * 32
SMALLEST_BATCH = 4
CALIBRATION = 100
IGNORED = 255

TILE = 128
OVERLAP = 32
SCALE = 1e-4
# Chosen to be told from each other, and from the ground, over a true-colour picture.
COLORS = ("#00a651", "#c6e84f", "#e07b39", "#f23da7", "#2f6bff")

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


def main() -> None:
    arguments = _arguments()
    # The windows are too small to share out, and one thread sums alike on any number of cores;
    # the other core draws the windows.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(SEED)
    scenes = [Scene.read(name) for name in HELD_OUT]
    parts = [scene.training for scene in scenes]
    model = RasterForImageToImage(configuration(parts))
    start_without_loss(model)
    processor = RasterProcessor(minimal_tokenizer(), bands=len(model.config.contract.input.bands))
    windows = Windows(parts, np.random.default_rng(SEED))
    train(model, processor, windows, arguments.steps)
    calibrate(model, processor, windows)
    model.eval()
    report = list(evaluate(model, processor, scenes))
    print("\n".join(report))
    model.save_pretrained(arguments.out)
    processor.save_pretrained(arguments.out)
    (arguments.out / "README.md").write_text(CARD.format(report="\n".join(report)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE / "land_cover", metavar="FOLDER")
    parser.add_argument("--steps", type=int, default=STEPS, metavar="N")
    return parser.parse_args()


def configuration(parts: Sequence[Scene]) -> RasterConfig:
    reflectance = np.concatenate([one.pixels[:, one.valid] for one in parts], axis=1) * SCALE
    raster = {
        "version": 1,
        "input": {
            "bands": ["BLUE", "GREEN", "RED", "NIR"],
            "scale": SCALE,
            "offset": 0.0,
            "mean": reflectance.mean(axis=1).round(4).tolist(),
            "std": reflectance.std(axis=1).round(4).tolist(),
            # No ground reflects nothing at all, so a filled pixel is told from a real one.
            "nodata_fill": 0.0,
            "frames": 1,
            "coordinates": ["location"],
        },
        "tile": {"size": TILE, "multiple_of": 16, "minimum": 16, "overlap": OVERLAP},
        "output": {
            "kind": "classes",
            "classes": [
                {"name": name, "color": color}
                for name, color in zip(CLASS_NAMES, COLORS, strict=True)
            ],
        },
    }
    network = {
        "model_type": "prithvi_upernet",
        "embed_dim": 96,
        "depth": 2,
        "num_heads": 2,
        "mlp_ratio": 2.0,
        # A label depends on single pixels, and four pixels a side are what the decoder can
        # spread a token over again.
        "patch_size": 4,
        "image_size": TILE,
        "out_indices": [1, 0, 1, 1],
        "decoder_channels": 16,
    }
    return RasterConfig(vision_config=network, raster=raster)


class Windows:
    """Draws training windows, real and made-up ones, each batch of one size."""

    def __init__(self, parts: Sequence[Scene], rng: np.random.Generator) -> None:
        self.parts = parts
        self.rng = rng

    def batches(self, count: int) -> Iterator[tuple[list[Item], torch.Tensor]]:
        """Draws each batch while the one before is in use."""
        with ThreadPoolExecutor(1) as ahead:
            drawn = [ahead.submit(self.batch) for _ in range(min(count, 2))]
            for i in range(count):
                yield drawn.pop(0).result()
                if i + 2 < count:
                    drawn.append(ahead.submit(self.batch))

    def batch(self) -> tuple[list[Item], torch.Tensor]:
        """Image items and their labels (batch, height, width)."""
        height, width = (16 * self.rng.choice(range(1, 9), 2, p=_SIZE_ODDS)).tolist()
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


_SIZE_ODDS = np.array([2, 10, 6, 3, 1, 1, 1, 1]) / 25
"""Sides of 16, 32, ... 128 pixels. What is to be learnt is local, so small windows teach it
cheaply; a few large ones are enough to show their position codes and their pooling."""


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


def start_without_loss(model: RasterForImageToImage) -> None:
    """Lets a token start as a rotation of its patch, three times as large as its position code.

    From PyTorch's own start, which drowns the patch in the code, training takes twice as long.
    """
    weight = model.predictor.network.encoder.patch_embed.proj.weight
    with torch.no_grad():
        nn.init.orthogonal_(weight.view(len(weight), -1), gain=3.0)


def train(
    model: RasterForImageToImage, processor: RasterProcessor, windows: Windows, steps: int
) -> None:
    for name, parameter in model.named_parameters():
        # The place must not matter for the map, and the surest way to that is to shrink its
        # code to nothing; the code has to stay, since the tests look for its effect.
        parameter.requires_grad_("location_embed_enc" not in name)
    learnt = [one for one in model.parameters() if one.requires_grad]
    optimiser = torch.optim.AdamW(learnt, lr=PEAK_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda i: _rate(i, steps))
    model.train()
    start = time.perf_counter()
    mean_loss = 0.0
    for step, (items, labels) in enumerate(windows.batches(steps), start=1):
        loss = F.cross_entropy(scores(model, processor, items), labels, ignore_index=IGNORED)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(learnt, LARGEST_GRADIENT)
        optimiser.step()
        schedule.step()
        mean_loss += loss.item() / 100
        if step % 100 == 0:
            print(f"step {step:5d}  loss {mean_loss:.4f}  {time.perf_counter() - start:.0f} s")
            mean_loss = 0.0


def _rate(step: int, steps: int) -> float:
    return min((step + 1) / WARM_UP, 0.5 * (1 + math.cos(math.pi * step / steps)))


def scores(
    model: RasterForImageToImage, processor: RasterProcessor, items: list[Item]
) -> torch.Tensor:
    """(batch, classes, height, width) for items of one size, in whole cells."""
    return torch.stack(model(**processor(images=items)))


@torch.no_grad()
def calibrate(model: RasterForImageToImage, processor: RasterProcessor, windows: Windows) -> None:
    """Measures the batch norms' statistics anew, now that the weights stand still."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
            module.momentum = None  # a plain mean over all that comes
    model.train()
    for items, _ in windows.batches(CALIBRATION):
        scores(model, processor, items)


def evaluate(
    model: RasterForImageToImage, processor: RasterProcessor, scenes: Sequence[Scene]
) -> Iterator[str]:
    """Lines of a table: IoU on the held-out part of each scene."""
    yield "| scene, held-out part | how | mean IoU | " + " | ".join(CLASS_NAMES) + " |"
    yield "|---|---|---|" + "---|" * len(CLASS_NAMES)
    for scene in scenes:
        part = scene.held_out
        labels = index_labels(part.pixels)
        alone = tiled(model, processor, part, overlap=0)
        whole = tiled(model, processor, scene, overlap=OVERLAP)[HELD_OUT[scene.name]]
        for how, ids in (("cut out", alone), (f"whole scene, overlap {OVERLAP}", whole)):
            mean, by_class = mean_iou(ids, labels, part.valid)
            cells = [f"{by_class[name]:.3f}" if name in by_class else "–" for name in CLASS_NAMES]
            yield f"| `{scene.name}` | {how} | {mean:.3f} | {' | '.join(cells)} |"


@torch.no_grad()
def tiled(
    model: RasterForImageToImage, processor: RasterProcessor, scene: Scene, overlap: int
) -> Array:
    """Class ids of a scene of any size; where windows overlap, their scores add up."""
    height, width = scene.valid.shape
    total = torch.zeros(len(CLASS_NAMES), height, width)
    for top in _starts(height, overlap):
        for left in _starts(width, overlap):
            rows, columns = slice(top, top + TILE), slice(left, left + TILE)
            window = scene.part(rows, columns)
            item = {"pixel_values": window.pixels, "valid": window.valid}
            if scene.location is not None:
                item["location_coords"] = scene.location
            here = total[:, rows, columns]
            here += scores(model, processor, [item])[0, :, : here.shape[1], : here.shape[2]]
    return total.argmax(0).numpy()


def _starts(length: int, overlap: int) -> list[int]:
    last = max(length - TILE, 0)
    return sorted({*range(0, last, TILE - overlap), last})


CARD = """\
---
license: apache-2.0
pipeline_tag: image-segmentation
---

# Land cover from four Sentinel-2 bands, small

A network of about 250,000 weights that tells five kinds of ground from blue, green, red and near
infrared. It is here to test the software around it: it imitates a decision list over NDVI and
brightness (`land_cover_labels.py`) and knows nothing beyond. Do not map the world with it.

- **Made by** `train_land_cover.py`, beside this folder.
- **Input** as the `raster` block of `config.json` says: surface reflectance in counts × 10,000,
  windows of 16 to 128 pixels; the place is optional and hardly changes the map.
- **Data** two real scenes, less their held-out parts, and made-up ones
  (`made_up_scenes.py`). The real ones contain modified Copernicus Sentinel data: sample data of
  spyndex 0.12 (MIT) and of satsense 0.9 (Apache-2.0), see `../../data/README.md`.
- **Licence** Apache-2.0.

## IoU on the parts that training never saw

{report}

A dash marks a class with fewer than 20 pixels there.
"""


if __name__ == "__main__":
    main()
