"""Prithvi's masked autoencoder with nothing masked: against TerraTorch, and what it refuses."""

from typing import Any

import pytest
import torch

from vllm_raster_model.contract import RasterContract
from vllm_raster_model.errors import ContractError
from vllm_raster_model.networks import Layers, TorchLayers, build_network
from vllm_raster_model.networks.prithvi_mae import PrithviMAE, PrithviMAEConfig

from .terratorch import variant_tensors

SHAPE: dict[str, Any] = {
    "embed_dim": 16,
    "depth": 2,
    "num_heads": 2,
    "decoder_embed_dim": 32,
    "decoder_depth": 2,
    "decoder_num_heads": 4,
    "patch_size": 4,
    "image_size": 16,
    "mlp_ratio": 2.0,
}
MEAN, STD = [10.0, 20.0, 30.0], [2.0, 3.0, 4.0]
UNUSED = {"decoder.mask_token"}


def contract(**changes: dict[str, Any]) -> RasterContract:
    block: dict[str, Any] = {
        "version": 1,
        "input": {
            "bands": ["RED", "NIR", "SWIR"],
            "frames": 2,
            "coordinates": ["time", "location"],
        },
        "tile": {"size": 32, "multiple_of": 4},
        "output": {"kind": "image", "bands": [{"name": str(i)} for i in range(6)]},
    }
    for part, values in changes.items():
        block[part].update(values)
    return RasterContract.parse(block)


def build(
    shape: dict[str, Any] | None = None, layers: Layers | None = None, **changes: dict[str, Any]
) -> PrithviMAE:
    config = PrithviMAEConfig(**(SHAPE | (shape or {})))
    return build_network(config, contract(**changes), layers or TorchLayers()).eval()


@pytest.fixture(scope="module")
def case() -> dict[str, torch.Tensor]:
    begin = "autoencoder/"
    tensors = variant_tensors()
    return {
        key.removeprefix(begin): one.float()
        for key, one in tensors.items()
        if key.startswith(begin)
    }


@torch.inference_mode()
def images(network: PrithviMAE, case: dict[str, torch.Tensor]) -> torch.Tensor:
    names = ("pixel_values", "temporal_coords", "location_coords")
    return network(*(case[name] for name in names))


def with_weights(network: PrithviMAE, case: dict[str, torch.Tensor]) -> PrithviMAE:
    begin = "weights/"
    weights = {k.removeprefix(begin): one for k, one in case.items() if k.startswith(begin)}
    kept = {name: one for name, one in weights.items() if name not in UNUSED}
    network.load_state_dict(kept, strict=True)
    return network


def test_what_terratorch_computes(case: dict[str, torch.Tensor]) -> None:
    found = images(with_weights(build(), case), case)
    dates_apart = case["expected"].transpose(1, 2).flatten(1, 2)
    torch.testing.assert_close(found, dates_apart, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("mean", "std"),
    [(MEAN, STD), ([[one, one + 1] for one in MEAN], [[one, one * 2] for one in STD])],
)
def test_unit_of_the_file(case: dict[str, torch.Tensor], mean: list[Any], std: list[Any]) -> None:
    unit = {"scale": 0.5, "offset": -3.0, "mean": mean, "std": std}
    found = images(with_weights(build(input=unit), case), case)
    means, deviations = (torch.tensor(one).view(3, -1, 1, 1) for one in (mean, std))
    expected = (case["expected"] * deviations + means + 3.0) / 0.5
    torch.testing.assert_close(found, expected.transpose(1, 2).flatten(1, 2), rtol=1e-5, atol=1e-4)


def test_tubelets() -> None:
    network = build({"tubelet_size": 2}, input={"coordinates": []})
    assert network.encoder.patch_embed.proj.weight.shape == (16, 3, 2, 4, 4)
    with torch.inference_mode():
        assert network(torch.randn(1, 3, 2, 8, 12)).shape == (1, 6, 8, 12)


@pytest.mark.parametrize(
    ("shape", "changes", "message"),
    [
        ({"decoder_embed_dim": 24}, {}, "decoder_embed_dim must be a multiple of 16 .* got 24"),
        ({}, {"input": {"frames": 3}}, "gives 9 bands, .* got 'image' and 6 channels"),
        (
            {},
            {"output": {"kind": "classes", "bands": [], "classes": [{"name": "a"}]}},
            "got 'classes' and 1 channels",
        ),
        ({}, {"output": {"upscale": 2}}, "downscale must be 1, got 2 and 1"),
        ({}, {"output": {"downscale": 2}}, "downscale must be 1, got 1 and 2"),
        ({"patch_size": 3}, {}, "multiple_of must be a multiple of patch_size=3, got 4"),
        (
            {"tubelet_size": 4},
            {},
            "frames must be a multiple of tubelet_size=4, got 2",
        ),
    ],
)
def test_refuses(shape: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ContractError, match=message):
        build(shape, **changes)
