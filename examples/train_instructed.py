"""Teaches an instructed checkpoint on a folder of GeoTIFFs with masks.

    python examples/train_instructed.py FOLDER OUT [--start CHECKPOINT] [--steps N]

The folder holds

    images/NAME.tif            the bands that the checkpoint takes, in its order
    masks/TARGET/NAME.tif      what is to be found there: 0 to 1, of the image's size
    wordings.json              {"TARGET": ["how it may be asked for", ...], ...}

An image need not have a mask for every target. Where it is invalid, or its mask is NaN or nodata
other than 0 and 1, nothing is learnt. Words that are new to the checkpoint are added to it. OUT is
what `vllm serve` starts.
"""

import argparse
import json
from collections import deque
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from mask_folder import Example, MaskFolder
from torch.utils.data import DataLoader
from transformers import get_cosine_schedule_with_warmup

from vllm_raster_model import InstructedRasterConfig, RasterProcessor, with_words
from vllm_raster_model.pytorch import InstructedRasterForImageToImage

CHECKPOINT = Path(__file__).resolve().parents[1] / "tests" / "checkpoints" / "instructed"
STEPS_OF_THE_MEAN = 50


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


def learn_words(
    model: InstructedRasterForImageToImage,
    processor: RasterProcessor,
    wordings: dict[str, list[str]],
) -> None:
    """Adds what the tokenizer lacks of the wordings, and of the template around them, in place."""
    instructions = model.config.contract.instructions
    around = instructions.template.replace("{instruction}", " ")
    known = processor.tokenizer
    told = [one for ones in wordings.values() for one in ones]
    processor.tokenizer = with_words(known, [around, *told])
    if new := sorted(processor.tokenizer.get_vocab().keys() - known.get_vocab().keys()):
        print(f"New words: {', '.join(new)}")
    if len(processor.tokenizer) > model.config.vocab_size:
        model.resize_token_embeddings(len(processor.tokenizer))
    targets = dict[tuple[int, ...], str]()
    for target, ones in wordings.items():
        if target in instructions.wordings:
            print(f"The wordings of {target!r} replace those that the checkpoint names")
        for one in ones:
            other = targets.setdefault(tuple(processor.tokenizer(one)["input_ids"]), target)
            if other != target:
                raise SystemExit(
                    f"{one!r}, for {target!r}, has the tokens of a wording for {other!r}: the "
                    "checkpoint cannot tell them apart"
                )
    model.config.raster["instructions"]["wordings"].update(wordings)


def load(start: Path) -> tuple[InstructedRasterForImageToImage, RasterProcessor]:
    config = start / "config.json"
    if not config.is_file():
        raise SystemExit(f"{config} is missing: --start must be the folder of a checkpoint")
    kind, wanted = json.loads(config.read_text()).get("model_type"), InstructedRasterConfig
    if kind != wanted.model_type:
        raise SystemExit(
            f"{config} has the model_type {kind!r}, which is not told what to map: --start must be "
            f"a checkpoint of {wanted.model_type!r}"
        )
    # As it will be served, whatever the weights are stored in.
    model = InstructedRasterForImageToImage.from_pretrained(start, dtype=torch.float32)
    return model.eval(), RasterProcessor.from_pretrained(start)


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1, got {text!r}")
    return int(text)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="with images, masks and wordings.json")
    parser.add_argument("out", type=Path, help="folder to write the checkpoint to")
    parser.add_argument("--start", type=Path, default=CHECKPOINT, help="checkpoint to go on from")
    parser.add_argument("--steps", type=positive, default=500, help="batches to learn from (500)")
    parser.add_argument("--batch", type=positive, default=8, help="windows in a batch (8)")
    parser.add_argument(
        "--side",
        type=positive,
        help="of a window, in pixels (64, or the checkpoint's largest, where that is less)",
    )
    parser.add_argument(
        "--rate", type=float, default=5e-4, help="of learning, at its peak (0.0005)"
    )
    parser.add_argument(
        "--mask-scale",
        type=float,
        default=1,
        help="what stands for 1 in the masks, such as 255: they are divided by it (1)",
    )
    options = parser.parse_args()
    if not 0 < options.mask_scale < np.inf:
        parser.error(f"--mask-scale must be above 0, got {options.mask_scale:g}")
    return options


def main() -> None:
    options = arguments()
    torch.manual_seed(0)
    model, processor = load(options.start)
    contract = model.config.contract
    side = options.side or min(64, contract.tile.size)
    if side > contract.tile.size:
        raise SystemExit(f"--side may be {contract.tile.size} for this checkpoint, got {side}")
    examples = MaskFolder(
        options.folder,
        contract.input,
        side=side,
        length=options.steps * options.batch,
        scale=options.mask_scale,
    )
    learn_words(model, processor, examples.wordings)
    optimiser = torch.optim.AdamW(model.parameters(), lr=options.rate)
    schedule = get_cosine_schedule_with_warmup(optimiser, options.steps // 10, options.steps)
    last = deque[float](maxlen=STEPS_OF_THE_MEAN)
    for step, batch in enumerate(DataLoader(examples, options.batch, collate_fn=list), 1):
        loss = loss_of(model, processor, contract.instructions.template, batch)
        if not torch.isfinite(loss):
            raise SystemExit(
                f"The loss is {loss.item()} at step {step}, nothing is written: try a --rate below "
                f"{options.rate:g}"
            )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        last.append(loss.item())
        if step % 10 == 0 or step == options.steps:
            mean = np.mean(last)
            print(f"step {step} of {options.steps}, loss {mean:.4f} (mean of {len(last)} steps)")
    model.save_pretrained(options.out)
    processor.save_pretrained(options.out)


if __name__ == "__main__":
    main()
