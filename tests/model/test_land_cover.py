"""The committed land-cover checkpoint, in plain PyTorch, does what the other tests rely on."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import rasterio
import torch

from vllm_raster_model.processor import RasterProcessor
from vllm_raster_model.pytorch import RasterForImageToImage

from ..checkpoints.land_cover_labels import CLASS_NAMES, HELD_OUT, index_labels, mean_iou

TESTS = Path(__file__).resolve().parents[1]
CHECKPOINT = TESTS / "checkpoints" / "land_cover"
TILE = 128
BYTES_AT_MOST = 2 * 1024 * 1024

# One of the scenes has no georeference, which is no matter here.
pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

Array = npt.NDArray[Any]
Item = dict[str, Any]


class Mapper:
    """The checkpoint as trained: image items in, scores out."""

    def __init__(self) -> None:
        self.model = RasterForImageToImage.from_pretrained(CHECKPOINT).eval()
        self.processor = RasterProcessor.from_pretrained(CHECKPOINT)

    @torch.inference_mode()
    def scores(self, *items: Item) -> list[torch.Tensor]:
        return self.model(**self.processor(images=items))

    def ids(self, pixels: Array, valid: Array) -> Array:
        """Class ids of a scene, from windows laid edge to edge."""
        ids = np.empty(valid.shape, np.uint8)
        for top in range(0, valid.shape[0], TILE):
            for left in range(0, valid.shape[1], TILE):
                rows, columns = slice(top, top + TILE), slice(left, left + TILE)
                item = {"pixel_values": pixels[:, rows, columns], "valid": valid[rows, columns]}
                here = ids[rows, columns]
                found = self.scores(item)[0].argmax(0).numpy()
                here[:] = found[: here.shape[0], : here.shape[1]]
        return ids


@pytest.fixture(scope="module")
def mapper() -> Mapper:
    return Mapper()


@pytest.mark.parametrize("name", HELD_OUT)
def test_maps_what_it_never_saw(mapper: Mapper, name: str) -> None:
    pixels, valid = held_out(name)
    labels = index_labels(pixels)
    mean, by_class = mean_iou(mapper.ids(pixels, valid), labels, valid)
    assert len(by_class) >= 4
    assert mean >= 0.8, by_class


def test_window_does_not_depend_on_its_batch(mapper: Mapper) -> None:
    sizes = [(64, 96), (50, 77), (64, 96), (128, 128), (16, 16), (64, 96)]
    items = [window(height, width, at=8 * i) for i, (height, width) in enumerate(sizes)]
    together = mapper.scores(*items)
    for item, scores in zip(items, together, strict=True):
        torch.testing.assert_close(mapper.scores(item)[0], scores, rtol=1e-5, atol=1e-5)


def test_place_moves_scores_but_hardly_the_map(mapper: Mapper) -> None:
    here, there = mapper.scores(
        {**window(), "location_coords": (12.9, 77.7)},
        {**window(), "location_coords": (-61.2, -135.0)},
    )
    assert (here - there).abs().max() > 1e-4
    assert (here.argmax(0) == there.argmax(0)).float().mean() > 0.98


def test_scores_ignore_what_stands_in_invalid_pixels(mapper: Mapper) -> None:
    item = window()
    valid = np.ones(item["pixel_values"].shape[1:], bool)
    valid[10:20, 30:] = False
    other = {"pixel_values": np.where(valid, item["pixel_values"], 65535), "valid": valid}
    one, two = mapper.scores({**item, "valid": valid}, other)
    assert torch.equal(one, two)


def test_names_its_classes_in_the_order_of_the_labels(mapper: Mapper) -> None:
    classes = mapper.model.config.contract.output.classes
    assert tuple(one.name for one in classes) == CLASS_NAMES
    assert all(one.color for one in classes)


def test_is_small_and_whole() -> None:
    sizes = {one.name: one.stat().st_size for one in CHECKPOINT.iterdir()}
    assert sizes.keys() == {
        "README.md",
        "config.json",
        "model.safetensors",
        "processor_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert sum(sizes.values()) <= BYTES_AT_MOST


def held_out(name: str) -> tuple[Array, Array]:
    rows, columns = HELD_OUT[name]
    with rasterio.open(TESTS / "data" / name) as scene:
        return scene.read()[:, rows, columns], scene.dataset_mask()[rows, columns] > 0


def window(height: int = 64, width: int = 96, at: int = 0) -> Item:
    pixels, _ = held_out("sentinel2_forest_fields_4band.tif")
    # The part is shorter than the largest window.
    rows = np.arange(at, at + height) % pixels.shape[1]
    return {"pixel_values": pixels[:, rows, at : at + width]}
