"""Compares the instructed model in vLLM with itself in plain PyTorch; writes differences as json.

A script of its own, run by test_instructed.py: an engine ends with its process. The third
argument is the most tokens a step of the engine may take.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoProcessor
from vllm import LLM, PoolingParams

from vllm_raster_model.pytorch import InstructedRasterForImageToImage

SIZES = [(128, 128), (64, 96), (96, 64), (33, 50), (5, 100), (1, 1)]
WORDS = ["trees", "find bare ground", "how green is it", "houses", "water and shadow", "grass"]

Item = dict[str, Any]


def items() -> list[Item]:
    generator = np.random.default_rng(0)
    return [
        {
            "pixel_values": generator.integers(100, 4000, (4, *size)).astype(np.uint16),
            "location_coords": (10.0 * i, -20.0 * i),
        }
        for i, size in enumerate(SIZES)
    ]


def prompt(images: Item | list[Item], **start: Any) -> dict[str, Any]:
    return {**start, "multi_modal_data": {"image": images}}


def difference(first: list[torch.Tensor], second: list[torch.Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(first, second, strict=True))


def refusal(ask: Callable[[], Any]) -> str:
    try:
        return f"not refused: {ask()}"
    except ValueError as error:
        return str(error)


def main(checkpoint: str, out: str, budget: str) -> None:
    llm = LLM(checkpoint, max_num_batched_tokens=int(budget))
    tokenizer = llm.get_tokenizer()
    windows = items()

    def values(prompts: list[dict[str, Any]], **asked: Any) -> list[torch.Tensor]:
        params = PoolingParams(task="token_classify", extra_kwargs=asked or None)
        outputs = llm.encode(prompts, params, pooling_task="token_classify", use_tqdm=False)
        return [one.outputs.data for one in outputs]

    texts = [f"{words}<image>" for words in WORDS]
    batch = values([prompt(w, prompt=t) for w, t in zip(windows, texts, strict=True)])
    alone = [values([prompt(w, prompt=t)])[0] for w, t in zip(windows, texts, strict=True)]
    ids = [tokenizer.encode(one) for one in texts]
    by_ids = values([prompt(w, prompt_token_ids=i) for w, i in zip(windows, ids, strict=True)])
    unnamed = values([prompt(w, prompt=t) for w, t in zip(windows, WORDS, strict=True)])
    other = values([prompt(w, prompt="trees<image>") for w in windows[1:2]])
    pair, two = windows[1:3], "water<image>trees<image>"
    first, second = (values([prompt(pair, prompt=two)], image=i)[0] for i in (0, 1))
    (last,) = values([prompt(pair, prompt=two)])
    refused = [
        refusal(lambda: values([prompt(pair, prompt=two)], image=2)),
        refusal(lambda: values([{"prompt": "trees"}])),
    ]
    (again,) = values([prompt(pair, prompt=two)])

    model = InstructedRasterForImageToImage.from_pretrained(checkpoint).eval()
    processor = AutoProcessor.from_pretrained(checkpoint)
    with torch.inference_mode():
        plain = [
            model(**processor(images=w, text=t))[0] for w, t in zip(windows, texts, strict=True)
        ]
        together = model(**processor(images=windows, text=texts))
        plain_pair = model(**processor(images=pair, text=two))
    figures = {
        "alone_and_in_batch": difference(alone, batch),
        "engine_and_pytorch": difference(batch, plain),
        "pytorch_batch": difference(together, plain),
        "token_ids": difference(by_ids, batch),
        "image_not_named": difference(unnamed, batch),
        "two_images": difference([first, second], plain_pair),
        "last_image": difference([last], [second]),
        "after_refusals": difference([again], [last]),
        "another_instruction": difference(other, batch[1:2]),
    }
    Path(out).write_text(json.dumps({"differences": figures, "refusals": refused}))


if __name__ == "__main__":
    main(*sys.argv[1:])
