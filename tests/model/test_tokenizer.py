"""The small tokenizers, of digits alone and of words."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from vllm_raster_model.config import RasterConfig
from vllm_raster_model.tokenizer import (
    IMAGE_TOKEN,
    ROW_TOKEN,
    minimal_tokenizer,
    with_words,
    word_tokenizer,
)

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


def test_words_come_behind_the_digits() -> None:
    tokenizer = word_tokenizer(["Water", "find", "water", "the", "a"])
    assert len(tokenizer) == 22 + 3  # `a` is a digit
    assert tokenizer("find the water")["input_ids"] == [22, 23, 24]
    assert tokenizer("FIND  The\nwater")["input_ids"] == [22, 23, 24]
    assert tokenizer("")["input_ids"] == []


def test_other_words_are_unknown() -> None:
    tokenizer = word_tokenizer(["find", "water"])
    assert tokenizer("find gold, water!")["input_ids"] == [22, 3, 3, 23, 3]
    assert tokenizer("findwater")["input_ids"] == [3]


def test_digits_and_special_tokens_among_words() -> None:
    tokenizer = word_tokenizer(["find", "water"])
    for digit, token in zip(DIGITS, range(6, 22), strict=True):
        assert tokenizer.encode(digit, add_special_tokens=False) == [token]
    text = f"<bos>water{IMAGE_TOKEN}{IMAGE_TOKEN}{ROW_TOKEN}find 0 f<eos>"
    assert tokenizer(text)["input_ids"] == [1, 23, 4, 4, 5, 22, 6, 21, 2]


def test_words_survive_saving(tmp_path: Path) -> None:
    word_tokenizer(["find", "water"]).save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded(f"Find water{IMAGE_TOKEN}")["input_ids"] == [22, 23, 4]


class TestWithWords:
    def test_new_ones_come_behind_all_others(self) -> None:
        tokenizer = word_tokenizer(["find", "water"])
        grown = with_words(tokenizer, ["Find the SNOW", "snow, or ice-cream"])
        new = {",": 24, "-": 25, "cream": 26, "ice": 27, "or": 28, "snow": 29, "the": 30}
        assert grown.get_vocab() == tokenizer.get_vocab() | new
        assert len(grown) == len(tokenizer) + len(new) == 31
        assert grown("find the Snow,water<image>ice 0f")["input_ids"] == [
            *(22, 30, 29, 24, 23, 4, 27),
            3,  # `0f` is no word, and keys are not written so
        ]
        assert_codes_among_words(grown)

    def test_the_one_given_is_left_alone(self) -> None:
        tokenizer = word_tokenizer(["find"])
        grown = with_words(tokenizer, ["snow"])
        assert tokenizer("find snow")["input_ids"] == [22, 3]
        assert grown("find snow")["input_ids"] == [22, 23]
        assert len(tokenizer) == 23

    @pytest.mark.parametrize(
        "texts", [[], ["Find"], ["a 0 f find", ""], ["<bos>find<image>f <unk>"]]
    )
    def test_nothing_new(self, texts: list[str]) -> None:
        tokenizer = word_tokenizer(["find"])
        assert with_words(tokenizer, texts).get_vocab() == tokenizer.get_vocab()

    def test_twice_and_saved(self, tmp_path: Path) -> None:
        grown = with_words(with_words(word_tokenizer(["find"]), ["snow"]), ["clouds", "snow"])
        grown.save_pretrained(tmp_path)
        loaded = AutoTokenizer.from_pretrained(tmp_path)
        grown = with_words(loaded, ["ice"])
        for one in (loaded, grown):
            assert one("find CLOUDS and snow<image>")["input_ids"] == [22, 24, 3, 23, 4]
            assert one.unk_token_id == 3
            assert one.all_special_tokens == word_tokenizer([]).all_special_tokens
        assert grown("ice")["input_ids"] == [25]

    def test_one_that_takes_words_apart_needs_none(self) -> None:
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        backend = Tokenizer(models.BPE({one: i for i, one in enumerate(letters)}, []))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
        same = with_words(tokenizer, ["snow"])
        assert len(same) == len(tokenizer) == 256
        assert same.decode(same("snow")["input_ids"]) == "snow"


def assert_codes_among_words(tokenizer: PreTrainedTokenizerBase) -> None:
    for digit, token in zip(DIGITS, range(6, 22), strict=True):
        assert tokenizer.encode(digit, add_special_tokens=False) == [token]


def assert_codes(tokenizer: PreTrainedTokenizerBase) -> None:
    # vLLM asks for special tokens around the text: there are none.
    assert tokenizer(DIGITS)["input_ids"] == list(range(6, 22))
    assert tokenizer(f"{IMAGE_TOKEN}0f{ROW_TOKEN}")["input_ids"] == [4, 6, 21, 5]
    assert tokenizer("Z!")["input_ids"] == [3, 3]
    assert tokenizer("")["input_ids"] == []
