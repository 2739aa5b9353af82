"""Makes adapters as PEFT saves them, without PEFT, and adds them to a model's weights."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel

PREFIX = "base_model.model."
WORDS = "embed_tokens"
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", WORDS)


def targeted(model: nn.Module, targets: Sequence[str]) -> Iterator[tuple[str, nn.Module]]:
    """The modules that an adapter with these target modules has weights for, by name."""
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in targets:
            yield name, module


def write_adapter(
    folder: Path,
    model: nn.Module,
    *,
    targets: Sequence[str] = TARGETS,
    rank: int = 4,
    alpha: int = 6,
    spread: float = 0.3,
    seed: int = 0,
) -> Path:
    """Writes an adapter with random weights; gives back its folder."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, module in targeted(model, targets):
        outputs, inputs = module.weight.shape
        ends = ("lora_A.weight", "lora_B.weight")
        if isinstance(module, nn.Embedding):
            ends = ("lora_embedding_A", "lora_embedding_B")
            outputs, inputs = inputs, outputs
        for end, shape in zip(ends, ((rank, inputs), (outputs, rank)), strict=True):
            weights[f"{PREFIX}{name}.{end}"] = spread * torch.randn(shape, generator=generator)
    save_adapter(folder, weights, rank=rank, alpha=alpha)
    return folder


def save_adapter(
    folder: Path, weights: dict[str, torch.Tensor], *, rank: int = 4, alpha: int = 6
) -> None:
    folder.mkdir(parents=True)
    save_file(weights, folder / "adapter_model.safetensors")
    targets = sorted({name.split(".lora_")[0].rpartition(".")[2] for name in weights})
    config = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": alpha,
        "target_modules": targets,
        "bias": "none",
        "modules_to_save": None,
        "inference_mode": True,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))


@torch.no_grad()
def merge(model: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """Adds an adapter to the weights of a model, in place; gives the model back."""
    weights = load_file(folder / "adapter_model.safetensors")
    config = json.loads((folder / "adapter_config.json").read_text())
    scale = config["lora_alpha"] / config["r"]
    for name, module in targeted(model, config["target_modules"]):
        if isinstance(module, nn.Embedding):
            down, up = (weights[f"{PREFIX}{name}.lora_embedding_{one}"] for one in "AB")
            module.weight += scale * (up @ down).T
        else:
            down, up = (weights[f"{PREFIX}{name}.lora_{one}.weight"] for one in "AB")
            module.weight += scale * (up @ down)
    return model
