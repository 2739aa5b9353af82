"""The served class with a language model inside: its hooks, its maps.

vLLM's attention needs an engine, so that transformers' language model stands in for vLLM's
where prompts are read; with the engine, the end-to-end tests compare the maps.
"""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import GPT2Config
from vllm.config import set_current_vllm_config
from vllm.model_executor.models.interfaces import is_attention_free, supports_multimodal
from vllm.model_executor.models.interfaces_base import is_pooling_model

from vllm_raster_model.engine import language_model
from vllm_raster_model.errors import RasterModelError
from vllm_raster_model.instructed import InstructedRasterForImageToImage
from vllm_raster_model.plain import RasterForImageToImage

from .checkpoints import CELL, make_processor
from .instructed import FIND, IMAGE, NOW, ROW, VOCABULARY, WATER, WIDTH, told
from .items import EVERYWHERE, mask, window
from .runners import Request, Runner, first_runner, second_runner, step, whole
from .serving import InstructedServing

DETAIL = 3 * CELL * CELL
SIZES = [(16, 24), (9, 17), (32, 32), (16, 24), (1, 1)]
TEXTS = ["find water<image>", "<image>0f", "now", "find <image> 7", "fields"]


def mixed_items() -> list[dict[str, Any]]:
    items = [window(*size, seed=i, **EVERYWHERE) for i, size in enumerate(SIZES)]
    items[1]["valid"] = mask(*SIZES[1])
    del items[3]["temporal_coords"]
    return items


class InTransformers(nn.Module):
    """Transformers' language model behind vLLM's interface: prompts in a row, told by position."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.model.get_input_embeddings()(input_ids)

    @torch.inference_mode()
    def forward(
        self, input_ids: Any, positions: torch.Tensor, between: Any, *, inputs_embeds: torch.Tensor
    ) -> torch.Tensor:
        assert input_ids is None
        assert between is None
        starts = (positions == 0).nonzero().flatten().tolist()
        lengths = np.diff([*starts, len(positions)]).tolist()
        read = [
            self.model(inputs_embeds=one[None]).last_hidden_state[0]
            for one in inputs_embeds.split(lengths)
        ]
        return torch.cat(read)


@pytest.fixture
def stubbed(
    serving: InstructedServing, monkeypatch: pytest.MonkeyPatch
) -> InstructedRasterForImageToImage:
    stub = InTransformers(serving.in_pytorch.language_model)
    monkeypatch.setitem(serving.model._modules, "language_model", stub)
    return serving.model


def test_what_vllm_takes_it_for() -> None:
    served = InstructedRasterForImageToImage
    assert is_pooling_model(served)
    assert supports_multimodal(served)
    assert not is_attention_free(served)
    assert served.get_placeholder_str("image", 1) == "<image>"
    # Never pickles.
    assert served.allow_patterns_overrides == RasterForImageToImage.allow_patterns_overrides


def test_parts_that_vllm_asks_for(serving: InstructedServing) -> None:
    model = serving.model
    assert model.get_language_model() is model.language_model
    # Where vLLM looks for what it may leave out, or speed up by itself.
    assert model._language_model_names == ["language_model"]
    assert model._tower_model_names == ["predictor", "projector"]
    kinds = {"LlamaForCausalLM", "Qwen3ForCausalLM"}
    assert type(model.language_model).__name__ in kinds
    assert type(model.language_model).__module__.startswith("vllm.")
    engine = serving.vllm_config.model_config
    assert engine.get_inputs_embeds_size() == model.width == WIDTH
    assert "details" not in model.state_dict()


def test_language_models_of_another_build_are_refused(llama: InstructedServing) -> None:
    other = GPT2Config(vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=1, n_head=2)
    llama.vllm_config.compilation_config.static_forward_context.clear()
    message = "model_type 'gpt2', whose class in vLLM, GPT2LMHeadModel, has no `model`"
    with set_current_vllm_config(llama.vllm_config), pytest.raises(RasterModelError, match=message):
        language_model(llama.vllm_config, other, "language_model")


@pytest.mark.parametrize("size", SIZES)
def test_cells_are_seen_and_kept_beside(serving: InstructedServing, size: tuple[int, int]) -> None:
    item = window(*size) | EVERYWHERE
    (found,) = serving.encode([serving.prepare("find<image>", item)])
    grid = serving.config.grid(*size)
    assert found.shape == (grid.cells, WIDTH + DETAIL)
    with torch.inference_mode():
        (features,) = serving.in_pytorch.predictor(**make_processor(serving.config)(images=item))
    linear = serving.in_pytorch.projector.linear
    for i, cell in enumerate(found.numpy()):
        top, left = i // grid.columns * CELL, i % grid.columns * CELL
        block = features[:, top : top + CELL, left : left + CELL].numpy()
        np.testing.assert_allclose(cell[WIDTH:], block.ravel(), rtol=1e-4, atol=1e-5)
        seen = linear.weight.detach().numpy() @ block.mean(axis=(1, 2))
        expected = seen + linear.bias.detach().numpy()
        np.testing.assert_allclose(cell[:WIDTH], expected, rtol=1e-4, atol=1e-5)


def test_nothing_to_embed(llama: InstructedServing) -> None:
    assert list(llama.model.embed_multimodal()) == []


def embed(
    model: InstructedRasterForImageToImage, ids: list[int], *counts: int, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeds tokens, with random cells for windows of so many; gives these too."""
    generator = torch.Generator().manual_seed(seed)
    cells = [torch.rand(count, WIDTH + DETAIL, generator=generator) for count in counts]
    given = torch.tensor(ids)
    with torch.inference_mode():
        found = model.embed_input_ids(given, cells, is_multimodal=given == IMAGE)
    return found, torch.cat(cells)


