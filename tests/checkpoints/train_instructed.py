"""Trains the small instructed checkpoint that the tests serve.

    python tests/checkpoints/train_instructed.py [--out FOLDER] [--steps N]

One network, told in words what to map. Its vision encoder starts as that of the land-cover
checkpoint beside it; its language model, a small Llama, starts from nothing. Takes a few minutes
on two cores; the same machine gives the same files again.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from instructions import MASKS, TARGETS, UNSEEN, WORDINGS
from land_cover_labels import HELD_OUT, index_labels
from torch import nn
from training_windows import Array, Item, Scene, Windows
from transformers import LlamaConfig, PreTrainedTokenizerBase

from vllm_raster_model.config import InstructedRasterConfig, RasterConfig
from vllm_raster_model.processor import RasterProcessor
from vllm_raster_model.pytorch import InstructedRasterForImageToImage, RasterForImageToImage
from vllm_raster_model.tokenizer import word_tokenizer

HERE = Path(__file__).resolve().parent
LAND_COVER = HERE / "land_cover"
SEED = 7
STEPS = 3000
PEAK_RATE = 2e-3
LARGEST_GRADIENT = 1.0
UNKNOWN_WORDS = 0.15
IMAGE_END, ANSWER = "<bos>", "<eos>"


def main() -> None:
    arguments = _arguments()
    # On cores that others use too, two threads wait for each other more than they gain.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(SEED)
    scenes = [Scene.read(name) for name in HELD_OUT]
    tokenizer = word_tokenizer(
        word for wordings in WORDINGS.values() for one in wordings for word in one.split()
    )
    start = RasterForImageToImage.from_pretrained(LAND_COVER)
    model = InstructedRasterForImageToImage(configuration(start.config, tokenizer))
    start_from(model, start)
    processor = RasterProcessor(
        tokenizer,
        bands=len(model.config.contract.input.bands),
        image_end_token=IMAGE_END,
        answer_token=ANSWER,
    )
    windows = Windows([one.training for one in scenes], np.random.default_rng(SEED))
    train(model, processor, windows, arguments.steps)
    model.eval()
    report = evaluate(model, processor, scenes)
    print(report)
    model.save_pretrained(arguments.out)
    processor.save_pretrained(arguments.out)
    (arguments.out / "README.md").write_text(CARD.format(report=report))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE / "instructed", metavar="FOLDER")
    parser.add_argument("--steps", type=int, default=STEPS, metavar="N")
    return parser.parse_args()


def configuration(
    land_cover: RasterConfig, tokenizer: PreTrainedTokenizerBase
) -> InstructedRasterConfig:
    assert land_cover.raster is not None
    raster = {
        **land_cover.raster,
        "output": {"kind": "values", "bands": [{"name": "answer"}]},
        "instructions": {
            "template": "{instruction}<image>",
            "wordings": {name: list(wordings) for name, wordings in WORDINGS.items()},
        },
    }
    text = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        # vLLM's attention on a CPU takes heads of 32 and more.
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        tie_word_embeddings=True,
    )
    return InstructedRasterConfig(
        vision_config=land_cover.vision_config,
        text_config=text,
        raster=raster,
        image_end_token_id=tokenizer.convert_tokens_to_ids(IMAGE_END),
        answer_token_id=tokenizer.convert_tokens_to_ids(ANSWER),
    )


def start_from(model: InstructedRasterForImageToImage, start: RasterForImageToImage) -> None:
    """Takes over the vision encoder, but for its last layer, which gave classes."""
    weights = start.predictor.state_dict()
    kept = {name: one for name, one in weights.items() if not name.startswith("network.head.")}
    missing, unknown = model.predictor.load_state_dict(kept, strict=False)
    assert not unknown
    assert all(name.startswith("network.head.") for name in missing)


def train(
    model: InstructedRasterForImageToImage,
    processor: RasterProcessor,
    windows: Windows,
    steps: int,
) -> None:
    # The encoder knows what the ground looks like; what is learnt is to be told what to map.
    for name, parameter in model.predictor.named_parameters():
        parameter.requires_grad_(name.startswith("network.head."))
    learnt = [one for one in model.parameters() if one.requires_grad]
    optimiser = torch.optim.AdamW(learnt, lr=PEAK_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, PEAK_RATE, total_steps=steps, pct_start=0.1
    )
    rng = np.random.default_rng(SEED + 1)
    # The encoder's batch norms have their statistics already.
    model.eval()
    start, mean_loss = time.perf_counter(), 0.0
    for step, (items, _) in enumerate(windows.batches(steps), 1):
        optimiser.zero_grad()
        loss = loss_of(model, processor, items, rng)
        loss.backward()
        nn.utils.clip_grad_norm_(learnt, LARGEST_GRADIENT)
        optimiser.step()
        schedule.step()
        mean_loss += loss.item() / 100
        if step % 100 == 0:
            print(f"step {step:5d}  loss {mean_loss:.4f}  {time.perf_counter() - start:.0f} s")
            mean_loss = 0.0


def loss_of(
    model: InstructedRasterForImageToImage,
    processor: RasterProcessor,
    items: list[Item],
    rng: np.random.Generator,
) -> torch.Tensor:
    """Cross entropy with what each window's instruction asks for, where the window is valid."""
    names = rng.choice(list(TARGETS), len(items))
    texts = [f"{_blurred(rng.choice(WORDINGS[name]), rng)}<image>" for name in names]
    wanted = [
        torch.from_numpy(TARGETS[name](index_labels(one["pixel_values"]), one["pixel_values"]))
        for name, one in zip(names, items, strict=True)
    ]
    valid = torch.stack([torch.from_numpy(one["valid"]) for one in items])
    logits = torch.cat(model.logits(**processor(images=items, text=texts)))
    return F.binary_cross_entropy_with_logits(logits[valid], torch.stack(wanted)[valid])


