"""The processor: what image items become, which are refused, and the text around them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoProcessor

from vllm_raster_model.errors import ImageItemError
from vllm_raster_model.processor import RasterProcessor
from vllm_raster_model.registration import register_with_transformers
from vllm_raster_model.tokenizer import minimal_tokenizer

from .checkpoints import make_config, make_processor
from .items import Lazy, mask, pixels, window

FIELDS = ("pixel_values", "valid", "temporal_coords", "location_coords")
DTYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]


@pytest.fixture
def processor() -> RasterProcessor:
    return make_processor(make_config())


@pytest.fixture
def of_two_dates() -> RasterProcessor:
    return make_processor(make_config(input={"frames": 2}))


def only(processor: RasterProcessor, **fields: Any) -> dict[str, Any]:
    """What becomes of one image item."""
    prepared = processor(images=fields)
    assert all(len(values) == 1 for values in prepared.values())
    return {name: values[0] for name, values in prepared.items()}


@pytest.mark.parametrize("dtype", [*DTYPES, "float16", "float32", "float64"])
def test_keeps_pixels_and_their_type(processor: RasterProcessor, dtype: str) -> None:
    given = pixels(5, 7, dtype=dtype)
    found = only(processor, pixel_values=given)["pixel_values"]
    assert found.shape == (3, 1, 5, 7)
    assert found.dtype == getattr(torch, dtype)
    np.testing.assert_array_equal(found[:, 0].numpy(), given)


def test_items_of_four_dimensions(
    processor: RasterProcessor, of_two_dates: RasterProcessor
) -> None:
    given = pixels(10, 7).reshape(3, 2, 5, 7)
    np.testing.assert_array_equal(only(of_two_dates, pixel_values=given)["pixel_values"], given)
    first = given[:, :1]
    np.testing.assert_array_equal(only(processor, pixel_values=first)["pixel_values"], first)


@pytest.mark.parametrize("dtype", [">u2", ">i4", ">f4", ">f8"])
def test_big_endian(processor: RasterProcessor, dtype: str) -> None:
    given = pixels(5, 7).astype(dtype)
    found = only(processor, pixel_values=given)["pixel_values"]
    assert found.numpy().dtype == given.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found[:, 0], given)


def test_arrays_that_torch_does_not_take(processor: RasterProcessor) -> None:
    given = pixels(5, 7)[:, ::-1, ::2]
    given.flags.writeable = False
    found = only(processor, pixel_values=given)["pixel_values"]
    np.testing.assert_array_equal(found[:, 0], given)
    found.zero_()
    assert given.any(), "shares the memory of a read-only array"


def test_lazy_objects(processor: RasterProcessor) -> None:
    lazy, valid = Lazy(pixels(5, 7)), Lazy(mask(5, 7))
    found = only(processor, pixel_values=lazy, valid=valid)
    np.testing.assert_array_equal(found["pixel_values"][:, 0], pixels(5, 7))
    np.testing.assert_array_equal(found["valid"], mask(5, 7))
    assert (lazy.times_read, valid.times_read) == (1, 1)


def test_tensors_and_lists(processor: RasterProcessor) -> None:
    given = torch.arange(24).view(3, 2, 4)
    for values in (given, given.tolist()):
        assert torch.equal(only(processor, pixel_values=values)["pixel_values"][:, 0], given)


def test_mask(processor: RasterProcessor) -> None:
    for given in (mask(5, 7), mask(5, 7).astype("uint8") * 255, mask(5, 7).tolist()):
        found = only(processor, pixel_values=pixels(5, 7), valid=given)["valid"]
        assert found.dtype == torch.bool
        np.testing.assert_array_equal(found, mask(5, 7))


@pytest.mark.parametrize("given", [None, np.ones((5, 7), bool), np.full((5, 7), 255)])
def test_mask_is_empty_where_all_is_valid(processor: RasterProcessor, given: Any) -> None:
    found = only(processor, pixel_values=pixels(5, 7), valid=given)["valid"]
    assert (found.dtype, found.shape) == (torch.bool, (0, 0))


def test_coordinates(of_two_dates: RasterProcessor) -> None:
    found = only(
        of_two_dates,
        pixel_values=np.zeros((3, 2, 5, 7)),
        temporal_coords=[(2020, 1), (2021.5, np.nan)],
        location_coords=np.array([47.123456789, -11], ">f8"),
    )
    dates, place = found["temporal_coords"], found["location_coords"]
    assert dates.dtype == place.dtype == torch.float64
    np.testing.assert_array_equal(dates, [[2020, 1], [2021.5, np.nan]])
    np.testing.assert_array_equal(place, [47.123456789, -11])


def test_coordinates_are_nan_where_unknown(of_two_dates: RasterProcessor) -> None:
    found = only(of_two_dates, pixel_values=np.zeros((3, 2, 5, 7)), location_coords=None)
    np.testing.assert_array_equal(found["temporal_coords"], np.full((2, 2), np.nan))
    np.testing.assert_array_equal(found["location_coords"], np.full(2, np.nan))


def test_items_keep_their_order_and_fields(processor: RasterProcessor) -> None:
    items = [
        window(5, 7, seed=1, location_coords=(1, 2)),
        window(9, 3, seed=2, valid=mask(9, 3)),
        window(5, 7, seed=3),
    ]
    prepared = processor(images=items)
    assert list(prepared) == list(FIELDS)
    for i, item in enumerate(items):
        alone = only(processor, **item)
        for name in FIELDS:
            torch.testing.assert_close(prepared[name][i], alone[name], equal_nan=True)


NO_PIXELS = "must be a mapping with 'pixel_values', got"
SHAPE = r"pixel_values must be \(bands, frames, height, width\) with 3 bands and 1 frames, got"
KIND = "pixel_values must be integers or floats of at most 64 bits, got"


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (np.zeros((3, 4, 4)), f"{NO_PIXELS} ndarray"),
        (None, f"{NO_PIXELS} NoneType"),
        ({}, rf"{NO_PIXELS} keys \[\]"),
        ({"pixels": 1}, rf"{NO_PIXELS} keys \['pixels'\]"),
        (window(4, 4, date=1, place=2), r"may have \['pixel_.*, got also \['date', 'place'\]"),
        ({"pixel_values": np.zeros((4, 5, 6))}, rf"{SHAPE} shape \(4, 5, 6\)"),
        ({"pixel_values": np.zeros((3, 2, 5, 6))}, rf"{SHAPE} shape \(3, 2, 5, 6\)"),
        ({"pixel_values": np.zeros((5, 6, 3))}, rf"{SHAPE} shape \(5, 6, 3\)"),
        ({"pixel_values": np.zeros((5, 6))}, rf"{SHAPE} shape \(5, 6\)"),
        ({"pixel_values": np.zeros((3, 0, 6))}, rf"{SHAPE} shape \(3, 0, 6\)"),
        ({"pixel_values": np.zeros((3, 5, 0))}, rf"{SHAPE} shape \(3, 5, 0\)"),
        ({"pixel_values": 7}, rf"{SHAPE} shape \(\)"),
        ({"pixel_values": Lazy(np.zeros((2, 5, 6)))}, rf"{SHAPE} shape \(2, 5, 6\)"),
        ({"pixel_values": np.zeros((3, 5, 6), complex)}, f"{KIND} complex128"),
        ({"pixel_values": np.zeros((3, 5, 6), bool)}, f"{KIND} bool"),
        ({"pixel_values": np.zeros((3, 5, 6), object)}, f"{KIND} object"),
        ({"pixel_values": np.zeros((3, 5, 6), "M8[s]")}, KIND),
        ({"pixel_values": np.full((3, 5, 6), "x")}, f"{KIND} <U1"),
        pytest.param(
            {"pixel_values": np.zeros((3, 5, 6), np.longdouble)},
            f"{KIND} float128",
            marks=pytest.mark.skipif(np.dtype("longdouble").itemsize == 8, reason="no such type"),
        ),
        (
            window(5, 6, valid=np.ones((6, 5), bool)),
            r"valid must have the shape of the pixels, \(5, 6\), got \(6, 5\)",
        ),
        (window(5, 6, valid=np.ones((1, 5, 6))), r"valid must .* \(5, 6\), got \(1, 5, 6\)"),
        (window(5, 6, valid=True), r"valid must .* \(5, 6\), got \(\)"),
        (
            window(5, 6, temporal_coords=(2020, 1)),
            r"temporal_coords must have shape \(1, 2\), got \(2,\)",
        ),
        (
            window(5, 6, location_coords=[[1, 2]]),
            r"location_coords must have shape \(2,\), got \(1, 2\)",
        ),
        (window(5, 6, location_coords="here"), "location_coords must be numbers, got str"),
        (
            window(5, 6, location_coords={"lat": 1, "lon": 2}),
            r"location_coords must be numbers, got keys \['lat', 'lon'\]",
        ),
    ],
)
def test_refuses(processor: RasterProcessor, item: Any, message: str) -> None:
    with pytest.raises(ImageItemError, match=message):
        processor(images=[item])


def test_refuses_one_date_for_two(of_two_dates: RasterProcessor) -> None:
    with pytest.raises(ImageItemError, match=r"3 bands and 2 frames, got shape \(3, 5, 6\)"):
        of_two_dates(images=window(5, 6))


# Windows of 1 × 2 and 2 × 1 cells: the cells are 8 × 8 pixels.
WIDE, HIGH = window(8, 9), window(10, 3)
WIDE_IDS, HIGH_IDS = [4, 4, 5], [4, 5, 4, 5]


@pytest.mark.parametrize(
    ("text", "images", "ids"),
    [
        ("", None, [[]]),
        ("0f", [], [[6, 21]]),
        ("<image>", WIDE, [WIDE_IDS]),
        ("a<image>b", HIGH, [[16, *HIGH_IDS, 17]]),
        ("<image>1<image>", [WIDE, HIGH], [[*WIDE_IDS, 7, *HIGH_IDS]]),
        (["<image>", "1", "2<image>"], [HIGH, WIDE], [HIGH_IDS, [7], [8, *WIDE_IDS]]),
        (["<image><image>"], [WIDE, WIDE], [WIDE_IDS * 2]),
    ],
)
def test_text(processor: RasterProcessor, text: Any, images: Any, ids: list[list[int]]) -> None:
    prepared = processor(images=images, text=text)
    assert prepared["input_ids"] == ids
    assert ("pixel_values" in prepared) == bool(images)


@pytest.mark.parametrize(
    ("text", "images", "message"),
    [
        ("<image>", [], "names 1 images by '<image>', but 0 came"),
        ("0", WIDE, "names 0 images by '<image>', but 1 came"),
        (["<image>", "<image>"], [WIDE], "names 2 images by '<image>', but 1 came"),
    ],
)
def test_refuses_text(processor: RasterProcessor, text: Any, images: Any, message: str) -> None:
    with pytest.raises(ImageItemError, match=message):
        processor(images=images, text=text)


def test_grid_is_the_configuration_s() -> None:
    config = make_config(tile={"minimum": 16})
    processor = make_processor(config)
    for size in ((1, 1), (16, 17), (32, 5)):
        assert processor.grid(*size) == config.grid(*size)


def test_survives_saving(tmp_path: Path) -> None:
    register_with_transformers()
    config = make_config(input={"frames": 2}, tile={"minimum": 16})
    config.save_pretrained(tmp_path)
    made = RasterProcessor(minimal_tokenizer(), bands=3, frames=2, cell=8, minimum_cells=2)
    made.save_pretrained(tmp_path)
    loaded = AutoProcessor.from_pretrained(tmp_path)
    assert type(loaded) is RasterProcessor
    settings = ("bands", "frames", "cell", "minimum_cells", "image_token", "row_token")
    for name in settings:
        assert getattr(loaded, name) == getattr(made, name)
    item = {"pixel_values": pixels(10, 10).reshape(3, 2, 5, 10), "valid": mask(5, 10)}
    one, other = (each(images=item, text="f<image>0") for each in (made, loaded))
    assert one["input_ids"] == other["input_ids"] == [[21, *[4, 4, 5] * 2, 6]]
    for name in FIELDS:
        torch.testing.assert_close(one[name], other[name], equal_nan=True)


@pytest.mark.parametrize("size", [(1, 5), (5, 1), (1, 1), (4, 3)])
def test_takes_windows_that_are_turned(size: tuple[int, int]) -> None:
    """To numpy a single row is in order in either direction, to PyTorch in one."""
    pixels = np.arange(3 * size[0] * size[1], dtype=np.uint16).reshape(3, *size)
    valid = pixels[0] % 2 == 0
    item = {"pixel_values": pixels[:, ::-1, ::-1], "valid": valid[::-1, ::-1]}
    made = RasterProcessor(minimal_tokenizer(), bands=3, cell=8)(images=item)
    np.testing.assert_array_equal(made["pixel_values"][0][:, 0], item["pixel_values"])
    if not valid.all():
        np.testing.assert_array_equal(made["valid"][0], item["valid"])
