"""IO processors with a made-up engine behind them."""

import base64
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from rasterio.io import MemoryFile

from vllm_raster_io.answers import RasterAnswer
from vllm_raster_io.plugin import RasterIOProcessor

from .networks import PixelNetwork
from .scenes import Array, raster_block

IMAGE_TOKEN = 5
DIGIT_IDS = {digit: 10 + i for i, digit in enumerate("0123456789abcdef")}


class Tokenizer:
    def __init__(self, ids: dict[str, list[int]] | None = None) -> None:
        self._ids = {digit: [token] for digit, token in DIGIT_IDS.items()} | (ids or {})

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return self._ids[text]


def make_processor(
    kind: str = "classes",
    *,
    tokenizer: Tokenizer | None = None,
    policy: str = "fcfs",
    windows: int = 1,
    **block: Any,
) -> RasterIOProcessor:
    config = SimpleNamespace(
        raster=raster_block(kind, **block), image_token_id=IMAGE_TOKEN, max_images=windows
    )
    return processor_of(config, tokenizer or Tokenizer(), policy)


def processor_of(
    config: object, tokenizer: Tokenizer | None, policy: str = "fcfs"
) -> RasterIOProcessor:
    vllm_config: Any = SimpleNamespace(
        model_config=SimpleNamespace(hf_config=config),
        scheduler_config=SimpleNamespace(policy=policy),
    )
    renderer: Any = SimpleNamespace(tokenizer=tokenizer)
    return RasterIOProcessor(vllm_config, renderer)


class Engine:
    """Answers prompts one by one, as vLLM does: with the tokens that the image became before.

    Args:
        processor: Whose prompts they are.
        several: Whether the maps of all images are asked for.
    """

    def __init__(self, processor: RasterIOProcessor, *, several: bool = False) -> None:
        self._network = PixelNetwork(processor.contract)
        self._several = several

    def __call__(self, prompt: Any) -> Any:
        ids, images = prompt["prompt_token_ids"], prompt["multi_modal_data"]["image"]
        key = ids[-8:]
        if self._several:
            images = images if isinstance(images, list) else [images]
            assert ids[:-8] == [IMAGE_TOKEN, DIGIT_IDS["0"]] * (len(images) - 1) + [IMAGE_TOKEN]
            assert len(prompt["multi_modal_uuids"]["image"]) == len(images)
            scores = np.stack([self._network(one) for one in images])
        else:
            assert ids[:-8] == [IMAGE_TOKEN]
            scores = self._network(images)
        return SimpleNamespace(
            prompt_token_ids=[IMAGE_TOKEN] * 16 + [6, 1, *key],
            outputs=SimpleNamespace(data=torch.from_numpy(scores)),
        )


def pixels_of(answer: RasterAnswer) -> Array:
    with MemoryFile(base64.b64decode(answer.data)) as memory, memory.open() as dataset:
        return dataset.read()
