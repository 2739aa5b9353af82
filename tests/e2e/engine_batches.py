"""Compares windows alone, in a batch, and in plain PyTorch; writes differences as json.

A script of its own, run by test_offline.py: an engine ends with its process.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoProcessor
from vllm import LLM, PoolingParams

from vllm_raster_model.pytorch import RasterForImageToImage

SIZES = [(128, 128), (64, 96), (96, 64), (16, 128), (33, 50), (128, 128), (5, 100), (1, 1)]
PLACES = [(52.5, 13.4), (-33.9, 151.2), (0.0, -78.5), None, (64.1, -21.9), (-52.5, -70.0)]

Item = dict[str, Any]


def items() -> list[Item]:
    generator = np.random.default_rng(0)
    made: list[Item] = []
    for i, (height, width) in enumerate(SIZES):
        pixels = generator.integers(100, 4000, (4, height, width)).astype(np.uint16)
        item: Item = {"pixel_values": pixels}
        if (place := PLACES[i % len(PLACES)]) is not None:
            item["location_coords"] = place
        if i % 3 == 1:
            item["valid"] = generator.random((height, width)) > 0.1
        made.append(item)
    # The same pixels at two places.
    made.append({**made[0], "location_coords": (-60.0, 170.0)})
    return made


def prompt(item: Item, **start: Any) -> dict[str, Any]:
    return {**(start or {"prompt": "<image>"}), "multi_modal_data": {"image": item}}


def together(items: list[Item], image_id: int) -> dict[str, Any]:
    """Windows that share a prompt, as the IO processor sends those of a scene."""
    ids = [image_id, 7] * len(items)
    return {"prompt_token_ids": ids, "multi_modal_data": {"image": items}}


def difference(first: list[torch.Tensor], second: list[torch.Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(first, second, strict=True))


def main(checkpoint: str, out: str) -> None:
    llm = LLM(checkpoint)
    windows = items()

    def scores(prompts: list[dict[str, Any]], **asked: Any) -> list[torch.Tensor]:
        params = PoolingParams(task="token_classify", extra_kwargs=asked)
        outputs = llm.encode(prompts, params, pooling_task="token_classify", use_tqdm=False)
        return [one.outputs.data for one in outputs]

    batch = scores([prompt(one) for one in windows])
    alone = [scores([prompt(one)])[0] for one in windows]
    image_id = llm.llm_engine.model_config.hf_config.image_token_id
    by_ids = scores([prompt(one, prompt_token_ids=[image_id, 7, 8]) for one in windows])
    without = scores([prompt(one, prompt="0a") for one in windows])
    alike = [windows[i] for i in (0, 5, -1)]
    (shared,) = scores([together(alike, image_id)], image="all")
    model = RasterForImageToImage.from_pretrained(checkpoint).eval()
    processor = AutoProcessor.from_pretrained(checkpoint)
    with torch.inference_mode():
        plain = [model(**processor(images=one))[0] for one in windows]
    Path(out).write_text(
        json.dumps(
            {
                "alone_and_in_batch": difference(alone, batch),
                "engine_and_pytorch": difference(plain, batch),
                "two_places": difference(batch[:1], batch[-1:]),
                "shared_and_alone": difference(list(shared), [alone[i] for i in (0, 5, -1)]),
                "token_ids_and_text": max(difference(by_ids, batch), difference(without, batch)),
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
