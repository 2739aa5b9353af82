"""Adapters (LoRA) without an engine: what vLLM is told of them, which it gets, which it refuses."""

import copy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from vllm.lora.layers import LoRAMapping
from vllm.lora.lora_model import LoRAModel
from vllm.lora.peft_helper import PEFTHelper
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU
from vllm.lora.utils import get_supported_lora_modules
from vllm.model_executor.models.interfaces import supports_lora
from vllm.model_executor.utils import get_packed_modules_mapping

from vllm_raster_model import engine_defaults
from vllm_raster_model.errors import WeightsError
from vllm_raster_model.instructed import InstructedRasterForImageToImage
from vllm_raster_model.plain import RasterForImageToImage

from ..adapters import PREFIX, TARGETS, WORDS, merge, save_adapter, targeted, write_adapter
from .instructed import FIND, VOCABULARY, WATER, prompt, told
from .items import EVERYWHERE, window
from .serving import InstructedServing, engine_config

LAYER = "language_model.layers.1.self_attn.q_proj"


def test_what_vllm_takes_it_for(serving: InstructedServing) -> None:
    assert supports_lora(InstructedRasterForImageToImage)
    assert supports_lora(serving.model)
    assert not supports_lora(RasterForImageToImage)


def test_language_model_says_what_is_joined(serving: InstructedServing) -> None:
    model = serving.model
    assert get_packed_modules_mapping(model) == type(model.language_model).packed_modules_mapping
    assert model.embedding_modules == type(model.language_model).embedding_modules


def test_language_model_alone_is_adapted(serving: InstructedServing) -> None:
    model, parts = serving.model, serving.model.get_mm_mapping()
    assert parts.language_model == ["language_model"]
    assert parts.tower_model + parts.connector == model._tower_model_names
    assert not model.supports_tower_connector_lora
    named = {name for name, _ in model.named_children()}
    assert named == {"language_model", "predictor", "projector", "head", "pooler"}


def load(model: InstructedRasterForImageToImage, folder: Path) -> LoRAModel:
    """Reads an adapter as vLLM's worker does."""
    joined = get_packed_modules_mapping(model)
    expected: set[str] = set()
    for one in get_supported_lora_modules(model):
        expected |= set(joined.get(one, [one]))
    config = PEFTHelper.from_local_dir(str(folder), None)
    return LoRAModel.from_local_checkpoint(
        str(folder),
        expected,
        config,
        lora_model_id=1,
        device="cpu",
        weights_mapper=model.hf_to_vllm_mapper.get_rename_mapper(),
    )


def test_every_layer_is_found(serving: InstructedServing, tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "adapter", serving.in_pytorch)
    loras = load(serving.model, folder).loras
    modules = dict(targeted(serving.in_pytorch, TARGETS))
    assert len(modules) == 2 * 7 + 1
    assert len(loras) == len(modules)
    merged = merge(copy.deepcopy(serving.in_pytorch), folder)
    joined = get_packed_modules_mapping(serving.model)
    served = dict(serving.model.named_modules())
    for name, before in modules.items():
        theirs = name.replace("language_model.", "language_model.model.", 1)
        lora = loras[theirs]
        lora.optimize()
        added = lora.lora_b @ lora.lora_a
        added = added.T if name.endswith(WORDS) else added
        torch.testing.assert_close(added, merged.get_submodule(name).weight - before.weight)
        parent, _, last = theirs.rpartition(".")
        (found,) = [key for key, ones in joined.items() if last in ones] or [last]
        assert f"{parent}.{found}" in served


NOT_THERE = "which the language model does not have"
UNKNOWN = {
    "predictor.network.encoder.blocks.0.attn.qkv": "a part of the vision encoder",
    "projector.linear": "the projector",
    "head.weights": "a part of the dense head",
    # Of a deeper language model, of another path to it, of its read-out into words.
    "language_model.layers.7.self_attn.q_proj": NOT_THERE,
    "language_model.layers.1.self_attn.qkv_proj": NOT_THERE,
    "language_model.model.layers.1.self_attn.q_proj": NOT_THERE,
    "model.layers.1.self_attn.q_proj": NOT_THERE,
    "layers.1.self_attn.q_proj": NOT_THERE,
    "language_model.lm_head": NOT_THERE,
    "language_model.layers.1.self_attnXq_proj": NOT_THERE,
    f"x.{LAYER}": NOT_THERE,
}


