"""Windows that are computed together: how many, and that it does not show."""

import pytest
import torch

from vllm_raster_model import predictor
from vllm_raster_model.predictor import PIXELS_AT_ONCE, windows_at_once
from vllm_raster_model.pytorch import RasterForImageToImage

from .checkpoints import make_config, make_model, make_processor
from .items import EVERYWHERE, mask, window

SIZES = [(32, 32), (24, 32), (32, 32), (32, 32), (7, 11), (32, 32), (24, 32), (32, 32)]


@pytest.fixture(scope="module")
def model() -> RasterForImageToImage:
    return make_model(make_config())


@pytest.mark.parametrize(
    ("pixels", "most"),
    [(128 * 128, 4), (64 * 64, 16), (256 * 256, 1), (512 * 512, 1), (129 * 128, 3)],
)
def test_how_many(pixels: int, most: int) -> None:
    assert windows_at_once(pixels) == most
    assert most == 1 or most * pixels <= PIXELS_AT_ONCE


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
@torch.inference_mode()
def test_batches_do_not_show(
    monkeypatch: pytest.MonkeyPatch, model: RasterForImageToImage, at_once: int
) -> None:
    items = [window(*size, seed=i) for i, size in enumerate(SIZES)]
    items[2].update(EVERYWHERE)
    items[3]["valid"] = mask(32, 32)
    processor = make_processor(model.config)
    alone = [model(**processor(images=[one]))[0] for one in items]
    monkeypatch.setattr(predictor, "PIXELS_AT_ONCE", at_once * 32 * 32)
    computed: list[int] = []
    network = model.predictor.network
    hook = network.register_forward_pre_hook(lambda _, given: computed.append(len(given[0])))
    for order in (range(len(items)), reversed(range(len(items)))):
        chosen = list(order)
        computed.clear()
        together = model(**processor(images=[items[i] for i in chosen]))
        for i, found in zip(chosen, together, strict=True):
            torch.testing.assert_close(found, alone[i], rtol=1e-5, atol=1e-5)
        assert sum(computed) == len(items)
        assert max(computed) == min(at_once, SIZES.count((32, 32)))
    hook.remove()
