"""The PyTorch model: image items in, maps out, whatever else is in the batch."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vllm_raster_model.config import RasterConfig
from vllm_raster_model.processor import RasterProcessor
from vllm_raster_model.pytorch import RasterForImageToImage

from .checkpoints import (
    ENLARGE,
    NETWORK,
    make_config,
    make_model,
    make_processor,
    save_checkpoint,
)
from .items import EVERYWHERE, enlarged, mask, pixels, window

SIZES = [(16, 24), (9, 17), (32, 32), (16, 24), (1, 1), (15, 23), (16, 24)]


@torch.inference_mode()
def maps(model: RasterForImageToImage, *items: dict[str, Any]) -> list[torch.Tensor]:
    return model(**make_processor(model.config)(images=items))


@pytest.fixture(scope="module")
def model() -> RasterForImageToImage:
    return make_model(make_config())


def mixed_items() -> list[dict[str, Any]]:
    """Windows that differ in size, type, mask and coordinates."""
    items: list[dict[str, Any]] = [window(*size, seed=i) for i, size in enumerate(SIZES)]
    items[0] |= EVERYWHERE
    items[1] |= {"valid": mask(*SIZES[1])}
    items[3] |= {"location_coords": (-33.9, 151.2), "valid": mask(*SIZES[3])}
    items[5] |= {"pixel_values": pixels(*SIZES[5], dtype="float32", seed=5)}
    items[6] |= {"pixel_values": pixels(*SIZES[6], dtype="int16", seed=6)}
    return items


def test_survives_saving(tmp_path: Path) -> None:
    saved = save_checkpoint(tmp_path, make_config())
    loaded = RasterForImageToImage.from_pretrained(tmp_path)
    processor = RasterProcessor.from_pretrained(tmp_path)
    assert loaded.state_dict().keys() == saved.state_dict().keys()
    assert not loaded.training
    items = mixed_items()
    with torch.inference_mode():
        found = loaded(**processor(images=items, text="<image>" * len(items)))
    for one, other in zip(found, maps(saved, *items), strict=True):
        assert torch.equal(one, other)


def test_initial_weights_are_pytorch_s() -> None:
    torch.manual_seed(7)
    network = RasterForImageToImage(make_config()).predictor.network
    layer = network.encoder.blocks[0].mlp.fc1.weight
    assert layer.std().item() == pytest.approx((1 / 3 / 32) ** 0.5, rel=0.1)  # uniform, ± 1 / √32
    assert (network.encoder.temporal_embed_enc.scale == 0.1).all()


def test_window_does_not_depend_on_its_batch(model: RasterForImageToImage) -> None:
    items = mixed_items()
    together = maps(model, *items)
    assert len(together) == len(items)
    for item, found in zip(items, together, strict=True):
        torch.testing.assert_close(found, maps(model, item)[0], rtol=1e-5, atol=1e-5)


def test_batch_keeps_its_order(model: RasterForImageToImage) -> None:
    items = mixed_items()
    ahead, back = maps(model, *items), maps(model, *reversed(items))
    for one, other in zip(ahead, reversed(back), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_coordinates_are_each_window_s_own(model: RasterForImageToImage) -> None:
    here, there = window(16, 16) | EVERYWHERE, window(16, 16) | {"location_coords": (0, 0)}
    one, other, nowhere = maps(model, here, there, window(16, 16))
    assert not torch.allclose(one, other, atol=1e-5)
    assert not torch.allclose(one, nowhere, atol=1e-5)
    torch.testing.assert_close(maps(model, there)[0], other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"tile": {"minimum": 24}},
        {"output": {"upscale": 3}},
        {"input": {"nodata_fill": 0, "scale": 1, "offset": 0, "mean": [100], "std": [50]}},
    ],
)
def test_maps_are_what_numpy_makes_of_the_pixels(parts: dict[str, Any]) -> None:
    config = make_config(ENLARGE, **parts)
    items = mixed_items()
    items[2]["pixel_values"] = items[2]["pixel_values"].astype("float32")
    items[2]["pixel_values"][1, 3, 4] = np.nan
    for item, found in zip(items, maps(make_model(config), *items), strict=True):
        assert found.dtype == torch.float32
        np.testing.assert_allclose(found, enlarged(item, config), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("upscale", [1, 4])
def test_maps_are_padded_to_whole_cells(upscale: int) -> None:
    config = make_config(ENLARGE, output={"upscale": upscale}, tile={"minimum": 16})
    for size, cells in [((1, 1), (2, 2)), ((17, 8), (3, 2)), ((32, 31), (4, 4))]:
        (found,) = maps(make_model(config), window(*size))
        assert found.shape == (2, *(8 * upscale * n for n in cells))


@pytest.mark.parametrize("size", [(1, 1), (9, 17), (16, 24), (30, 7)])
def test_network_that_pads_by_itself_is_given_the_window(
    model: RasterForImageToImage, size: tuple[int, int]
) -> None:
    assert model.predictor.takes_any_size
    item = window(*size) | EVERYWHERE
    (found,) = maps(model, item)
    values = model.predictor.normaliser(torch.from_numpy(item["pixel_values"])[None, :, None], None)
    dates, place = (torch.tensor([one], dtype=torch.float64) for one in EVERYWHERE.values())
    with torch.inference_mode():
        (expected,) = model.predictor.network(values, dates, place)
    height, width = size
    torch.testing.assert_close(found[:, :height, :width], expected, rtol=1e-5, atol=1e-6)
    grid = model.config.grid(*size)
    assert found.shape == (2, 8 * grid.rows, 8 * grid.columns)


def test_a_pixel_of_the_map_for_each_patch() -> None:
    parts = {
        "necks": [
            {"name": "SelectIndices", "indices": [1]},
            {"name": "ReshapeTokensToImage"},
        ],
        "decoder": {"name": "IdentityDecoder"},
        "rescale": False,
    }
    config = make_config(NETWORK | parts, output={"downscale": 4})
    assert config.hidden_size == 2 * 2 * 2
    model = make_model(config)
    assert not model.predictor.takes_any_size
    for size, rows, columns in [((16, 24), 4, 6), ((9, 17), 4, 6), ((1, 1), 2, 2)]:
        (found,) = maps(model, window(*size))
        assert found.shape == (2, rows, columns)


def test_nothing_in_nothing_out(model: RasterForImageToImage) -> None:
    assert model([], [], [], []) == []


def test_weights_stand_under_the_predictor(tmp_path: Path) -> None:
    config: RasterConfig = make_config(ENLARGE)
    model = save_checkpoint(tmp_path, config)
    assert model.state_dict().keys() == {"predictor.network.factor"}
    model.predictor.network.factor.data.fill_(-2)
    (found,) = maps(model, window(8, 8))
    np.testing.assert_allclose(found, -2 * enlarged(window(8, 8), config), rtol=1e-5, atol=1e-5)
