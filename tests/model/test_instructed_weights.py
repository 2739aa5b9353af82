"""The weights of the instructed model: all are loaded, others are refused by name."""

from collections.abc import Callable

import pytest
import torch

from vllm_raster_model.errors import WeightsError
from vllm_raster_model.instructed import InstructedRasterForImageToImage

from .instructed import VOCABULARY
from .serving import InstructedServing

Weights = dict[str, torch.Tensor]


def test_loads_all_there_is(serving: InstructedServing) -> None:
    fresh = serving.build()
    weights = serving.in_pytorch.state_dict()
    loaded = fresh.load_weights(weights.items())
    # Read-out into words is not used; where it is not the table of words, nothing is there for it.
    assert loaded >= {name for name, _ in fresh.named_parameters()}
    found = fresh.state_dict()
    for name in weights.keys() & found.keys():
        assert torch.equal(found[name], weights[name]), name
    layer = "layers.1.self_attn.{}.weight"
    parts = [
        weights[f"language_model.{layer.format(one)}"] for one in ("q_proj", "k_proj", "v_proj")
    ]
    joined = found[f"language_model.model.{layer.format('qkv_proj')}"]
    assert torch.equal(joined, torch.cat(parts))
    words = found["language_model.model.embed_tokens.weight"]
    assert torch.equal(words[:VOCABULARY], weights["language_model.embed_tokens.weight"])


def dropped(weights: Weights, name: str) -> None:
    del weights[name]


def renamed(weights: Weights, name: str) -> None:
    weights[f"{name}_g"] = weights.pop(name)


def added(weights: Weights, name: str) -> None:
    weights[f"{name}_g"] = weights[name]


ATTENTION = "language_model.layers.0.self_attn.q_proj.weight"
GATE = "language_model.layers.1.mlp.gate_proj.weight"
NAMES = [
    ATTENTION,
    GATE,
    "language_model.layers.1.mlp.down_proj.weight",
    "language_model.norm.weight",
    "language_model.embed_tokens.weight",
    "head.weights.weight",
    "head.weights.bias",
    "projector.linear.weight",
    "predictor.network.encoder.blocks.0.attn.qkv.weight",
]


@pytest.fixture(scope="module")
def fresh(llama: InstructedServing) -> InstructedRasterForImageToImage:
    return llama.build()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dropped, "Missing: {0}. Unknown: none."),
        (renamed, "Missing: {0}. Unknown: {0}_g."),
        (added, "Missing: none. Unknown: {0}_g."),
    ],
)
def test_refuses_other_names(
    llama: InstructedServing,
    fresh: InstructedRasterForImageToImage,
    change: Callable[[Weights, str], None],
    name: str,
    message: str,
) -> None:
    weights = dict(llama.in_pytorch.state_dict())
    change(weights, name)
    with pytest.raises(WeightsError) as caught:
        fresh.load_weights(weights.items())
    assert message.format(name) in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", ["larger", "smaller", "deeper"])
def test_refuses_another_shape(
    llama: InstructedServing, fresh: InstructedRasterForImageToImage, name: str, change: str
) -> None:
    weights = dict(llama.in_pytorch.state_dict())
    given = weights[name]
    weights[name] = {
        "larger": torch.cat((given, given[:1])),
        "smaller": given[:-1],
        "deeper": given[None],
    }[change]
    with pytest.raises(WeightsError) as caught:
        fresh.load_weights(weights.items())
    shapes = f"{tuple(weights[name].shape)} on disk and does not fit the network's"
    assert f"Weight {name!r} has shape {shapes} {tuple(given.shape)}" in str(caught.value)


def test_refuses_another_language_model(
    llama: InstructedServing, qwen3: InstructedServing, fresh: InstructedRasterForImageToImage
) -> None:
    message = r"Unknown: language_model\.layers\.0\.self_attn\.k_norm\.weight"
    with pytest.raises(WeightsError, match=message):
        fresh.load_weights(qwen3.in_pytorch.state_dict().items())
