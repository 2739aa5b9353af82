"""The instructed model in PyTorch: words and image items in, maps out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoProcessor

from vllm_raster_model.config import InstructedRasterConfig
from vllm_raster_model.errors import ContractError
from vllm_raster_model.pytorch import InstructedRasterForImageToImage
from vllm_raster_model.registration import register_with_transformers

from .checkpoints import CELL, make_processor
from .instructed import (
    ANSWER,
    FIELDS,
    FIND,
    IMAGE,
    NOW,
    THE,
    WATER,
    WORDS,
    make_instructed,
    make_instructed_model,
    prompt,
    text_config,
    told,
)
from .items import EVERYWHERE, mask, window

Model = InstructedRasterForImageToImage

SIZES = [(16, 24), (9, 17), (32, 32), (1, 1), (16, 24)]
SAID = [[FIND, WATER], [WATER], [FIND, THE, FIELDS, NOW], [], [FIELDS]]


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def model(request: pytest.FixtureRequest) -> Model:
    return make_instructed_model(make_instructed(request.param))


def items() -> list[dict[str, Any]]:
    found = [window(*size, seed=i) for i, size in enumerate(SIZES)]
    found[0] |= EVERYWHERE
    found[1] |= {"valid": mask(*SIZES[1])}
    return found


def prompts(model: Model) -> list[list[int]]:
    return [
        prompt(model.config, said, size, [7] * i, [ANSWER])
        for i, (said, size) in enumerate(zip(SAID, SIZES, strict=True))
    ]


def same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return torch.allclose(found, expected, rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def worked_out(model: Model, ids: list[int], item: dict[str, Any]) -> np.ndarray:
    """The map of one prompt: features and hidden states laid out cell by cell, in numpy."""
    (features,) = model.predictor(**make_processor(model.config)(images=item))
    features = features.numpy()
    rows, columns = (size // CELL for size in features.shape[1:])
    blocks = [
        features[:, CELL * r : CELL * (r + 1), CELL * c : CELL * (c + 1)]
        for r in range(rows)
        for c in range(columns)
    ]
    words = model.language_model.get_input_embeddings().weight.numpy()
    projector, head = model.projector.linear, model.head
    left = iter(blocks)
    embeddings = [
        projector.weight.numpy() @ next(left).mean(axis=(1, 2)) + projector.bias.numpy()
        if one == IMAGE
        else words[one]
        for one in ids
    ]
    given = torch.tensor(np.stack(embeddings))[None]
    hidden = model.language_model(inputs_embeds=given).last_hidden_state[0]
    states = [state for state, one in zip(hidden, ids, strict=True) if one == IMAGE]
    found = np.empty((head.channels, rows * CELL, columns * CELL), np.float32)
    for i, (state, block) in enumerate(zip(states, blocks, strict=True)):
        r, c = divmod(i, columns)
        values = head(state[None], torch.tensor(block.reshape(1, -1))).numpy()
        found[:, CELL * r : CELL * (r + 1), CELL * c : CELL * (c + 1)] = values.reshape(
            head.channels, CELL, CELL
        )
    return found


def test_survives_saving(tmp_path: Path, model: Model) -> None:
    register_with_transformers()
    model.save_pretrained(tmp_path)
    make_processor(model.config, WORDS).save_pretrained(tmp_path)
    loaded = InstructedRasterForImageToImage.from_pretrained(tmp_path).eval()
    weights = model.state_dict()
    assert loaded.state_dict().keys() == weights.keys()
    for name, weight in loaded.state_dict().items():
        assert torch.equal(weight, weights[name]), name
    given = AutoProcessor.from_pretrained(tmp_path)(
        images=items()[:2], text=["find water<image>", "the fields<image>0"]
    )
    with torch.inference_mode():
        found = loaded(**given)
    ids = [prompt(model.config, [FIND, WATER], SIZES[0], [ANSWER])]
    ids += [prompt(model.config, [THE, FIELDS], SIZES[1], [6, ANSWER])]
    for one, other in zip(found, told(model, ids, *items()[:2]), strict=True):
        # Weights mapped from a file may be summed in another order.
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_parts_have_the_names_that_are_served(model: Model) -> None:
    parts = {name.split(".")[0] for name in model.state_dict()}
    assert parts == {"predictor", "projector", "language_model", "head"}


def test_as_worked_out_cell_by_cell(model: Model) -> None:
    for ids, item in zip(prompts(model), items(), strict=True):
        (found,) = told(model, [ids], item)
        assert found.dtype == torch.float32
        np.testing.assert_allclose(found, worked_out(model, ids, item), rtol=1e-5, atol=1e-5)


def test_a_batch_is_as_each_alone(model: Model) -> None:
    together = told(model, prompts(model), *items())
    assert len(together) == len(SIZES)
    for ids, item, found in zip(prompts(model), items(), together, strict=True):
        (alone,) = told(model, [ids], item)
        torch.testing.assert_close(found, alone, rtol=1e-5, atol=1e-5)


def test_the_words_before_an_image_change_its_map(model: Model) -> None:
    size, item = SIZES[0], items()[0]
    spoken = [[FIND, WATER], [FIND, FIELDS], [WATER, FIND], [WATER], []]
    maps = [told(model, [prompt(model.config, said, size)], item)[0] for said in spoken]
    for i, one in enumerate(maps):
        for other in maps[:i]:
            assert (one - other).abs().max() > 1e-3


def test_what_is_behind_an_image_does_not(model: Model) -> None:
    size, item = SIZES[0], items()[0]
    (expected,) = told(model, [prompt(model.config, [FIND, WATER], size)], item)
    for behind in ([ANSWER], [FIELDS] * 9, [7, 8, ANSWER]):
        (found,) = told(model, [prompt(model.config, [FIND, WATER], size, behind)], item)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_two_images_in_a_prompt(model: Model) -> None:
    (first, second), sizes = items()[:2], SIZES[:2]
    ids = prompt(model.config, [FIND], sizes[0], [WATER], sizes[1], [ANSWER])
    one, other = told(model, [ids], first, second)
    assert (one.shape, other.shape) == ((2, 16, 24), (2, 16, 24))
    (alone,) = told(model, [prompt(model.config, [FIND], sizes[0])], first)
    torch.testing.assert_close(one, alone, rtol=1e-5, atol=1e-5)
    # The second one's cells have seen the first one's.
    _, changed = told(model, [ids], items()[4], second)
    assert not same(other, changed)
    # Beside a prompt with one image the maps are in the order of the images.
    between = prompt(model.config, [WATER], SIZES[3])
    found = told(model, [between, ids, between], items()[3], first, second, items()[3])
    for a, b in zip(found[1:3], (one, other), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    assert [one.shape for one in found] == [(2, 8, 8), (2, 16, 24), (2, 16, 24), (2, 8, 8)]


def test_image_token_may_be_outside_of_the_vocabulary(model: Model) -> None:
    ids, item = prompts(model)[0], items()[0]
    (expected,) = told(model, [ids], item)
    model.config.image_token_id = 99_999
    try:
        (found,) = told(model, [[99_999 if one == IMAGE else one for one in ids]], item)
    finally:
        model.config.image_token_id = IMAGE
    assert torch.equal(found, expected)


def test_the_word_that_stands_for_cells_is_not_read(model: Model) -> None:
    ids, item = prompts(model)[0], items()[0]
    (expected,) = told(model, [ids], item)
    words = model.language_model.get_input_embeddings().weight
    before = words.detach().clone()
    with torch.no_grad():
        words[IMAGE] = words[0] = 100
    (found,) = told(model, [ids], item)
    with torch.no_grad():
        words.copy_(before)
    assert torch.equal(found, expected)


def test_logits_are_what_maps_are_the_sigmoid_of(model: Model) -> None:
    fields = make_processor(model.config)(images=items())
    with torch.inference_mode():
        logits = model.logits(prompts(model), **fields)
    for one, found in zip(logits, told(model, prompts(model), *items()), strict=True):
        torch.testing.assert_close(found, 1 / (1 + (-one).exp()))


@pytest.mark.parametrize("part", ["predictor", "projector", "language_model", "head"])
def test_gradients_reach_every_part(model: Model, part: str) -> None:
    model.zero_grad()
    logits = model.logits(prompts(model), **make_processor(model.config)(images=items()))
    torch.stack([one.square().mean() for one in logits]).sum().backward()
    weights = dict(getattr(model, part).named_parameters())
    trained = {name for name, one in weights.items() if one.requires_grad}
    assert trained
    still = {name for name in trained if weights[name].grad is None or not weights[name].grad.any()}
    model.zero_grad()
    assert still == set()


def test_initial_weights_of_the_language_model_are_transformers_s() -> None:
    torch.manual_seed(7)
    model = InstructedRasterForImageToImage(make_instructed())
    words = model.language_model.get_input_embeddings().weight
    assert words.std().item() == pytest.approx(text_config().initializer_range, rel=0.1)


def test_without_a_language_model() -> None:
    with pytest.raises(ContractError, match=r"config\.json has no `text_config`"):
        InstructedRasterForImageToImage(InstructedRasterConfig())


def test_the_soft_cap_of_the_language_model_is_kept() -> None:
    """PyTorch's own attention would leave it out, and vLLM's does not."""
    maps = []
    for cap in (0.1, 1e6):
        text = text_config("gemma2", attn_logit_softcapping=cap)
        model = make_instructed_model(make_instructed(text_config=text))
        maps.append(told(model, prompts(model), *items())[0])
    assert (maps[0] - maps[1]).abs().max() > 1e-3
