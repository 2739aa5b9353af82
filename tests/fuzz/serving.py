"""Cases through the hooks of the IO processor, with a made-up engine between them."""

import base64
import io
import os
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from rasterio.io import MemoryFile

from vllm_raster_io import plugin
from vllm_raster_io.errors import RasterIOError
from vllm_raster_io.plugin import RasterIOProcessor

from ..io_plugin.networks import PixelNetwork
from ..io_plugin.scenes import raster_block

LIMITS = {
    "PIXELS": 3200 * 3200,
    "BYTES": 2**26,
    "BLOCK_BYTES": 2**26,
    "SCORE_BYTES": 2**27,
}
"""Limits of a server that has 1 GiB."""

ANSWERED = "answered"
_IMAGE_TOKEN = 5
_CONTRACTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("classes", {"size": 512, "overlap": 32}),
    ("values", {"size": 512, "bands": ("RED", "GREEN", "BLUE"), "channels": 1, "upscale": 2}),
    ("classes", {"size": 256, "bands": ("GRAY",), "frames": 3, "downscale": 16,
                 "coordinates": ("time", "location")}),
    ("image", {"size": 512, "bands": ("BLUE",), "channels": 2}),
)  # fmt: skip


class _Tokenizer:
    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return [10 + int(text, 16)]


def prepare() -> None:
    """Makes this process one that has 1 GiB and no server."""
    os.environ |= {f"VLLM_RASTER_MAX_{name}": str(most) for name, most in LIMITS.items()}
    warnings.simplefilter("ignore")
    plugin.keep_event_loop_free = lambda: None


def processors() -> list[RasterIOProcessor]:
    """Processors of different checkpoints."""
    return [_processor(raster_block(kind, **block)) for kind, block in _CONTRACTS]


def _processor(raster: dict[str, Any]) -> RasterIOProcessor:
    config = SimpleNamespace(raster=raster, image_token_id=_IMAGE_TOKEN)
    vllm_config: Any = SimpleNamespace(
        model_config=SimpleNamespace(hf_config=config),
        scheduler_config=SimpleNamespace(policy="priority"),
    )
    tokenizer = _Tokenizer()
    renderer: Any = SimpleNamespace(tokenizer=tokenizer, get_tokenizer=lambda: tokenizer)
    return RasterIOProcessor(vllm_config, renderer)


def outcome(processor: RasterIOProcessor, request: Any) -> str:
    """What becomes of a request: answered, or the kind of refusal.

    Raises:
        Exception: It is neither.
    """
    try:
        answer = _served(processor, request)
    except RasterIOError as error:
        message = str(error)
        assert 10 < len(message) < 2000, f"a message of {len(message)} characters"
        message.encode()  # it must be possible to send it
        return type(error).__name__
    finally:
        _forget(processor)
    _check(answer)
    return ANSWERED


def _served(processor: RasterIOProcessor, request: Any) -> Any:
    prompts = processor.pre_process(processor.parse_data(request))
    network = PixelNetwork(processor.contract)
    outputs = []
    for prompt in prompts:
        image = prompt["multi_modal_data"]["image"]  # type: ignore[index, typeddict-item, call-overload]
        pixels, valid = np.asarray(image["pixel_values"]), np.asarray(image["valid"])
        assert pixels.shape == image["pixel_values"].shape, "another shape than was said"
        assert pixels.dtype == image["pixel_values"].dtype, "another type than was said"
        assert valid.shape == pixels.shape[-2:]
        outputs.append(_output(prompt, network(image)))
    return processor.post_process(outputs, "an id")


def _output(prompt: Any, scores: np.ndarray) -> Any:
    return SimpleNamespace(
        prompt_token_ids=[*[_IMAGE_TOKEN] * 4, *prompt["prompt_token_ids"][1:]],
        outputs=SimpleNamespace(data=torch.from_numpy(scores)),
    )


def _forget(processor: RasterIOProcessor) -> None:
    """Lets go of a job that was not answered, as the next request would."""
    pending = processor._pending
    for key in list(pending._jobs):
        pending._drop(key)


def _check(answer: Any) -> None:
    answer.model_dump_json()
    content = base64.b64decode(answer.data)
    if content.startswith(b"\x93NUMPY"):
        assert np.load(io.BytesIO(content)).shape[-2:] == (answer.height, answer.width)
        return
    with MemoryFile(content) as memory, memory.open() as dataset:
        assert dataset.shape == (answer.height, answer.width)
