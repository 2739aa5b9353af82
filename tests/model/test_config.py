"""The configuration: what config.json holds, and what follows from it."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from vllm_raster_model.config import RasterConfig
from vllm_raster_model.errors import ContractError
from vllm_raster_model.grid import Grid
from vllm_raster_model.networks.prithvi_dense import PrithviDenseConfig
from vllm_raster_model.pytorch import RasterForImageToImage
from vllm_raster_model.registration import register_with_transformers
from vllm_raster_model.tokenizer import minimal_tokenizer, word_tokenizer

from .checkpoints import NETWORK, make_config, raster_block

UNUSABLE: list[tuple[dict[str, Any], str]] = [
    ({"model_type": ["prithvi_dense"]}, "vision_config.model_type must be a text"),
    ({"embed_dim": None}, "vision_config is not usable"),
    ({"embed_dim": "wide"}, "vision_config is not usable"),
    ({"num_heads": 0}, "vision_config is not usable: ZeroDivisionError"),
    ({"depth": None}, "vision_config is not usable"),
    ({"patch_size": 0}, "vision_config is not usable"),
    ({"necks": 3}, "vision_config is not usable"),
    ({"out_indices": "x"}, "vision_config"),
    ({"mlp_ratio": "x"}, "vision_config is not usable"),
]


@pytest.mark.parametrize(("changes", "message"), UNUSABLE)
def test_networks_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    """Whatever a network makes of an impossible value, the part of config.json is named."""
    with pytest.raises(ContractError, match=message):
        RasterForImageToImage(make_config({**NETWORK, **changes}))


@pytest.mark.parametrize("given", ["prithvi_dense", 3, ["prithvi_dense"]])
def test_a_network_is_an_object(given: Any) -> None:
    with pytest.raises(ContractError, match="vision_config must be a json object, got"):
        RasterConfig(vision_config=given, raster=raster_block())


@pytest.mark.parametrize("size", [2**15 + 1, 10**6, 2**70])
def test_a_tile_that_is_too_large(size: int) -> None:
    with pytest.raises(ContractError, match=r"tile\.size"):
        make_config(tile={"size": size, "multiple_of": 1})


DERIVED = {"hidden_size", "max_position_embeddings", "num_hidden_layers", "num_attention_heads"}


def test_survives_saving(tmp_path: Path) -> None:
    register_with_transformers()
    saved = make_config(tile={"overlap": 8})
    saved.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert type(loaded) is RasterConfig
    assert loaded.contract == saved.contract
    assert loaded.raster == raster_block(tile={"overlap": 8})
    assert type(loaded.vision_config) is PrithviDenseConfig
    assert {name: getattr(loaded.vision_config, name) for name in NETWORK} == NETWORK
    loaded.save_pretrained(tmp_path / "again")
    assert stored(tmp_path / "again") == stored(tmp_path)


def test_stores_what_was_said_and_no_more(tmp_path: Path) -> None:
    make_config().save_pretrained(tmp_path)
    assert stored(tmp_path) == {
        "architectures": ["RasterForImageToImage"],
        "model_type": "raster",
        "image_token_id": 4,
        "row_token_id": 5,
        "vocab_size": 22,
        "io_processor_plugin": "raster",
        "raster": raster_block(),
        "vision_config": NETWORK,
    }


def test_digits_of_another_tokenizer_are_stored(tmp_path: Path) -> None:
    config = make_config()
    config.digit_token_ids = list(range(30, 46))
    config.save_pretrained(tmp_path)
    assert RasterConfig.from_pretrained(tmp_path).digit_token_ids == list(range(30, 46))


def test_digits_are_those_of_the_small_tokenizers() -> None:
    for tokenizer in (minimal_tokenizer(), word_tokenizer(["find", "water"])):
        ids = tokenizer.convert_tokens_to_ids(list("0123456789abcdef"))
        assert make_config().digit_token_ids == ids


def stored(folder: Path) -> dict[str, Any]:
    config = json.loads((folder / "config.json").read_text())
    del config["transformers_version"], config["vision_config"]["transformers_version"]
    return config


@pytest.mark.parametrize(
    ("parts", "hidden_size", "tokens"),
    [
        ({}, 2 * 8 * 8, 4 * 5),
        ({"tile": {"size": 64}}, 2 * 8 * 8, 8 * 9),
        ({"tile": {"multiple_of": 16}, "output": {"upscale": 2}}, 2 * 32 * 32, 2 * 3),
    ],
)
def test_what_follows_from_the_block(parts: dict[str, Any], hidden_size: int, tokens: int) -> None:
    config = make_config(**parts)
    assert config.hidden_size == hidden_size
    assert config.largest_grid.tokens == tokens
    assert config.max_position_embeddings == tokens + 64
    assert (config.num_hidden_layers, config.num_attention_heads) == (0, 1)
    # vLLM reads all of these from what transformers takes for the text's part.
    assert config.get_text_config() is config


def test_what_follows_cannot_be_set() -> None:
    config = RasterConfig(raster=raster_block(), **dict.fromkeys(DERIVED, 7))
    assert {name: getattr(config, name) for name in DERIVED} == {
        name: getattr(make_config(), name) for name in DERIVED
    }
    assert not DERIVED & config.to_dict().keys()


@pytest.mark.parametrize(
    ("size", "minimum", "grid"),
    [((1, 1), None, (1, 1)), ((8, 9), None, (1, 2)), ((1, 30), 16, (2, 4))],
)
def test_grid(size: tuple[int, int], minimum: int | None, grid: tuple[int, int]) -> None:
    assert make_config(tile={"minimum": minimum}).grid(*size) == Grid(*grid)


def test_without_a_block() -> None:
    config = RasterConfig()
    assert not hasattr(config, "max_position_embeddings")
    with pytest.raises(ContractError, match=r"config.json has no `raster` block"):
        _ = config.contract


def test_refuses_an_unusable_block_at_once() -> None:
    with pytest.raises(ContractError, match=r"tile: .*size must be a multiple .* got 9"):
        RasterConfig(raster=raster_block(tile={"size": 9}))


@pytest.mark.parametrize("network", [{"model_type": "resnet"}, {}])
def test_refuses_an_unknown_network(network: dict[str, Any]) -> None:
    name = network.get("model_type", "")
    message = rf"vision_config.model_type must be one of \[.*'prithvi_dense'.*\], got '{name}'"
    with pytest.raises(ContractError, match=message):
        RasterConfig(vision_config=network, raster=raster_block())
