"""Prithvi with UPerNet: against what TerraTorch computed, and what it refuses."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from vllm_raster_model.contract import RasterContract
from vllm_raster_model.errors import ContractError
from vllm_raster_model.networks import TorchLayers, build_network
from vllm_raster_model.networks.prithvi_upernet import PrithviUPerNet, PrithviUPerNetConfig

from .checkpoints import NETWORK, make_config, raster_block
from .terratorch import FloodsCase

TOLERANCE = {"rtol": 0, "atol": 1e-4}
UNKNOWN = torch.nan


@pytest.fixture(scope="module")
def case() -> FloodsCase:
    return FloodsCase.load()


@pytest.fixture(scope="module")
def floods(case: FloodsCase) -> PrithviUPerNet:
    network = case.network(TorchLayers())
    network.load_state_dict(case.network_weights, strict=True)
    return network


@torch.inference_mode()
def run(network: PrithviUPerNet, *inputs: torch.Tensor) -> torch.Tensor:
    return network(*inputs)


def test_both_windows_at_once(case: FloodsCase, floods: PrithviUPerNet) -> None:
    scores = run(floods, case.pixels, case.dates, case.places)
    torch.testing.assert_close(scores, case.expected, **TOLERANCE)


@pytest.mark.parametrize("i", [0, 1])
def test_each_window_alone(case: FloodsCase, floods: PrithviUPerNet, i: int) -> None:
    one = slice(i, i + 1)
    scores = run(floods, case.pixels[one], case.dates[one], case.places[one])
    torch.testing.assert_close(scores, case.expected[one], **TOLERANCE)


@pytest.mark.parametrize("swapped", ["dates", "places"])
def test_coordinates_of_another_window(
    case: FloodsCase, floods: PrithviUPerNet, swapped: str
) -> None:
    inputs = {"dates": case.dates, "places": case.places}
    inputs[swapped] = inputs[swapped].flip(0)
    scores = run(floods, case.pixels, inputs["dates"], inputs["places"])
    for found, expected in zip(scores, case.expected, strict=True):
        assert (found - expected).abs().max() > 10 * TOLERANCE["atol"]


def test_longitude_before_latitude(case: FloodsCase, floods: PrithviUPerNet) -> None:
    scores = run(floods, case.pixels, case.dates, case.places.flip(1))
    assert (scores - case.expected).abs().max() > 10 * TOLERANCE["atol"]


def test_unknown_coordinates_are_none_at_all(case: FloodsCase, floods: PrithviUPerNet) -> None:
    unknown = run(
        floods,
        case.pixels,
        torch.full_like(case.dates, UNKNOWN),
        torch.full_like(case.places, UNKNOWN),
    )
    assert torch.equal(unknown, run(floods, case.pixels))


def build(network: dict[str, Any], **parts: dict[str, Any]) -> PrithviUPerNet:
    config = PrithviUPerNetConfig(**{**NETWORK, **network})
    torch.manual_seed(0)
    return build_network(config, RasterContract.parse(raster_block(**parts)), TorchLayers()).eval()


@pytest.mark.parametrize("patch", [2, 4, 8])
@pytest.mark.parametrize("size", [(16, 16), (16, 40), (24, 16)])
def test_scores_have_the_size_of_the_window(patch: int, size: tuple[int, int]) -> None:
    network = build({"patch_size": patch}, tile={"minimum": 16})
    assert run(network, torch.randn(2, 3, 1, *size)).shape == (2, 2, *size)


def test_blocks_are_counted_from_the_end_too() -> None:
    pixels = torch.randn(1, 3, 1, 16, 16)
    ahead, back = build({"out_indices": [0, 0, 1, 1]}), build({"out_indices": [-2, -2, -1, -1]})
    assert torch.equal(run(ahead, pixels), run(back, pixels))


def test_dates_stand_beside_each_other_in_the_map() -> None:
    encoder = build({}, input={"frames": 3}).encoder
    pixels = torch.randn(1, 3, 3, 16, 24)
    with torch.inference_mode():
        (*_, last) = encoder(pixels)
    assert last.shape == (1, 3 * 32, 4, 6)
    # The tokens of the last block, normed, are one code a patch: each of mean 0 and deviation 1.
    codes = last.view(3, 32, 4, 6)
    torch.testing.assert_close(codes.mean(dim=1), torch.zeros(3, 4, 6), rtol=0, atol=1e-4)
    torch.testing.assert_close(
        codes.var(dim=1, correction=0), torch.ones(3, 4, 6), rtol=0, atol=1e-2
    )


def test_each_date_is_told_its_own_date() -> None:
    network = build({}, input={"frames": 2})
    pixels = torch.randn(1, 3, 1, 16, 16).expand(-1, -1, 2, -1, -1)
    one, other = (2020.0, 10.0), (2021.0, 200.0)

    def scores(*dates: tuple[float, float]) -> torch.Tensor:
        return run(network, pixels, torch.tensor([dates]))

    assert not torch.allclose(scores(one, other), scores(other, one), rtol=0, atol=1e-6)
    assert not torch.allclose(scores(one, other), scores(one, one), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("coordinates", "expected"),
    [
        ([], set()),
        (["time"], {"encoder.temporal_embed_enc.scale"}),
        (["location"], {"encoder.location_embed_enc.scale"}),
    ],
)
def test_weights_for_the_coordinates_that_are_told(
    coordinates: Sequence[str], expected: set[str]
) -> None:
    network = build({}, input={"coordinates": coordinates})
    assert {name for name in network.state_dict() if "embed_enc" in name} == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"embed_dim": 40, "num_heads": 2}, "embed_dim must be a multiple of 16 .* got 40"),
        ({"embed_dim": 32, "num_heads": 3}, "embed_dim must be .* of num_heads=3, got 32"),
        ({"out_indices": [0, 1, 1]}, r"out_indices must name four of 2 blocks, got \[0, 1, 1\]"),
        ({"out_indices": [0, 1, 1, 2]}, r"out_indices must name .* got \[0, 1, 1, 2\]"),
        ({"out_indices": [-3, 0, 1, 1]}, r"out_indices must name .* got \[-3, 0, 1, 1\]"),
    ],
)
def test_refuses_a_configuration(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ContractError, match=f"vision_config.{message}"):
        make_config({**NETWORK, **changes})


@pytest.mark.parametrize(
    ("network", "parts", "message"),
    [
        ({"patch_size": 3}, {}, "tile.multiple_of must be a multiple of patch_size=3, got 8"),
        ({"patch_size": 8}, {}, "tile.minimum must be at least two patches of 8 pixels, got 8"),
        ({}, {"output": {"upscale": 2}}, "output.upscale must be 1, got 2"),
    ],
)
def test_refuses_a_contract(network: dict[str, Any], parts: dict[str, Any], message: str) -> None:
    with pytest.raises(ContractError, match=f"raster.{message}"):
        build(network, **parts)


def test_refuses_to_be_built_from_nothing() -> None:
    with pytest.raises(ContractError, match=r"config.json has no `vision_config`"):
        build_network(None, make_config().contract, TorchLayers())
