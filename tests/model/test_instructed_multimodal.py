"""What vLLM's renderer makes of a prompt that says what to map, and of its windows."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.exceptions import VLLMClientError

from vllm_raster_model.errors import ContractError, ImageItemError
from vllm_raster_model.grid import Grid
from vllm_raster_model.processor import RasterProcessor

from .checkpoints import CELL, TILE, make_processor
from .instructed import (
    ANSWER,
    END,
    FIELDS,
    FIND,
    IMAGE,
    ROW,
    THE,
    WATER,
    WIDTH,
    WORDS,
    instructed_block,
    make_instructed,
)
from .items import Lazy, window
from .serving import InstructedServing

SIZES = [(1, 1), (8, 8), (7, 9), (1, 32), (32, 1), (17, 24), (32, 32)]
ONE = [IMAGE, IMAGE, ROW] * 2 + [END]  # of 16 × 9 pixels
OTHER = [IMAGE, ROW, END]  # of 1 × 1 pixel

sides = st.integers(1, TILE)
few = settings(derandomize=True, deadline=None, max_examples=20)


def grid_of(height: int, width: int) -> Grid:
    return Grid(-(-height // CELL), -(-width // CELL))


def test_as_many_images_as_the_checkpoint_says(
    llama: InstructedServing, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = llama.processor.info
    assert info.get_supported_mm_limits() == {"image": 2}
    monkeypatch.setattr(llama.config, "max_images", 5)
    assert info.get_supported_mm_limits() == {"image": 5}


def test_refuses_more(llama: InstructedServing) -> None:
    with pytest.raises(VLLMClientError, match=r"At most 2 image\(s\)"):
        llama.prepare("water", *[window(8, 8)] * 3)


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_only_cells_are_embeddings(llama: InstructedServing, height: int, width: int) -> None:
    prepared = llama.prepare("find water<image>7", window(height, width))
    grid = grid_of(height, width)
    tokens = ([IMAGE] * grid.columns + [ROW]) * grid.rows + [END]
    assert prepared["prompt_token_ids"] == [FIND, WATER, *tokens, 6 + 7, ANSWER]
    (place,) = prepared["mm_placeholders"]["image"]
    assert (place.offset, place.length) == (2, len(tokens))
    assert torch.equal(place.is_embed, torch.tensor(tokens) == IMAGE)
    info = llama.processor.info
    assert info.get_num_image_tokens(image_width=width, image_height=height) == len(tokens)
    (cells,) = llama.encode([prepared])
    assert cells.shape == (place.get_num_embeds(), WIDTH + llama.config.detail_width)


@few
@given(height=sides, width=sides)
def test_a_cell_an_embedding_for_any_window(
    llama: InstructedServing, height: int, width: int
) -> None:
    prepared = llama.prepare("water", window(height, width))
    (place,) = prepared["mm_placeholders"]["image"]
    (cells,) = llama.encode([prepared])
    assert place.get_num_embeds() == len(cells) == grid_of(height, width).cells


TEXTS = [
    ("find water<image>", [FIND, WATER, *ONE, ANSWER]),
    ("<image>", [*ONE, ANSWER]),
    ("<image>find water", [*ONE, FIND, WATER, ANSWER]),
    ("find<image>the fields 0f", [FIND, *ONE, THE, FIELDS, 3, ANSWER]),
    ("<bos>water<image>f", [1, WATER, *ONE, 21, ANSWER]),
    # Without its name, the image comes where it has read the text, before the answer.
    ("find water", [FIND, WATER, *ONE, ANSWER]),
    ("", [*ONE, ANSWER]),
]


@pytest.mark.parametrize(("text", "ids"), TEXTS)
def test_text_and_token_ids(llama: InstructedServing, text: str, ids: list[int]) -> None:
    item = window(16, 9)
    from_text = llama.prepare(text, item)
    from_ids = llama.prepare(llama.processor.info.get_tokenizer().encode(text), item)
    assert from_text["prompt_token_ids"] == ids
    assert from_ids["prompt_token_ids"] == ids
    for prepared in (from_text, from_ids):
        (place,) = prepared["mm_placeholders"]["image"]
        assert (place.offset, place.length) == (ids.index(IMAGE), len(ONE))


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("find<image>water<image>", [FIND, *ONE, WATER, *OTHER, ANSWER]),
        ("<image><image>", [*ONE, *OTHER, ANSWER]),
        ("find<image>water", [FIND, *ONE, WATER, *OTHER, ANSWER]),
        ("find water", [FIND, WATER, *ONE, *OTHER, ANSWER]),
        ("", [*ONE, *OTHER, ANSWER]),
    ],
)
def test_two_images(llama: InstructedServing, text: str, ids: list[int]) -> None:
    items = window(16, 9), window(1, 1)
    from_text = llama.prepare(text, *items)
    from_ids = llama.prepare(llama.processor.info.get_tokenizer().encode(text), *items)
    for prepared in (from_text, from_ids):
        assert prepared["prompt_token_ids"] == ids
        first, second = prepared["mm_placeholders"]["image"]
        assert ids[first.offset :][: first.length] == ONE
        assert ids[second.offset :][: second.length] == OTHER
        assert first.offset + first.length <= second.offset


@pytest.mark.parametrize("text", ["find<image><image>water", "find water", "<image>", ""])
def test_images_that_touch(
    llama: InstructedServing, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Two grids in a row would be read as one, of both images' rows."""
    monkeypatch.setattr(llama.processor.info.get_hf_processor(), "image_end_token", None)
    monkeypatch.setattr(llama.config, "image_end_token_id", None)
    with pytest.raises(ImageItemError, match=r"images may not touch in a prompt.* put a word"):
        llama.prepare(text, window(16, 9), window(8, 9))
    found = llama.prepare("find<image>water<image>", window(16, 9), window(8, 9))
    assert found["prompt_token_ids"] == [FIND, *ONE[:-1], WATER, *ONE[:3], ANSWER]
    assert llama.prepare("find", window(1, 1))["prompt_token_ids"] == [FIND, IMAGE, ROW, ANSWER]


