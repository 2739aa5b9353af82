"""The configuration of a checkpoint with a language model inside."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig, PreTrainedConfig

from vllm_raster_model.config import InstructedRasterConfig, RasterConfig
from vllm_raster_model.contract import InstructionContract, RasterContract
from vllm_raster_model.errors import ContractError
from vllm_raster_model.networks.prithvi_dense import PrithviDenseConfig
from vllm_raster_model.registration import register_with_transformers

from .checkpoints import CELL, NETWORK, make_config
from .instructed import INSTRUCTIONS, VOCABULARY, instructed_block, make_instructed, text_config

NEW = {
    "text_config",
    "feature_channels",
    "head_units",
    "max_images",
    "image_end_token_id",
    "answer_token_id",
}


def stored(config: RasterConfig, folder: Path) -> dict[str, Any]:
    config.save_pretrained(folder)
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return found


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_survives_saving(tmp_path: Path, kind: str) -> None:
    register_with_transformers()
    saved = make_instructed(kind, max_images=3, head_units=5)
    first = stored(saved, tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert type(loaded) is InstructedRasterConfig
    assert type(loaded.text_config) is type(text_config(kind))
    assert loaded.text_config.to_dict() == saved.text_config.to_dict()
    assert type(loaded.vision_config) is PrithviDenseConfig
    assert {name: getattr(loaded.vision_config, name) for name in NETWORK} == NETWORK
    assert loaded.contract == saved.contract
    assert loaded.raster == instructed_block()
    assert (loaded.max_images, loaded.head_units, loaded.feature_channels) == (3, 5, 3)
    assert (loaded.image_end_token_id, loaded.answer_token_id) == (1, 2)
    assert stored(loaded, tmp_path / "again") == first


def test_stores_no_more_than_was_said(tmp_path: Path) -> None:
    found = stored(make_instructed(), tmp_path)
    assert found.keys() == NEW | {
        "architectures",
        "image_token_id",
        "io_processor_plugin",
        "model_type",
        "raster",
        "row_token_id",
        "transformers_version",
        "vision_config",
    }
    assert found["text_config"]["model_type"] == "llama"
    assert found["model_type"] == "instructed_raster"


def test_a_checkpoint_without_a_language_model_stores_nothing_new(tmp_path: Path) -> None:
    found = stored(make_config(), tmp_path)
    assert not NEW & found.keys()
    assert "instructions" not in found["raster"]


def test_text_may_be_given_as_json_has_it() -> None:
    config = make_instructed(text_config=text_config("qwen3").to_dict())
    assert isinstance(config.text_config, PreTrainedConfig)
    assert config.text_config.to_dict() == text_config("qwen3").to_dict()


def test_what_follows() -> None:
    config = make_instructed(feature_channels=6)
    assert config.image_channels == 6  # and not those of the map
    assert config.detail_width == 6 * CELL * CELL
    assert config.vocab_size == config.text_config.vocab_size == VOCABULARY
    # vLLM reads the width, the layers and the longest prompt of the language model.
    assert config.get_text_config() is config.text_config
    assert config.image_after_text
    assert not make_config().image_after_text
    assert (make_config().max_images, make_instructed().max_images) == (1, 2)
    assert make_config().image_channels == 2


def test_tokens_of_a_window() -> None:
    assert make_instructed().image_tokens(9, 17) == [4, 4, 4, 5, 4, 4, 4, 5, 1]
    assert make_instructed(image_end_token_id=None).image_tokens(1, 1) == [4, 5]


def test_upscaling_is_refused() -> None:
    block = instructed_block()
    block["output"]["upscale"] = 2
    with pytest.raises(
        ContractError, match=r"does not upscale or downscale: raster\.output\.upscale and"
    ):
        make_instructed(raster=block)


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(ContractError, match=r"unknown keys \['num_head'\]"):
        make_instructed(vision_config={**NETWORK, "num_head": 4})
    block = instructed_block() | {"instructions": {**INSTRUCTIONS, "wording": {}}}
    with pytest.raises(ContractError, match=r"instructions\.wording: Extra inputs"):
        make_instructed(raster=block)


@pytest.mark.parametrize(
    "template",
    ["{instruction}<image>", "Find {instruction} in <image>.", "<bos>{instruction}<image>"],
)
def test_templates(template: str) -> None:
    block = instructed_block() | {"instructions": {**INSTRUCTIONS, "template": template}}
    instructions = RasterContract.parse(block).instructions
    assert instructions is not None
    assert instructions.template == template


@pytest.mark.parametrize(
    "template",
    [
        "",
        "{instruction}",
        "<image>",
        "<image>{instruction}",
        "{instruction}<image>{instruction}",
        "{instruction}{instruction}<image>",
        "{instruction}<image><image>",
        "<image>{instruction}<image>",
    ],
)
def test_templates_that_are_refused(template: str) -> None:
    block = instructed_block() | {"instructions": {**INSTRUCTIONS, "template": template}}
    with pytest.raises(ContractError, match=r"\{instruction\} once and <image> once behind it"):
        RasterContract.parse(block)


@pytest.mark.parametrize(
    "instructions",
    [{}, {"wordings": {}}, {"wordings": ["water"]}, {"wordings": {"water": []}}],
)
def test_something_must_be_known_to_ask_for(instructions: dict[str, Any]) -> None:
    with pytest.raises(ContractError, match=r"instructions\.wordings"):
        RasterContract.parse(instructed_block() | {"instructions": instructions})


def test_template_that_is_not_given() -> None:
    instructions = InstructionContract(wordings={"water": ("water",)})
    assert instructions.template == "{instruction}<image>"
