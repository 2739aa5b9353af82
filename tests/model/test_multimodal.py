"""What vLLM's renderer makes of a prompt and its window, through the registered processor."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.config.multimodal import ImageDummyOptions
from vllm.exceptions import VLLMClientError
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.inputs import MultiModalKwargsItems
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

from vllm_raster_model.engine_budget import PROMPT_WINDOWS
from vllm_raster_model.errors import ContractError, ImageItemError
from vllm_raster_model.grid import Grid
from vllm_raster_model.multimodal import RasterDummyInputs, RasterProcessingInfo
from vllm_raster_model.processor import RasterProcessor

from .checkpoints import CELL, TILE
from .items import EVERYWHERE, Lazy, mask, pixels, window
from .serving import Serving, engine_config

IMAGE, ROW = 4, 5
SIZES = [(1, 1), (8, 8), (7, 9), (9, 7), (1, 32), (32, 1), (17, 24), (31, 32), (32, 32)]

sides = st.integers(1, TILE)
few = settings(derandomize=True, deadline=None, max_examples=25)


@pytest.fixture(scope="module")
def info(enlarge: Serving) -> RasterProcessingInfo:
    return enlarge.processor.info


@pytest.fixture(scope="module")
def dummies(enlarge: Serving) -> RasterDummyInputs:
    return enlarge.processor.dummy_inputs


def grid_of(height: int, width: int) -> Grid:
    return Grid(-(-height // CELL), -(-width // CELL))


def fields(prepared: dict[str, Any]) -> dict[str, Any]:
    (item,) = prepared["mm_kwargs"]["image"]
    return {name: element.data for name, element in item.items()}


def test_as_many_images_a_prompt_as_there_is_room_for(enlarge: Serving) -> None:
    most, info = enlarge.config.max_images, enlarge.processor.info
    assert most == PROMPT_WINDOWS
    assert info.get_supported_mm_limits() == info.allowed_mm_limits == {"image": most}
    prepared = enlarge.prepare("0".join(["<image>"] * most), *[window(TILE, TILE)] * most)
    assert len(prepared["prompt_token_ids"]) <= enlarge.vllm_config.model_config.max_model_len


def test_largest_window_is_the_tile(info: RasterProcessingInfo) -> None:
    assert info.get_image_size_with_most_features() == (TILE, TILE)


def test_processor_is_the_checkpoint_s(info: RasterProcessingInfo) -> None:
    processor = info.get_hf_processor()
    assert type(processor) is RasterProcessor
    assert (processor.bands, processor.frames, processor.cell) == (3, 1, CELL)


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_tokens_of_a_window(enlarge: Serving, height: int, width: int) -> None:
    prepared = enlarge.prepare("<image>", window(height, width))
    ids = prepared["prompt_token_ids"]
    grid = grid_of(height, width)
    assert ids == ([IMAGE] * grid.columns + [ROW]) * grid.rows
    info = enlarge.processor.info
    assert info.get_num_image_tokens(image_width=width, image_height=height) == len(ids)
    (cells,) = enlarge.encode([prepared])
    assert cells.shape == (grid.cells, enlarge.vllm_config.model_config.get_inputs_embeds_size())


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_only_cells_are_embeddings(enlarge: Serving, height: int, width: int) -> None:
    prepared = enlarge.prepare("0<image>1", window(height, width))
    (place,) = prepared["mm_placeholders"]["image"]
    ids = torch.tensor(prepared["prompt_token_ids"])
    assert (place.offset, place.length) == (1, len(ids) - 2)
    assert torch.equal(place.is_embed, ids[1:-1] == IMAGE)
    (cells,) = enlarge.encode([prepared])
    assert place.get_num_embeds() == len(cells) == grid_of(height, width).cells


@few
@given(height=sides, width=sides)
def test_tokens_of_any_window(enlarge: Serving, height: int, width: int) -> None:
    item = {"pixel_values": Lazy(np.empty((3, height, width), "uint8"))}
    prepared = enlarge.prepare("<image>", item)
    count = enlarge.processor.info.get_num_image_tokens(image_width=width, image_height=height)
    assert len(prepared["prompt_token_ids"]) == count
    (place,) = prepared["mm_placeholders"]["image"]
    assert place.get_num_embeds() == grid_of(height, width).cells


GRID = [IMAGE, IMAGE, ROW] * 2


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        ("<image>", GRID),
        ("", GRID),
        ("0f", [*GRID, 6, 21]),
        ("<image>0f", [*GRID, 6, 21]),
        ("0<image>f", [6, *GRID, 21]),
        ("0f<image>", [6, 21, *GRID]),
    ],
)
def test_text_and_token_ids(enlarge: Serving, prompt: str, ids: list[int]) -> None:
    item = window(16, 9)
    from_text = enlarge.prepare(prompt, item)
    token_ids = enlarge.processor.info.get_tokenizer().encode(prompt)
    from_ids = enlarge.prepare(token_ids, item)
    assert from_text["prompt_token_ids"] == from_ids["prompt_token_ids"] == ids
    for prepared in (from_text, from_ids):
        (place,) = prepared["mm_placeholders"]["image"]
        assert place.offset == ids.index(IMAGE)
        assert place.length == len(GRID)


@pytest.mark.parametrize(
    ("prompt", "named", "rows"),
    [("<image><image>", 2, 0), ("<row>", 0, 1), ("<image>0<row><row>", 1, 2), ([5, 4, 4], 2, 1)],
)
def test_refuses_what_could_be_taken_for_cells(
    enlarge: Serving, prompt: str | list[int], named: int, rows: int
) -> None:
    message = rf"image token 4 once .* here 1, .* row token 5, got them {named} and {rows} times"
    with pytest.raises(ImageItemError, match=message):
        enlarge.prepare(prompt, window(8, 8))


@pytest.mark.parametrize(("height", "width"), [(TILE + 1, 8), (8, TILE + 1), (4 * TILE, 1)])
def test_refuses_windows_larger_than_the_tile(enlarge: Serving, height: int, width: int) -> None:
    message = rf"may have {TILE} × {TILE} pixels, got {height} × {width}"
    with pytest.raises(ImageItemError, match=message):
        enlarge.prepare("<image>", window(height, width))


@pytest.mark.parametrize("name", ["bands", "frames", "cell", "minimum_cells"])
def test_refuses_another_checkpoints_processor(
    info: RasterProcessingInfo, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(info.get_hf_processor(), name, 7)
    with pytest.raises(ContractError, match=rf"{name}=7, but by the raster block"):
        info.get_hf_processor()


def test_refuses_more_images(enlarge: Serving) -> None:
    most = enlarge.config.max_images
    with pytest.raises(VLLMClientError, match=rf"At most {most} image\(s\)"):
        enlarge.prepare("<image>", *[window(8, 8)] * (most + 1))


def test_refuses_images_that_touch(enlarge: Serving) -> None:
    with pytest.raises(ImageItemError, match="Two images may not touch in a prompt"):
        enlarge.prepare("<image><image>", window(8, 8), window(8, 8))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (object(), "must be a mapping with 'pixel_values', got object"),
        (pixels(8, 8), "must be a mapping with 'pixel_values', got ndarray"),
        ([None], "must be a mapping with 'pixel_values', got NoneType"),
        ({"pixels": 1}, r"must be a mapping with 'pixel_values', got keys \['pixels'\]"),
        ({"pixel_values": 1}, r"3 bands and 1 frames, got shape \(\)"),
        ({"pixel_values": np.zeros((8, 8))}, r"3 bands and 1 frames, got shape \(8, 8\)"),
        (window(8, 8, date=1), r"got also \['date'\]"),
    ],
)
def test_refuses_what_is_no_item(enlarge: Serving, data: Any, message: str) -> None:
    with pytest.raises(ImageItemError, match=message):
        enlarge.processor("<image>", enlarge.processor.info.parse_mm_data({"image": data}))


def test_no_image_data_is_no_item(info: RasterProcessingInfo) -> None:
    assert info.parse_mm_data({"image": None}).get_all_counts().get("image", 0) == 0


def test_fields_reach_the_engine(enlarge: Serving) -> None:
    item = window(9, 17, valid=mask(9, 17)) | EVERYWHERE
    found = fields(enlarge.prepare("<image>", item))
    assert found.keys() == {"pixel_values", "valid", "temporal_coords", "location_coords"}
    (stored,) = found["pixel_values"]
    assert stored.dtype == torch.uint16
    np.testing.assert_array_equal(stored[:, 0], item["pixel_values"])
    np.testing.assert_array_equal(found["valid"], item["valid"])
    for name in EVERYWHERE:
        assert found[name].dtype == torch.float64  # vLLM would make it the model's type
        np.testing.assert_array_equal(found[name], item[name])


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "uint32", "float32", "float64"])
def test_fields_cross_the_process_boundary(enlarge: Serving, dtype: str) -> None:
    item = {"pixel_values": pixels(9, 17, dtype=dtype), "valid": mask(9, 17), **EVERYWHERE}
    prepared = enlarge.prepare("<image>", item)
    message = MsgpackEncoder().encode(prepared["mm_kwargs"])
    arrived = MsgpackDecoder(MultiModalKwargsItems).decode(message)
    sent, found = fields(prepared), fields({"mm_kwargs": arrived})
    for name, value in sent.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=0, equal_nan=True)


def test_lazy_pixels_are_read_once(enlarge: Serving) -> None:
    lazy = Lazy(pixels(9, 17))
    data = enlarge.processor.info.parse_mm_data({"image": {"pixel_values": lazy}})
    assert data.get_items("image", object).get_image_size(0) == (17, 9)
    assert lazy.times_read == 0
    (stored,) = fields(enlarge.prepare("<image>", {"pixel_values": lazy}))["pixel_values"]
    np.testing.assert_array_equal(stored[:, 0], pixels(9, 17))


def dummy_item(dummies: RasterDummyInputs, **options: int) -> dict[str, Any]:
    given = {"image": ImageDummyOptions(**options)} if options else {}
    (item,) = dummies.get_dummy_mm_data(100, {"image": 1}, given)["image"]
    return item


def size_in_bytes(prepared: dict[str, Any]) -> int:
    found = fields(prepared)
    (stored,) = found.pop("pixel_values")
    return stored.nbytes + sum(value.nbytes for value in found.values())


def test_dummy_is_a_full_tile(enlarge: Serving, dummies: RasterDummyInputs) -> None:
    assert dummies.get_dummy_text({"image": 1}) == "<image>"
    assert dummies.get_dummy_text({"image": 3}) == "<image>0<image>0<image>"
    assert dummies.get_dummy_text({}) == ""
    assert dummies.get_dummy_mm_data(100, {}, {}) == {"image": []}
    prepared = enlarge.processor.get_dummy_mm_inputs({"image": 1})
    (place,) = prepared["mm_placeholders"]["image"]
    assert place.length == enlarge.config.largest_grid.tokens == 20
    found = fields(prepared)
    assert found["pixel_values"][0].shape == (3, 1, TILE, TILE)
    assert found["valid"].shape == (TILE, TILE)


@few
@given(height=sides, width=sides, dtype=st.sampled_from(["uint8", "uint16", "int64", "float64"]))
def test_no_window_is_worse_than_the_dummy(
    enlarge: Serving, height: int, width: int, dtype: str
) -> None:
    item = {"pixel_values": pixels(height, width, dtype=dtype), "valid": mask(height, width)}
    one = enlarge.prepare("<image>", item | EVERYWHERE)
    worst = enlarge.processor.get_dummy_mm_inputs({"image": 1})
    (place,), (largest,) = (each["mm_placeholders"]["image"] for each in (one, worst))
    assert place.length <= largest.length
    assert place.get_num_embeds() <= largest.get_num_embeds()
    assert size_in_bytes(one) <= size_in_bytes(worst)


def test_dummies_are_as_many_full_tiles(enlarge: Serving) -> None:
    most = enlarge.config.max_images
    prepared = enlarge.processor.get_dummy_mm_inputs({"image": most})
    places = prepared["mm_placeholders"]["image"]
    assert [one.length for one in places] == [enlarge.config.largest_grid.tokens] * most


def test_dummy_may_be_smaller_but_not_larger(dummies: RasterDummyInputs) -> None:
    assert dummy_item(dummies, width=16)["pixel_values"].shape[-2:] == (TILE, 16)
    assert dummy_item(dummies, width=999, height=8)["valid"].shape == (8, TILE)


def test_whole_prompt_fits(enlarge: Serving) -> None:
    for images in (1, 2, enlarge.config.max_images):
        ids = enlarge.prepare("0".join(["<image>"] * images), *[window(TILE, TILE)] * images)
        longest = len(ids["prompt_token_ids"]) + 64
        assert longest == enlarge.config.prompt_tokens(images)
    assert longest == enlarge.vllm_config.model_config.max_model_len


def test_token_ids_need_no_tokenizer(enlarge: Serving) -> None:
    """As started with --skip-tokenizer-init."""
    model = engine_config(enlarge.checkpoint, skip_tokenizer_init=True).model_config
    assert model.supports_multimodal_inputs
    processor = MULTIMODAL_REGISTRY.create_processor(model)
    data = processor.info.parse_mm_data({"image": [window(17, 24)]})
    wanted = enlarge.prepare([IMAGE, 7, 8], window(17, 24))
    for prompt in ([IMAGE, 7, 8], [7, 8]):
        prepared = processor(prompt, data)
        assert prepared["prompt_token_ids"] == wanted["prompt_token_ids"]
        assert prepared["mm_placeholders"] == wanted["mm_placeholders"]
    with pytest.raises(ValueError, match="skip_tokenizer_init=True"):
        processor("<image>", data)
    (place,) = processor.get_dummy_mm_inputs({"image": 1})["mm_placeholders"]["image"]
    assert place.length == model.hf_config.largest_grid.tokens