def test_cells_take_the_place_of_their_tokens(serving: InstructedServing) -> None:
    model = serving.model
    ids = [FIND, WATER, IMAGE, IMAGE, ROW, IMAGE, IMAGE, ROW, NOW, IMAGE, ROW, 7]
    found, cells = embed(model, ids, 4, 1)
    is_cell = torch.tensor(ids) == IMAGE
    words = serving.in_pytorch.language_model.get_input_embeddings().weight
    assert torch.equal(found[is_cell], cells[:, :WIDTH])
    assert torch.equal(found[~is_cell], words[ids][~is_cell])
    assert torch.equal(model.details[: len(ids)][is_cell], cells[:, WIDTH:])
    assert not model.details[: len(ids)][~is_cell].any()


def test_nothing_is_kept_for_the_next_step(llama: InstructedServing) -> None:
    model = llama.model
    ids = [FIND, IMAGE, IMAGE, ROW, IMAGE, IMAGE, ROW]
    embed(model, ids, 4)
    _, cells = embed(model, [IMAGE, ROW, FIND, WATER, 7, 7, 7], 1, seed=1)
    assert torch.equal(model.details[0], cells[0, WIDTH:])
    assert not model.details[1:7].any()
    for nothing in ({}, {"is_multimodal": torch.zeros(7, dtype=torch.bool)}):
        embed(model, ids, 4)
        with torch.inference_mode():
            found = model.embed_input_ids(torch.tensor([FIND] * 7), **nothing)
        words = llama.in_pytorch.language_model.get_input_embeddings().weight
        assert torch.equal(found, words[[FIND] * 7])
        assert not model.details[:7].any()


def test_a_step_of_as_many_tokens_as_there_may_be(llama: InstructedServing) -> None:
    most = llama.vllm_config.scheduler_config.max_num_batched_tokens
    assert llama.model.details.shape == (most, DETAIL)
    found, cells = embed(llama.model, [FIND] * (most - 2) + [IMAGE, ROW], 1)
    assert found.shape == (most, WIDTH)
    assert torch.equal(llama.model.details[-2], cells[0, WIDTH:])


def test_image_token_outside_of_the_vocabulary(
    llama: InstructedServing, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = VOCABULARY + 1000
    monkeypatch.setattr(llama.config, "image_token_id", outside)
    model = llama.build()
    model.load_weights(llama.in_pytorch.state_dict().items())
    ids = torch.tensor([FIND, outside, ROW])
    cells = torch.rand(1, WIDTH + DETAIL)
    with torch.inference_mode():
        found = model.embed_input_ids(ids, [cells], is_multimodal=ids == outside)
    assert torch.equal(found[1], cells[0, :WIDTH])
    words = llama.in_pytorch.language_model.get_input_embeddings().weight
    assert torch.equal(found[[0, 2]], words[[FIND, ROW]])


class Known(nn.Module):
    """Gives what is easily told apart: twice the embeddings, and the position."""

    def forward(
        self, input_ids: Any, positions: torch.Tensor, between: Any, *, inputs_embeds: torch.Tensor
    ) -> torch.Tensor:
        return 2 * inputs_embeds + positions[:, None]


def test_hidden_states_and_features_are_joined(
    llama: InstructedServing, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [FIND, IMAGE, IMAGE, ROW, 7]
    embeddings, _ = embed(llama.model, ids, 2)
    monkeypatch.setitem(llama.model._modules, "language_model", Known())
    # As many rows as there are tokens, and, in a graph, some of padding.
    for more in (0, 3):
        padded = torch.cat((embeddings, torch.zeros(more, WIDTH)))
        positions = torch.arange(5 + more)
        with torch.inference_mode():
            found = llama.model(None, positions, inputs_embeds=padded)
        assert found.shape == (5 + more, WIDTH + DETAIL)
        assert torch.equal(found[:, :WIDTH], 2 * padded + positions[:, None])
        assert torch.equal(found[:, WIDTH:], llama.model.details[: 5 + more])


@pytest.mark.parametrize("runner", [first_runner, second_runner])
def test_whole_way_of_a_batch(
    serving: InstructedServing, stubbed: InstructedRasterForImageToImage, runner: Runner
) -> None:
    items = mixed_items()
    prepared = [serving.prepare(*one) for one in zip(TEXTS, items, strict=True)]
    prompts = [one["prompt_token_ids"] for one in prepared]
    ids = torch.tensor([token for one in prompts for token in one])
    positions = torch.cat([torch.arange(len(one)) for one in prompts])
    with torch.inference_mode():
        embeddings = stubbed.embed_input_ids(
            ids, serving.encode(prepared), is_multimodal=ids == IMAGE
        )
        hidden = stubbed(None, positions, inputs_embeds=embeddings)
        requests = map(Request, prompts, hidden.split([len(one) for one in prompts]))
        found = step(stubbed.pooler, runner, whole(*requests))
    expected = told(serving.in_pytorch, prompts, *items)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
