"""Compares an engine's answers with adapters and without with plain PyTorch's; writes json.

A script of its own, run by test_lora.py: an engine ends with its process. After the checkpoint,
the file to write, the most tokens and the most adapters of a step come the adapters' folders, each
with a checkpoint that it is merged into; then, where the checkpoint has an IO processor, a scene.
"""

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

# In this process, where the steps can be watched.
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"

import numpy as np
import torch
from transformers import AutoProcessor
from vllm import LLM
from vllm.lora.request import LoRARequest
from vllm.v1.worker.lora_model_runner_mixin import LoRAModelRunnerMixin

from vllm_raster_model.pytorch import InstructedRasterForImageToImage

# In 32nds of a tile: the largest prompt is longer than the smaller of the tests' budgets.
SIZES = [(24, 32), (16, 8), (32, 32), (9, 17), (32, 24), (30, 11)]
TIMES = 20
"""How often each prompt comes, of one adapter or another."""
WORDS = ["find trees", "find the water", "where are houses", "fields", "soil", "find water now"]

Maps = list[torch.Tensor]


def prompts(bands: int, tile: int) -> list[dict[str, Any]]:
    generator = np.random.default_rng(0)
    sizes = [(height * tile // 32, width * tile // 32) for height, width in SIZES]
    return [
        {
            "prompt": f"{words}<image>",
            "multi_modal_data": {
                "image": {
                    "pixel_values": generator.integers(100, 4000, (bands, *size)).astype(np.uint16)
                }
            },
        }
        for size, words in zip(sizes, WORDS, strict=True)
    ]


def watch_steps() -> list[set[int]]:
    """A list that gets, of each step of the engine, the adapters of its requests; 0 is none."""
    steps: list[set[int]] = []
    set_active = LoRAModelRunnerMixin._set_active_loras

    def watched(self: Any, by_prompt: tuple[int, ...], *rest: Any, **named: Any) -> None:
        steps.append({int(one) for one in by_prompt})
        set_active(self, by_prompt, *rest, **named)

    LoRAModelRunnerMixin._set_active_loras = watched
    return steps


@torch.inference_mode()
def in_pytorch(checkpoint: str, asked: list[dict[str, Any]]) -> Maps:
    model = InstructedRasterForImageToImage.from_pretrained(checkpoint).eval()
    processor = AutoProcessor.from_pretrained(checkpoint)
    return [
        model(**processor(images=one["multi_modal_data"]["image"], text=one["prompt"]))[0]
        for one in asked
    ]


def difference(first: Maps, second: Maps) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(first, second, strict=True))


def main(checkpoint: str, out: str, budget: str, at_once: str, *rest: str) -> None:
    folders, scene = rest[: len(rest) // 2 * 2], rest[len(rest) // 2 * 2 :]
    adapters = [LoRARequest(Path(one).name, i, one) for i, one in enumerate(folders[::2], start=1)]
    llm = LLM(
        checkpoint, max_num_batched_tokens=int(budget), enable_lora=True, max_loras=int(at_once)
    )
    steps = watch_steps()
    contract = llm.llm_engine.model_config.hf_config.contract
    asked = prompts(len(contract.input.bands), contract.tile.size)

    def maps(adapter: LoRARequest | list[LoRARequest | None] | None, times: int = 1) -> Maps:
        outputs = llm.encode(
            asked * times, pooling_task="token_classify", lora_request=adapter, use_tqdm=False
        )
        return [one.outputs.data for one in outputs]

    plain = [in_pytorch(one, asked) for one in (checkpoint, *folders[1::2])]
    every: list[LoRARequest | None] = [None, *adapters]
    figures: dict[str, Any] = {
        "apart": max(difference(maps(one), right) for one, right in zip(every, plain, strict=True))
    }
    steps.clear()
    order = np.random.default_rng(0).integers(0, len(every), TIMES * len(asked)).tolist()
    mixed = maps([every[i] for i in order], TIMES)
    right = [plain[k][i % len(asked)] for i, k in enumerate(order)]
    figures["together"] = difference(mixed, right)
    figures["adapters_in_a_step"] = max(map(len, steps))
    figures["without_again"] = difference(maps(None), plain[0])
    figures["adapters_differ"] = min(
        float((a - b).abs().max())
        for i, one in enumerate(plain)
        for other in plain[:i]
        for a, b in zip(one, other, strict=True)
    )
    if scene:
        request = {
            "data": base64.b64encode(Path(scene[0]).read_bytes()).decode(),
            "prompt": "water",
        }
        figures["scenes"] = [
            llm.encode({"data": request}, pooling_task="plugin", lora_request=one, use_tqdm=False)[
                0
            ].outputs.data
            for one in every
        ]
    Path(out).write_text(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