def save_loras(folder: Path, *names: str) -> None:
    weights = {
        f"{name}.lora_{end}.weight": torch.ones(shape)
        for name in names
        for end, shape in (("A", (4, 64)), ("B", (64, 4)))
    }
    save_adapter(folder, weights)


@pytest.mark.parametrize("name", UNKNOWN)
@pytest.mark.parametrize("prefix", [PREFIX, ""])
def test_refuses_what_is_not_there(
    llama: InstructedServing, name: str, prefix: str, tmp_path: Path
) -> None:
    save_loras(tmp_path / "adapter", f"{prefix}{LAYER}", f"{prefix}{name}")
    targets = sorted(set(TARGETS) - {WORDS})
    message = f"weights for {name!r}, {UNKNOWN[name]}. An adapter .* target_modules={targets}, or"
    with pytest.raises(WeightsError, match=message.replace("[", r"\[")):
        load(llama.model, tmp_path / "adapter")


def test_refuses_whole_weights(llama: InstructedServing, tmp_path: Path) -> None:
    save_adapter(tmp_path / "adapter", {f"{PREFIX}head.weights.bias": torch.ones(3)})
    message = "weights for 'head.weights.bias', which it was to replace as a whole"
    with pytest.raises(WeightsError, match=message):
        load(llama.model, tmp_path / "adapter")


def test_adapters_are_kept_in_float32(llama: InstructedServing) -> None:
    config = engine_config(llama.checkpoint, enable_lora=True)
    assert config.lora_config.lora_dtype == torch.float32


def test_refuses_adapters_where_vllm_cannot_apply_them(
    llama: InstructedServing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_defaults, "current_platform", SimpleNamespace(is_cpu=lambda: False))
    assert engine_config(llama.checkpoint).lora_config is None
    # The engine's configuration wraps what is raised while it is made.
    with pytest.raises(ValueError, match="LoRA adapters in float32 on a CPU only"):
        engine_config(llama.checkpoint, enable_lora=True)


@pytest.mark.parametrize("adapters", [1, 2])
def test_tokens_without_an_adapter_are_left_alone(llama: InstructedServing, adapters: int) -> None:
    """Also where no place for an adapter is empty, on which vLLM's own kernels rely."""
    generator = torch.Generator().manual_seed(3)
    wrapper = PunicaWrapperCPU(8, 8, "cpu")
    of_tokens = (0, adapters, adapters, 0, 1)
    wrapper.update_metadata(
        LoRAMapping(of_tokens, of_tokens, is_prefill=True),
        list(range(1, adapters + 1)),
        adapters + 1,
        VOCABULARY,
    )
    x, y = torch.randn(5, 6, generator=generator), torch.randn(5, 4, generator=generator)
    down = torch.randn(adapters, 1, 3, 6, generator=generator)
    up = torch.randn(adapters, 1, 4, 3, generator=generator)
    added = torch.stack(
        [up[one - 1, 0] @ down[one - 1, 0] @ x[i] * bool(one) for i, one in enumerate(of_tokens)]
    )
    found = y.clone()
    wrapper.add_lora_linear(found, x, (down,), (up,), 1.0, (4,))
    torch.testing.assert_close(found, y + added)
    found, ranks = y.clone(), torch.randn(5, 3, generator=generator)
    wrapper.add_lora_embedding(found, ranks, up, add_inputs=True)
    added = torch.stack([up[one - 1, 0] @ ranks[i] * bool(one) for i, one in enumerate(of_tokens)])
    torch.testing.assert_close(found, y + added)


def test_an_adapter_changes_the_map(serving: InstructedServing, tmp_path: Path) -> None:
    """That of plain PyTorch, with which the end-to-end tests compare the engine."""
    item = window(16, 24) | EVERYWHERE
    ids = [prompt(serving.config, [FIND, WATER], (16, 24))]
    merged = copy.deepcopy(serving.in_pytorch)
    assert isinstance(merged, nn.Module)
    (before,) = told(merged, ids, item)
    merge(merged, write_adapter(tmp_path / "adapter", merged))
    (after,) = told(merged, ids, item)
    assert float((after - before).abs().max()) > 0.01