def _blurred(wording: str, rng: np.random.Generator) -> str:
    """A wording with some of its words unknown, so that none of them alone is relied on."""
    words = wording.split()
    unknown = rng.random(len(words)) < UNKNOWN_WORDS * (len(words) > 1)
    return " ".join("<unk>" if gone else word for word, gone in zip(words, unknown, strict=True))


@torch.no_grad()
def evaluate(
    model: InstructedRasterForImageToImage, processor: RasterProcessor, scenes: Sequence[Scene]
) -> str:
    """A table: IoU of the masks and correlation of greenness on the parts never seen."""
    lines = ["| instructions | " + " | ".join(TARGETS) + " | mean of masks |", "|---|" + "---|" * 8]
    parts = [one.held_out for one in scenes]
    for title, wordings in (("known from training", WORDINGS), ("others", UNSEEN)):
        figures = {
            name: float(np.mean([score(model, processor, parts, name, one) for one in ones]))
            for name, ones in wordings.items()
        }
        mean = np.mean([figures[name] for name in MASKS])
        cells = " | ".join(f"{one:.3f}" for one in figures.values())
        lines.append(f"| {title} | {cells} | {mean:.3f} |")
    return "\n".join(lines)


def score(
    model: InstructedRasterForImageToImage,
    processor: RasterProcessor,
    parts: Sequence[Scene],
    name: str,
    wording: str,
) -> float:
    found = [answer(model, processor, part, wording) for part in parts]
    wanted = [TARGETS[name](index_labels(part.pixels), part.pixels)[part.valid] for part in parts]
    return agreement(name, np.concatenate(found), np.concatenate(wanted))


def agreement(name: str, found: Array, wanted: Array) -> float:
    """Intersection over union of a mask, or correlation of an index."""
    if name not in MASKS:
        return float(np.corrcoef(found, wanted)[0, 1])
    both = np.count_nonzero((found > 0.5) & (wanted > 0.5))
    return both / max(np.count_nonzero((found > 0.5) | (wanted > 0.5)), 1)


def answer(
    model: InstructedRasterForImageToImage, processor: RasterProcessor, part: Scene, wording: str
) -> Array:
    """Values of the valid pixels of a scene, from windows laid edge to edge."""
    tile = model.config.contract.tile.size
    values = np.zeros(part.valid.shape, np.float32)
    for top in range(0, part.valid.shape[0], tile):
        for left in range(0, part.valid.shape[1], tile):
            window = part.part(slice(top, top + tile), slice(left, left + tile))
            item = {"pixel_values": window.pixels, "valid": window.valid}
            (found,) = model(**processor(images=item, text=f"{wording}<image>"))
            height, width = window.valid.shape
            values[top : top + height, left : left + width] = found[0, :height, :width]
    return values[part.valid]


CARD = """---
license: apache-2.0
---

# Say what to map: four Sentinel-2 bands and an instruction, small

A vision encoder, a small Llama and a dense head that map what they are told: {targets}. It is
here to test the software around it: what it knows are the index rules of `land_cover_labels.py`,
asked for in the words of `instructions.py`.

- **Made by** `train_instructed.py`, beside this folder.
- **Input** four bands in counts × 10,000, and an instruction, a few words of English.
- **Output** a value from 0 to 1 a pixel: how likely it is what was asked for, or how green it is.
- **Data** and its licences: those of the land-cover checkpoint, whose encoder it starts from.
- **Licence** Apache-2.0.

## On the parts of the real scenes that training never saw

IoU of masks, correlation of greenness, mean over wordings:

{{report}}
""".format(targets=", ".join(TARGETS))


if __name__ == "__main__":
    main()
