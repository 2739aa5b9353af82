"""The tokenizer of a checkpoint without a language model."""

from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from vllm_raster_model.config import RasterConfig
from vllm_raster_model.tokenizer import IMAGE_TOKEN, ROW_TOKEN, minimal_tokenizer

DIGITS = "0123456789abcdef"


def test_ids_are_the_configuration_s_defaults() -> None:
    tokenizer, config = minimal_tokenizer(), RasterConfig()
    assert len(tokenizer) == config.vocab_size == 22
    assert tokenizer.convert_tokens_to_ids(IMAGE_TOKEN) == config.image_token_id == 4
    assert tokenizer.convert_tokens_to_ids(ROW_TOKEN) == config.row_token_id == 5


def test_special_tokens() -> None:
    tokenizer = minimal_tokenizer()
    assert tokenizer.all_special_tokens[:4] == ["<bos>", "<eos>", "<unk>", "<pad>"]
    special = (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id)
    assert (*special, tokenizer.unk_token_id) == (0, 1, 2, 3)


def test_each_digit_is_one_token() -> None:
    assert_codes(minimal_tokenizer())


def test_survives_saving(tmp_path: Path) -> None:
    minimal_tokenizer().save_pretrained(tmp_path)
    assert_codes(AutoTokenizer.from_pretrained(tmp_path))


def assert_codes(tokenizer: PreTrainedTokenizerBase) -> None:
    # vLLM asks for special tokens around the text: there are none.
    assert tokenizer(DIGITS)["input_ids"] == list(range(6, 22))
    assert tokenizer(f"{IMAGE_TOKEN}0f{ROW_TOKEN}")["input_ids"] == [4, 6, 21, 5]
    assert tokenizer("Z!")["input_ids"] == [3, 3]
    assert tokenizer("")["input_ids"] == []
