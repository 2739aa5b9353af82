"""Teaches an instructed checkpoint on a folder of GeoTIFFs with masks.

    python examples/train_instructed.py FOLDER OUT [--start CHECKPOINT] [--steps N]

The folder holds

    images/NAME.tif            the bands that the checkpoint takes, in its order
    masks/TARGET/NAME.tif      what is to be found there: 0 to 1, of the image's size
    wordings.json              {"TARGET": ["how it may be asked for", ...], ...}

A target need not have a mask for every image. Where an image is invalid, or its mask NaN or a
nodata value other than 0 and 1, nothing is learnt. OUT is what `vllm serve` starts.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from transformers import AutoProcessor, get_cosine_schedule_with_warmup

from vllm_raster_model import RasterProcessor, register
from vllm_raster_model.pytorch import InstructedRasterForImageToImage

CHECKPOINT = Path(__file__).resolve().parents[1] / "tests" / "checkpoints" / "instructed"


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
    """Windows of the folder's images, each with one of its targets, drawn at random."""

    def __init__(self, folder: Path, side: int, length: int, seed: int = 0) -> None:
        self.wordings: dict[str, list[str]] = json.loads((folder / "wordings.json").read_text())
        self.pairs = [
            (folder / "images" / mask.name, mask, target)
            for target in self.wordings
            for mask in sorted((folder / "masks" / target).glob("*.tif"))
        ]
        if not self.pairs:
            raise SystemExit(
                f"{folder} has no masks/TARGET/NAME.tif for any target of its wordings"
            )
        if silent := [target for target, wordings in self.wordings.items() if not wordings]:
            raise SystemExit(f"{folder / 'wordings.json'} has no wording for {silent}")
        self.side, self.length, self.seed = side, length, seed

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Example:
        rng = np.random.default_rng((self.seed, index))
        image, mask, target = self.pairs[rng.integers(len(self.pairs))]
        with rasterio.open(image) as pixels, rasterio.open(mask) as answer:
            if pixels.shape != answer.shape:
                raise SystemExit(f"{mask} has the size {answer.shape}, its image {pixels.shape}")
            window = self._window(pixels.height, pixels.width, rng)
            values = pixels.read(window=window)
            valid = (pixels.dataset_mask(window=window) > 0) & np.isfinite(values).all(axis=0)
            wanted = answer.read(1, window=window).astype(np.float32)
            known = np.isfinite(wanted)
            # A 0 or a 1 is an answer, whatever the file calls nodata.
            if answer.nodata not in (None, 0, 1):
                known &= wanted != answer.nodata
        if wrong := sorted({*wanted[known & ((wanted < 0) | (wanted > 1))].tolist()}):
            raise SystemExit(f"{mask} has values such as {wrong[0]:g}, expected 0 to 1")
        item = {"pixel_values": values, "valid": valid}
        words = str(rng.choice(self.wordings[target]))
        return Example(item, words, torch.from_numpy(wanted), torch.from_numpy(known & valid))

    def _window(
        self, height: int, width: int, rng: np.random.Generator
    ) -> tuple[tuple[int, int], tuple[int, int]]:
        top, left = (int(rng.integers(max(one - self.side, 0) + 1)) for one in (height, width))
        return (top, min(top + self.side, height)), (left, min(left + self.side, width))


def loss_of(
    model: InstructedRasterForImageToImage,
    processor: RasterProcessor,
    template: str,
    batch: list[Example],
) -> torch.Tensor:
    """Cross entropy of the values with the masks, where there is an answer."""
    texts = [template.replace("{instruction}", one.words) for one in batch]
    inputs = processor(images=[one.item for one in batch], text=texts)
    losses = []
    for one, logits in zip(batch, model.logits(**inputs), strict=True):
        height, width = one.wanted.shape
        # What the model gives is padded to whole cells.
        inside = logits[0, :height, :width][one.known]
        loss = F.binary_cross_entropy_with_logits(inside, one.wanted[one.known], reduction="sum")
        # The mean of no pixel would be NaN, and all weights with it.
        losses.append(loss / max(inside.numel(), 1))
    return torch.stack(losses).mean()


def check_words(wordings: dict[str, list[str]], processor: RasterProcessor) -> None:
    """Tells of words that the tokenizer does not know; what they alone tell apart is not learnt."""
    tokenizer, targets = processor.tokenizer, dict[tuple[int, ...], str]()
    for target, ones in wordings.items():
        for one in ones:
            ids = tokenizer(one)["input_ids"]
            other = targets.setdefault(tuple(ids), target)
            if other != target:
                raise SystemExit(
                    f"{one!r}, for {target!r}, has the tokens of a wording for {other!r}: the "
                    "checkpoint cannot tell them apart. Use words that its tokenizer knows"
                )
            if tokenizer.unk_token_id is not None and tokenizer.unk_token_id in ids:
                print(f"{one!r}, for {target!r}, has words that the checkpoint does not know")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--start", type=Path, default=CHECKPOINT, help="checkpoint to go on from")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--side", type=int, default=64, help="of a window, in pixels")
    parser.add_argument("--rate", type=float, default=5e-4, help="of learning, at its peak")
    options = parser.parse_args()
    register()
    torch.manual_seed(0)
    # As it will be served, whatever the weights are stored in.
    model = InstructedRasterForImageToImage.from_pretrained(options.start, dtype=torch.float32)
    model.eval()
    processor = AutoProcessor.from_pretrained(options.start)
    examples = MaskFolder(options.folder, options.side, options.steps * options.batch)
    check_words(examples.wordings, processor)
    model.config.raster["instructions"]["wordings"].update(examples.wordings)
    template = model.config.contract.instructions.template
    optimiser = torch.optim.AdamW(model.parameters(), lr=options.rate)
    schedule = get_cosine_schedule_with_warmup(optimiser, options.steps // 10, options.steps)
    for step, batch in enumerate(DataLoader(examples, options.batch, collate_fn=list), 1):
        loss = loss_of(model, processor, template, batch)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 10 == 0 or step == options.steps:
            print(f"step {step} of {options.steps}, loss {loss.item():.4f}")
    model.save_pretrained(options.out)
    processor.save_pretrained(options.out)


if __name__ == "__main__":
    main()