@pytest.mark.parametrize(("rows", "image"), [(26, 4), (20, 4), (25, 26)])
def test_refuses_a_tokenizer_of_more_words_than_the_table(
    llama: InstructedServing, monkeypatch: pytest.MonkeyPatch, rows: int, image: int
) -> None:
    info = llama.processor.info
    processor, words = info.get_hf_processor(), info.get_tokenizer()
    assert len(words) == 27
    monkeypatch.setattr(processor, "image_token", words.convert_ids_to_tokens(image))
    monkeypatch.setattr(llama.config, "image_token_id", image)
    assert info.get_hf_processor() is processor
    monkeypatch.setattr(llama.config, "vocab_size", rows)
    with pytest.raises(ContractError, match=rf"has 27 tokens, but .* has {rows} \(text_config"):
        info.get_hf_processor()


def test_the_image_s_own_token_needs_no_row(
    llama: InstructedServing, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = llama.processor.info
    processor, last = info.get_hf_processor(), info.get_tokenizer().convert_ids_to_tokens(26)
    monkeypatch.setattr(processor, "image_token", last)
    monkeypatch.setattr(llama.config, "image_token_id", 26)
    monkeypatch.setattr(llama.config, "vocab_size", 26)
    assert info.get_hf_processor() is processor


def test_text_without_an_image(llama: InstructedServing) -> None:
    assert llama.prepare("find water")["prompt_token_ids"] == [FIND, WATER, ANSWER]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (text, text.count("<image>"))
        for text in (
            "find water<image>",
            "<image>",
            "<bos>find<image>the fields 0 f",
            "<image>find<image>water",
            "find<image><image>7",
        )
    ],
)
def test_as_in_transformers(llama: InstructedServing, text: str, count: int) -> None:
    items = [window(16, 9), window(32, 1)][:count]
    processor = RasterProcessor.from_pretrained(llama.checkpoint)
    (expected,) = processor(images=items, text=text)["input_ids"]
    assert llama.prepare(text, *items)["prompt_token_ids"] == expected
    assert expected.count(ANSWER) == 1
    assert expected.count(END) - text.count("<bos>") == count


