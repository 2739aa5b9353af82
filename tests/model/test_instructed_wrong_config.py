"""Configurations of checkpoints with a language model inside that cannot be, or are misspelt."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from vllm_raster_model.config import RasterConfig
from vllm_raster_model.errors import ContractError
from vllm_raster_model.registration import register_with_transformers

from .checkpoints import NETWORK, TILE
from .instructed import INSTRUCTIONS, instructed_block, make_instructed, text_config
from .serving import InstructedServing, engine_config

AROUND = ("image_end_token_id", "answer_token_id")
MISSPELT_TEXT = {
    "rms_norm_epsilon": "rms_norm_eps",
    "hiden_act": "hidden_act",
    "rope_parameter": "rope_parameters",
    "num_attention_head": "num_attention_heads",
    "tie_embeddings": "tie_word_embeddings",
}


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
@pytest.mark.parametrize(("misspelt", "meant"), MISSPELT_TEXT.items())
def test_misspelt_keys_of_the_language_model(kind: str, misspelt: str, meant: str) -> None:
    text = text_config(kind).to_dict()
    text[misspelt] = text.pop(meant)
    message = f"text_config has the unknown keys: '{misspelt}', meant is '{meant}'"
    with pytest.raises(ContractError, match=message):
        make_instructed(text_config=text)


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("rope_thetta", "rope_theta"),
        ("rope_typ", "rope_type"),
        ("beta_fasst", "beta_fast"),
        ("original_max_position_embedding", "original_max_position_embeddings"),
    ],
)
@pytest.mark.parametrize("by_layer", [False, True])
def test_misspelt_keys_of_positions(misspelt: str, meant: str, by_layer: bool) -> None:
    given: dict[str, Any] = {
        "rope_type": "yarn",
        "rope_theta": 500.0,
        "factor": 2.0,
        "beta_fast": 32.0,
        "original_max_position_embeddings": 64,
    }
    make_instructed(text_config=text_config().to_dict() | {"rope_parameters": dict(given)})
    given[misspelt] = given.pop(meant)
    wrong = {"full_attention": given} if by_layer else given
    message = rf"text_config\.rope_parameters.* '{misspelt}', meant is '{meant}'"
    with pytest.raises(ContractError, match=message):
        make_instructed(text_config=text_config().to_dict() | {"rope_parameters": wrong})


def test_keys_that_published_language_models_have() -> None:
    """What an older transformers wrote, and what only others read."""
    older = {
        "torch_dtype": "bfloat16",
        "rope_theta": 500.0,
        "rope_scaling": None,
        "original_max_position_embeddings": 64,
        "is_llama_config": True,
        "rope_interleaved": False,
        "sep_token_id": 3,
        "tie_encoder_decoder": False,
        "_attn_implementation_autoset": True,
        "transformers.js_config": {},
        "unsloth_version": "1",
    }
    text = text_config().to_dict()
    del text["rope_parameters"]
    config = make_instructed(text_config=text | older)
    assert config.text_config.rope_parameters["rope_theta"] == 500


MISSPELT = {
    "feature_chanels": "feature_channels",
    "head_unit": "head_units",
    "max_image": "max_images",
    "anwser_token_id": "answer_token_id",
    "image_ends_token_id": "image_end_token_id",
    "image_token_index": "image_token_id",
    "io_procesor_plugin": "io_processor_plugin",
    "vison_config": "vision_config",
    "text_configs": "text_config",
    "rastr": "raster",
}


@pytest.mark.parametrize(("misspelt", "meant"), MISSPELT.items())
def test_misspelt_keys(tmp_path: Path, misspelt: str, meant: str) -> None:
    register_with_transformers()
    make_instructed().save_pretrained(tmp_path)
    found = json.loads((tmp_path / "config.json").read_text())
    value = found.pop(meant, 1)
    (tmp_path / "config.json").write_text(json.dumps(found | {misspelt: value}))
    with pytest.raises(ContractError, match=rf"{misspelt}', meant is '{meant}'|text_config"):
        AutoConfig.from_pretrained(tmp_path)


@pytest.mark.parametrize("other", ["bos_token_id", "eos_token_id", "pad_token_id", "tie_weights"])
def test_keys_that_transformers_knows(other: str) -> None:
    assert getattr(make_instructed(**{other: 3}), other) == 3


@pytest.mark.parametrize("given", [None, {}, [1], "llama", {"vocab_size": 32}])
def test_a_language_model_is_needed(given: Any) -> None:
    with pytest.raises(ContractError, match=r"needs `text_config`.*`model_type`, got"):
        make_instructed(text_config=given)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "lama"}, "'lama', which transformers does not know"),
        ({"model_type": "clip"}, "'clip', which is no causal language model"),
        ({"num_attention_heads": "2"}, "(?s)text_config is not usable.*expected int, got str"),
        ({"num_attention_heads": 0}, "text_config is not usable"),
        ({"model_type": ["llama"]}, r"\['llama'\], which transformers does not know"),
        ({"dtype": "float13"}, "text_config is not usable.*float13"),
        ({"is_causal": False}, "is_causal=False.*must be causal"),
        ({"use_bidirectional_attention": True}, "attention=True: .*must be causal"),
    ],
)
def test_language_models_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    text = text_config().to_dict() | changes
    with pytest.raises(ContractError, match=message):
        make_instructed(text_config=text)


@pytest.mark.parametrize("name", ["feature_channels", "head_units", "max_images"])
@pytest.mark.parametrize("value", [0, -1, 1.0, "2", None, True])
def test_numbers_that_cannot_be(name: str, value: Any) -> None:
    with pytest.raises(ContractError, match=rf"{name} must be a whole number from 1, got"):
        make_instructed(**{name: value})


@pytest.mark.parametrize("name", ["image_token_id", "row_token_id", "answer_token_id"])
@pytest.mark.parametrize("value", [-1, 4.0, "4", True])
def test_token_ids_that_cannot_be(name: str, value: Any) -> None:
    with pytest.raises(ContractError, match=rf"{name} must be a whole number from 0, got"):
        make_instructed(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("row_token_id", 4), *((one, i) for one in AROUND for i in (4, 5))],
)
def test_tokens_that_stand_for_two_things(name: str, value: int) -> None:
    with pytest.raises(ContractError, match="must differ from each other and from the other"):
        make_instructed(**{name: value})


def test_the_end_of_an_image_may_open_the_answer() -> None:
    assert make_instructed(image_end_token_id=2).answer_token_id == 2


def test_a_tile_and_a_word_must_fit() -> None:
    tokens = len(make_instructed().image_tokens(TILE, TILE))
    # A word, the answer, and a request's key of eight digits.
    text = text_config(max_position_embeddings=tokens + 9)
    told = rf"embeddings is {tokens + 9}, .* request's key are {tokens + 10} tokens"
    with pytest.raises(ContractError, match=told):
        make_instructed(text_config=text)
    make_instructed(text_config=text, answer_token_id=None)
    make_instructed(text_config=text_config(max_position_embeddings=tokens + 10))


def test_a_tile_and_a_word_must_fit_what_the_engine_is_told(llama: InstructedServing) -> None:
    tokens = len(make_instructed().image_tokens(TILE, TILE))
    with pytest.raises(ValueError, match=rf"--max-model-len is {tokens + 9}, but a tile"):
        engine_config(llama.checkpoint, max_model_len=tokens + 9)
    assert engine_config(llama.checkpoint, max_model_len=tokens + 10)


def test_instructions_belong_to_a_language_model() -> None:
    block = instructed_block()
    del block["instructions"]
    with pytest.raises(ContractError, match=r"raster\.instructions is missing"):
        make_instructed(raster=block)
    with pytest.raises(ContractError, match=r"instructions is for checkpoints with a language"):
        RasterConfig(vision_config=dict(NETWORK), raster=instructed_block())


def test_a_template_without_parts_of_the_grid() -> None:
    instructions = {**INSTRUCTIONS, "template": "<row>{instruction}<image>"}
    with pytest.raises(ContractError, match="template may not hold <row>"):
        make_instructed(raster=instructed_block() | {"instructions": instructions})
