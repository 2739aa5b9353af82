"""The served class without a language model: its hooks, its weights, its maps."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from vllm.model_executor.models.interfaces import (
    is_attention_free,
    supports_multimodal,
    supports_multimodal_raw_input_only,
)
from vllm.model_executor.models.interfaces_base import get_attn_type, is_pooling_model

from vllm_raster_model.errors import WeightsError
from vllm_raster_model.plain import RasterForImageToImage

from .checkpoints import make_processor
from .items import EVERYWHERE, enlarged, mask, pixels, window
from .runners import Request, Runner, first_runner, second_runner, step, whole
from .serving import Serving

Weights = dict[str, torch.Tensor]

SIZES = [(16, 24), (9, 17), (32, 32), (16, 24), (1, 1), (15, 23)]
QKV = "predictor.network.encoder.blocks.0.attn.qkv.weight"
HIDDEN = "predictor.network.encoder.blocks.1.mlp.fc1.bias"
OUT = "predictor.network.encoder.blocks.1.mlp.fc2.weight"
HEAD = "predictor.network.head.head.2.weight"
PLACE = "predictor.network.encoder.location_embed_enc.scale"


def mixed_items() -> list[dict[str, Any]]:
    items = [window(*size, seed=i, **EVERYWHERE) for i, size in enumerate(SIZES)]
    items[1]["valid"] = mask(*SIZES[1])
    items[2]["location_coords"] = (-33.9, 151.2)
    del items[3]["temporal_coords"]
    return items


def test_what_vllm_takes_it_for() -> None:
    served = RasterForImageToImage
    assert is_pooling_model(served)
    assert is_attention_free(served)
    assert get_attn_type(served) == "attention_free"
    assert supports_multimodal(served)
    assert not supports_multimodal_raw_input_only(served)


def test_placeholder() -> None:
    assert RasterForImageToImage.get_placeholder_str("image", 1) == "<image>"
    for modality in ("video", "audio"):
        with pytest.raises(ValueError, match=f"Only images are mapped, got .* '{modality}'"):
            RasterForImageToImage.get_placeholder_str(modality, 1)


def test_language_model_is_itself(prithvi: Serving) -> None:
    assert prithvi.model.get_language_model() is prithvi.model


def test_has_the_names_that_training_saves(prithvi: Serving) -> None:
    shapes = {name: w.shape for name, w in prithvi.in_pytorch.state_dict().items()}
    assert {name: w.shape for name, w in prithvi.build().state_dict().items()} == shapes


def test_maps_as_in_pytorch(prithvi: Serving) -> None:
    items = mixed_items()
    with torch.inference_mode():
        maps = prithvi.in_pytorch(**make_processor(prithvi.config)(images=items))
    found = prithvi.encode([prithvi.prepare("<image>", item) for item in items])
    for size, cells, expected in zip(SIZES, found, maps, strict=True):
        here = prithvi.config.grid(*size).map_of(cells, channels=2)
        torch.testing.assert_close(here, expected, rtol=1e-5, atol=1e-5)


def test_nothing_to_embed(prithvi: Serving) -> None:
    assert list(prithvi.model.embed_multimodal()) == []


@pytest.mark.parametrize(
    "dtypes",
    [("uint8", "int16"), ("int16", "uint8"), ("uint16", "float32"), ("float64", "uint16", "int32")],
)
def test_windows_of_differing_types_in_one_batch(enlarge: Serving, dtypes: tuple[str, ...]) -> None:
    items = [{"pixel_values": pixels(9, 17, dtype=dtype, seed=i)} for i, dtype in enumerate(dtypes)]
    found = enlarge.encode([enlarge.prepare("<image>", item) for item in items])
    for item, cells in zip(items, found, strict=True):
        here = enlarge.config.grid(9, 17).map_of(cells, channels=2)
        np.testing.assert_allclose(here, enlarged(item, enlarge.config), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("runner", [first_runner, second_runner])
def test_whole_way_of_a_batch(enlarge: Serving, runner: Runner) -> None:
    items, model = mixed_items(), enlarge.model
    prepared = [enlarge.prepare("<image>0f"[: 7 + i % 3], item) for i, item in enumerate(items)]
    ids = torch.tensor([i for one in prepared for i in one["prompt_token_ids"]])
    embeddings = model.embed_input_ids(ids, enlarge.encode(prepared), is_multimodal=ids == 4)
    hidden = model(None, torch.arange(len(ids)), inputs_embeds=embeddings)
    lengths = [len(one["prompt_token_ids"]) for one in prepared]
    requests = map(Request, (one["prompt_token_ids"] for one in prepared), hidden.split(lengths))
    found = step(model.pooler, runner, whole(*requests))
    for item, here in zip(items, found, strict=True):
        np.testing.assert_allclose(here, enlarged(item, enlarge.config), rtol=1e-5, atol=1e-5)


def test_cells_take_the_place_of_their_tokens(enlarge: Serving) -> None:
    model = enlarge.model
    width = model.width
    ids = torch.tensor([7, 4, 4, 5, 4, 4, 5, 6, 4, 5])
    cells = [torch.rand(4, width), torch.rand(1, width)]
    found = model.embed_input_ids(ids, cells, is_multimodal=ids == 4)
    assert found.dtype == torch.float32
    assert torch.equal(found[ids == 4], torch.cat(cells))
    assert not found[ids != 4].any()
    assert torch.equal(model(None, torch.arange(10), inputs_embeds=found), found)


def test_tokens_without_an_image_are_zero(enlarge: Serving) -> None:
    ids = torch.tensor([7, 4, 5])
    zeros = torch.zeros(3, enlarge.model.width)
    for found in (
        enlarge.model.embed_input_ids(ids),
        enlarge.model.embed_input_ids(ids, [], is_multimodal=None),
        enlarge.model.embed_input_ids(ids, None, is_multimodal=ids == 4),
        enlarge.model(ids, torch.arange(3)),
    ):
        assert torch.equal(found, zeros)


def test_loads_all_there_is(prithvi: Serving) -> None:
    fresh = prithvi.build()
    weights = prithvi.in_pytorch.state_dict()
    assert fresh.load_weights(weights.items()) == weights.keys()
    for name, found in fresh.state_dict().items():
        assert torch.equal(found, weights[name]), name


def dropped(weights: Weights, name: str) -> None:
    del weights[name]


def renamed(weights: Weights, name: str) -> None:
    weights[f"{name}_g"] = weights.pop(name)


def added(weights: Weights, name: str) -> None:
    weights[f"{name}_g"] = weights[name]


@pytest.mark.parametrize("name", [QKV, HEAD, PLACE])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dropped, "Missing: {0}. Unknown: none."),
        (renamed, "Missing: {0}. Unknown: {0}_g."),
        (added, "Missing: none. Unknown: {0}_g."),
    ],
)
def test_refuses_other_names(
    prithvi: Serving, change: Callable[[Weights, str], None], name: str, message: str
) -> None:
    weights = dict(prithvi.in_pytorch.state_dict())
    change(weights, name)
    with pytest.raises(WeightsError) as caught:
        prithvi.build().load_weights(weights.items())
    assert message.format(name) in str(caught.value)


def test_names_a_few_of_many(prithvi: Serving) -> None:
    count = len(prithvi.in_pytorch.state_dict())
    with pytest.raises(WeightsError, match=f"Missing: .* and {count - 20} more. Unknown: none"):
        prithvi.build().load_weights([])


@pytest.mark.parametrize("name", [QKV, HIDDEN, OUT, HEAD])
@pytest.mark.parametrize("change", ["larger", "smaller", "wider", "narrower", "deeper"])
def test_refuses_another_shape(prithvi: Serving, name: str, change: str) -> None:
    weights = dict(prithvi.in_pytorch.state_dict())
    given = weights[name]
    last = given.dim() - 1
    weights[name] = {
        "larger": torch.cat((given, given[:1])),
        "smaller": given[:-1],
        "wider": torch.cat((given, given), dim=last),
        "narrower": given.narrow(last, 0, 1) if given.shape[last] > 1 else given[..., :0],
        "deeper": given[None],
    }[change]
    shapes = f"{tuple(weights[name].shape)} on disk and does not fit .* {tuple(given.shape)}"
    pattern = shapes.replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(WeightsError, match=f"Weight '{name}' has shape {pattern}"):
        prithvi.build().load_weights(weights.items())
