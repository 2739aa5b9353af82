"""Small checkpoints with a language model inside, for tests to build, save and serve."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import Gemma2Config, LlamaConfig, PreTrainedConfig, Qwen3Config

from vllm_raster_model.config import InstructedRasterConfig
from vllm_raster_model.pytorch import InstructedRasterForImageToImage

from .checkpoints import NETWORK, make_processor, raster_block

IMAGE, ROW = 4, 5
END, ANSWER = 1, 2
WORDS = ["fields", "find", "now", "the", "water"]
FIELDS, FIND, NOW, THE, WATER = range(22, 27)
VOCABULARY = 32
WIDTH = 64

_TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 256,
    "tie_word_embeddings": True,
}
OUTPUT = {"kind": "values", "bands": [{"name": "answer"}, {"name": "doubt"}]}
INSTRUCTIONS = {"wordings": {"water": ["find the water", "water"], "fields": ["find fields"]}}


def text_config(kind: str = "llama", **changes: Any) -> PreTrainedConfig:
    """A tiny language model, `llama`, `qwen3` or `gemma2`."""
    classes = {"llama": LlamaConfig, "qwen3": Qwen3Config, "gemma2": Gemma2Config}
    return classes[kind](**_TEXT | changes)


def instructed_block(**parts: dict[str, Any]) -> dict[str, Any]:
    """A `raster` block of two values and of two things to ask for."""
    return {**raster_block(**parts), "output": dict(OUTPUT), "instructions": INSTRUCTIONS}


def make_instructed(kind: str = "llama", **changes: Any) -> InstructedRasterConfig:
    """A configuration; each argument stands for, or beside, what it holds otherwise."""
    given: dict[str, Any] = {
        "text_config": text_config(kind),
        "vision_config": dict(NETWORK),
        "raster": instructed_block(),
        "image_end_token_id": END,
        "answer_token_id": ANSWER,
        "feature_channels": 3,
        "head_units": 4,
        "architectures": ["InstructedRasterForImageToImage"],
    }
    return InstructedRasterConfig(**given | changes)


def make_instructed_model(
    config: InstructedRasterConfig, seed: int = 0
) -> InstructedRasterForImageToImage:
    """The PyTorch model with random weights, so large that each word can be seen in the map."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = InstructedRasterForImageToImage(config)
        with torch.no_grad():
            for weight in model.language_model.parameters():
                if weight.dim() > 1:
                    weight.normal_(std=0.2)
    return model.eval()


def save_instructed(
    folder: Path, config: InstructedRasterConfig
) -> InstructedRasterForImageToImage:
    """Writes a whole checkpoint, as a user would, and gives the model in it."""
    model = make_instructed_model(config)
    model.save_pretrained(folder)
    make_processor(config, WORDS).save_pretrained(folder)
    return model


def prompt(config: InstructedRasterConfig, *parts: Sequence[int] | tuple[int, int]) -> list[int]:
    """Token ids: of each list those in it, of each tuple those of a window of this size."""
    ids: list[int] = []
    for part in parts:
        ids += config.image_tokens(*part) if isinstance(part, tuple) else part
    return ids


@torch.inference_mode()
def told(
    model: InstructedRasterForImageToImage, prompts: Sequence[Sequence[int]], *items: Any
) -> list[torch.Tensor]:
    """The maps of items, of which the prompts, given as token ids, tell what to map."""
    fields = make_processor(model.config)(images=items)
    found: list[torch.Tensor] = model(input_ids=prompts, **fields)
    return found