def test_tokens_around_texts_and_images() -> None:
    processor = make_processor(make_instructed(), WORDS)
    assert (processor.image_end_token, processor.answer_token) == ("<bos>", "<eos>")
    items = [window(16, 9), window(1, 1), window(1, 1)]
    found = processor(images=items, text=["find<image>7<image>", "<image>water", "now"])
    assert found["input_ids"] == [
        [FIND, *ONE, 13, *OTHER, ANSWER],
        [*OTHER, WATER, ANSWER],
        [24, ANSWER],
    ]


@pytest.mark.parametrize("names", [*combinations(("image_end_token_id", "answer_token_id"), 1), ()])
def test_either_token_may_be_missing(names: tuple[str, ...]) -> None:
    none = dict.fromkeys(("image_end_token_id", "answer_token_id")) | dict.fromkeys(names, 2)
    processor = make_processor(make_instructed(**none), WORDS)
    (found,) = processor(images=window(1, 1), text="water<image>")["input_ids"]
    end = [2] if "image_end_token_id" in names else []
    answer = [2] if "answer_token_id" in names else []
    assert found == [WATER, IMAGE, ROW, *end, *answer]


@pytest.mark.parametrize(
    ("prompt", "named", "rows"),
    [
        ("<image><image>", 2, 0),
        ("find<row><image>", 1, 1),
        ([FIND, IMAGE, IMAGE], 2, 0),
    ],
)
def test_refuses_what_could_be_taken_for_cells(
    llama: InstructedServing, prompt: str | list[int], named: int, rows: int
) -> None:
    message = rf"once for each image, here 1, .* row token 5, got them {named} and {rows} times"
    with pytest.raises(ImageItemError, match=message):
        llama.prepare(prompt, window(8, 8))


@pytest.mark.parametrize("name", ["image_end_token", "answer_token"])
@pytest.mark.parametrize("token", [None, "7"])
def test_refuses_a_processor_that_puts_other_tokens(
    llama: InstructedServing, monkeypatch: pytest.MonkeyPatch, name: str, token: str | None
) -> None:
    info = llama.processor.info
    monkeypatch.setattr(info.get_hf_processor(), name, token)
    wanted = None if token is None else 13
    with pytest.raises(ContractError, match=rf"{name}_id=\d, but .* {token} is {wanted}"):
        info.get_hf_processor()


def test_dummies_are_as_many_full_tiles(llama: InstructedServing) -> None:
    assert llama.processor.dummy_inputs.get_dummy_text({"image": 2}) == "<image>0<image>"
    prepared = llama.processor.get_dummy_mm_inputs({"image": 2})
    first, second = prepared["mm_placeholders"]["image"]
    side = TILE // CELL
    assert first.length == second.length == side * (side + 1) + 1
    for item in prepared["mm_kwargs"]["image"]:
        assert item["pixel_values"].data[0].shape[-2:] == (TILE, TILE)


def test_no_pixel_is_read_for_the_tokens(llama: InstructedServing) -> None:
    lazy = Lazy(np.zeros((3, 9, 17), "uint8"))
    data = llama.processor.info.parse_mm_data({"image": [{"pixel_values": lazy}]})
    assert data.get_items("image", object).get_image_size(0) == (17, 9)
    assert lazy.times_read == 0


def test_the_block_may_ask_for_larger_grids() -> None:
    block: dict[str, Any] = instructed_block(tile={"minimum": 16})
    config = make_instructed(raster=block)
    assert config.image_tokens(1, 1) == [IMAGE, IMAGE, ROW, IMAGE, IMAGE, ROW, END]
    (found,) = make_processor(config, WORDS)(images=window(1, 1), text="<image>")["input_ids"]
    assert found == [*config.image_tokens(1, 1), ANSWER]
