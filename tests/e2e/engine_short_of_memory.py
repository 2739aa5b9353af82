"""Has an engine put prompts off halfway, for want of memory, and read them again; writes json.

A script of its own, run by test_instructed.py: an engine ends with its process.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

# In this process, where what is put off can be counted.
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"

import numpy as np
import torch
from transformers import AutoProcessor
from vllm import LLM
from vllm.v1.core.sched.scheduler import Scheduler

from vllm_raster_model.pytorch import InstructedRasterForImageToImage

WORDS = ["trees", "find bare ground", "how green is it", "houses", "water and shadow", "grass"]
PROMPTS = 24


def count_put_off() -> list[int]:
    """A list that gets, of each prompt that is put off, how many of its tokens were read."""
    found: list[int] = []
    put_off = Scheduler._preempt_request

    def counted(self: Any, request: Any, *rest: Any, **named: Any) -> Any:
        found.append(request.num_computed_tokens)
        return put_off(self, request, *rest, **named)

    Scheduler._preempt_request = counted
    return found


def main(checkpoint: str, out: str) -> None:
    put_off = count_put_off()
    # Chunks of 31 tokens of many prompts at once, and memory for 20 blocks of 32.
    llm = LLM(
        checkpoint,
        max_num_batched_tokens=300,
        long_prefill_token_threshold=31,
        scheduler_reserve_full_isl=False,
        kv_cache_memory_bytes=330_000,
        block_size=32,
    )
    generator = np.random.default_rng(0)
    asked: list[dict[str, Any]] = [
        {
            "prompt": f"{WORDS[i % len(WORDS)]}<image>",
            "multi_modal_data": {
                "image": {
                    "pixel_values": generator.integers(100, 4000, (4, 128, 128)).astype(np.uint16)
                }
            },
        }
        for i in range(PROMPTS)
    ]
    outputs = llm.encode(asked, pooling_task="token_classify", use_tqdm=False)
    model = InstructedRasterForImageToImage.from_pretrained(checkpoint).eval()
    processor = AutoProcessor.from_pretrained(checkpoint)
    differences = []
    for one, output in zip(asked, outputs, strict=True):
        with torch.inference_mode():
            (right,) = model(**processor(one["multi_modal_data"]["image"], one["prompt"]))
        differences.append(float((output.outputs.data - right).abs().max()))
    Path(out).write_text(json.dumps({"put_off": put_off, "difference": max(differences)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
