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
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from land_cover_labels import CLASS_NAMES, HELD_OUT, index_labels, mean_iou
from torch import nn
from training_windows import IGNORED, SCALE, Array, Item, Scene, Windows

from vllm_raster_model.config import RasterConfig
from vllm_raster_model.processor import RasterProcessor
from vllm_raster_model.pytorch import RasterForImageToImage
from vllm_raster_model.tokenizer import minimal_tokenizer

HERE = Path(__file__).resolve().parent

SEED = 20
STEPS = 4500
PEAK_RATE = 8e-3
WARM_UP = 100
LARGEST_GRADIENT = 0.3
CALIBRATION = 100

TILE = 128
OVERLAP = 32
# Chosen to be told from each other, and from the ground, over a true-colour picture.
COLORS = ("#00a651", "#c6e84f", "#e07b39", "#f23da7", "#2f6bff")


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
        "model_type": "prithvi_dense",
        "embed_dim": 96,
        "depth": 2,
        "num_heads": 2,
        "mlp_ratio": 2.0,
        # A label depends on single pixels, and four pixels a side are what the decoder can
        # spread a token over again.
        "patch_size": 4,
        "image_size": TILE,
        "necks": [
            {"name": "SelectIndices", "indices": [1, 0, 1, 1]},
            {"name": "ReshapeTokensToImage"},
            {"name": "LearnedInterpolateToPyramidal"},
        ],
        "decoder": {"name": "UperNetDecoder", "channels": 16},
        "head": {"name": "SegmentationHead"},
        "padding": None,  # windows are whole cells already
    }
    return RasterConfig(vision_config=network, raster=raster)


def start_without_loss(model: RasterForImageToImage) -> None:
    """Lets a token start as a rotation of its patch, three times as large as its position code.

    PyTorch's own start drowns the patch in that code, and the details come out more slowly.
    """
    weight = model.predictor.network.encoder.patch_embed.proj.weight
    with torch.no_grad():
        nn.init.orthogonal_(weight.view(len(weight), -1), gain=3.0)


def train(
    model: RasterForImageToImage, processor: RasterProcessor, windows: Windows, steps: int
) -> None:
    for name, parameter in model.named_parameters():
        # The network learns that the place does not matter. Left free, it would shrink the
        # place's code to nothing, and the tests look for an effect.
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
            seconds = time.perf_counter() - start
            print(f"step {step:5d}  loss {mean_loss:.4f}  {seconds:.0f} s", flush=True)
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
    yield "| held-out part of | mapped | mean IoU | " + " | ".join(CLASS_NAMES) + " |"
    yield "|---|---|---|" + "---|" * len(CLASS_NAMES)
    for scene in scenes:
        part = scene.held_out
        labels = index_labels(part.pixels)
        alone = tiled(model, processor, part, overlap=0)
        whole = tiled(model, processor, scene, overlap=OVERLAP)[HELD_OUT[scene.name]]
        for how, ids in (("by itself", alone), (f"with the whole scene, overlap {OVERLAP}", whole)):
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
