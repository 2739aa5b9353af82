"""Checkpoints that say what cannot be, and image items that are not what they told."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vllm_raster_model.config import RasterConfig
from vllm_raster_model.errors import ContractError, ImageItemError
from vllm_raster_model.multimodal import RasterProcessingInfo
from vllm_raster_model.plain import RasterForImageToImage

from .checkpoints import NETWORK, make_config, make_processor
from .items import Lazy, pixels


def test_a_misspelt_key_of_the_network() -> None:
    with pytest.raises(ContractError, match=r"unknown keys \['num_head'\]; there are .*num_heads"):
        make_config({**NETWORK, "num_head": 4})


def test_what_is_stored_has_no_unknown_key(tmp_path: Path) -> None:
    make_config().save_pretrained(tmp_path)
    assert RasterConfig.from_pretrained(tmp_path).vision_config.depth == NETWORK["depth"]


@pytest.mark.parametrize("name", ["image_token_id", "row_token_id"])
def test_tokens_of_another_tokenizer(name: str) -> None:
    config = make_config()
    info = info_of(config)
    assert info.get_hf_processor().bands == len(config.contract.input.bands)
    setattr(config, name, 7)
    with pytest.raises(ContractError, match=rf"{name}=7, but for the tokenizer <\w+> is [45]"):
        info.get_hf_processor()


def test_weights_are_never_pickles() -> None:
    assert RasterForImageToImage.allow_patterns_overrides == ("*.safetensors",)


@pytest.mark.parametrize("shape", [(20, 50), (40, 51), (80, 25)])
def test_an_item_that_told_another_shape(shape: tuple[int, int]) -> None:
    lazy = Lazy(pixels(40, 50))
    lazy.shape = (len(lazy.shape), *shape)
    with pytest.raises(ImageItemError, match=r"have the shape \(\d, 40, 50\), but told"):
        make_processor(make_config())({"pixel_values": lazy})


def test_an_item_that_told_its_shape() -> None:
    item = {"pixel_values": Lazy(pixels(40, 50))}
    (found,) = make_processor(make_config())(item)["pixel_values"]
    np.testing.assert_array_equal(found[:, 0], pixels(40, 50))


def info_of(config: RasterConfig) -> RasterProcessingInfo:
    """What vLLM asks, of a configuration and its processor."""
    processor = make_processor(config)
    context: Any = SimpleNamespace(
        tokenizer=processor.tokenizer,
        get_hf_config=lambda _: config,
        get_hf_processor=lambda _, **__: processor,
    )
    return RasterProcessingInfo(context)
