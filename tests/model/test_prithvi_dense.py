"""Prithvi with decoders for maps: against what TerraTorch computed, and what it refuses."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
import torch

from vllm_raster_model.contract import RasterContract
from vllm_raster_model.errors import ContractError
from vllm_raster_model.networks import TorchLayers, build_network
from vllm_raster_model.networks.prithvi_dense import PrithviDense, PrithviDenseConfig

from .checkpoints import NETWORK, make_config, raster_block
from .terratorch import TerraTorchCase, stored_names, variants

TOLERANCE = {"rtol": 0, "atol": 1e-5}
UNKNOWN = torch.nan


@pytest.fixture(scope="module")
def case() -> TerraTorchCase:
    return TerraTorchCase.stored("floods_upernet")


@pytest.fixture(scope="module")
def floods(case: TerraTorchCase) -> PrithviDense:
    return loaded(case)


@torch.inference_mode()
def run(network: PrithviDense, *inputs: torch.Tensor) -> torch.Tensor:
    return network(*inputs)


def loaded(case: TerraTorchCase) -> PrithviDense:
    network = case.network(TorchLayers())
    network.load_state_dict(case.network_weights, strict=True)
    return network


@pytest.mark.parametrize("name", stored_names())
def test_fine_tunes_of_terratorch(name: str) -> None:
    case = TerraTorchCase.stored(name)
    scores = run(loaded(case), case.pixels, case.dates, case.places)
    torch.testing.assert_close(scores, case.expected, **TOLERANCE)


@pytest.mark.parametrize("name", sorted(variants()))
def test_other_kinds_of_terratorch(name: str) -> None:
    case = TerraTorchCase.variant(name)
    scores = run(loaded(case), case.pixels, case.dates, case.places)
    torch.testing.assert_close(scores, case.expected, **TOLERANCE)


@pytest.mark.parametrize("i", [0, 1])
def test_each_window_alone(case: TerraTorchCase, floods: PrithviDense, i: int) -> None:
    one = slice(i, i + 1)
    scores = run(floods, case.pixels[one], case.dates[one], case.places[one])
    torch.testing.assert_close(scores, case.expected[one], **TOLERANCE)


@pytest.mark.parametrize("swapped", ["dates", "places"])
def test_coordinates_of_another_window(
    case: TerraTorchCase, floods: PrithviDense, swapped: str
) -> None:
    inputs = {"dates": case.dates, "places": case.places}
    inputs[swapped] = inputs[swapped].flip(0)
    scores = run(floods, case.pixels, inputs["dates"], inputs["places"])
    for found, expected in zip(scores, case.expected, strict=True):
        assert (found - expected).abs().max() > 10 * TOLERANCE["atol"]


def test_longitude_before_latitude(case: TerraTorchCase, floods: PrithviDense) -> None:
    scores = run(floods, case.pixels, case.dates, case.places.flip(1))
    assert (scores - case.expected).abs().max() > 10 * TOLERANCE["atol"]


def test_unknown_coordinates_are_none_at_all(case: TerraTorchCase, floods: PrithviDense) -> None:
    unknown = run(
        floods,
        case.pixels,
        torch.full_like(case.dates, UNKNOWN),
        torch.full_like(case.places, UNKNOWN),
    )
    assert torch.equal(unknown, run(floods, case.pixels))


def build(network: dict[str, Any], **parts: dict[str, Any]) -> PrithviDense:
    config = PrithviDenseConfig(**{**NETWORK, **network})
    torch.manual_seed(0)
    return build_network(config, RasterContract.parse(raster_block(**parts)), TorchLayers()).eval()


def necks(*indices: int, dates: int = 1) -> list[dict[str, Any]]:
    """A pyramid of the tokens of four blocks."""
    return [
        {"name": "SelectIndices", "indices": list(indices)},
        {"name": "ReshapeTokensToImage", "effective_time_dim": dates},
        {"name": "LearnedInterpolateToPyramidal"},
    ]


@pytest.mark.parametrize("patch", [2, 4, 8])
@pytest.mark.parametrize("size", [(16, 16), (16, 40), (24, 16), (1, 1), (17, 30)])
def test_scores_have_the_size_of_the_window(patch: int, size: tuple[int, int]) -> None:
    network = build({"patch_size": patch})
    assert run(network, torch.randn(2, 3, 1, *size)).shape == (2, 2, *size)


def test_blocks_are_counted_from_the_end_too() -> None:
    pixels = torch.randn(1, 3, 1, 16, 16)
    ahead, back = build({"necks": necks(0, 0, 1, 1)}), build({"necks": necks(-2, -2, -1, -1)})
    assert torch.equal(run(ahead, pixels), run(back, pixels))


def test_grid_that_could_be_a_square_is_the_image_s() -> None:
    # 2 x 8 patches: TerraTorch would lay them out as 4 x 4.
    network = build({"padding": None})
    pixels = torch.randn(1, 3, 1, 8, 32)
    left, right = run(network, pixels), run(network, pixels)
    pixels[..., 28:] += 3
    changed = (run(network, pixels) - left).abs().amax(dim=(0, 1, 2))
    assert changed[-4:].mean() > 3 * changed[:4].mean()
    assert torch.equal(left, right)


def test_dates_stand_beside_each_other_in_the_map() -> None:
    features = {
        "necks": [
            {"name": "SelectIndices", "indices": [-1]},
            {"name": "ReshapeTokensToImage", "effective_time_dim": 3},
        ],
        "decoder": {"name": "IdentityDecoder"},
        "head": None,
        "rescale": False,
        "padding": None,
    }
    config = PrithviDenseConfig(**{**NETWORK, **features})
    bands = [{"name": str(i)} for i in range(96)]
    output = {"kind": "values", "classes": [], "bands": bands, "downscale": 4}
    contract = RasterContract.parse(raster_block(input={"frames": 3}, output=output))
    network = build_network(config, contract, TorchLayers()).eval()
    last = run(network, torch.randn(1, 3, 3, 16, 24))
    assert last.shape == (1, 3 * 32, 4, 6)
    # The tokens of the last block, normed, are one code a patch: each of mean 0 and deviation 1.
    codes = last.view(3, 32, 4, 6)
    torch.testing.assert_close(codes.mean(dim=1), torch.zeros(3, 4, 6), rtol=0, atol=1e-4)
    torch.testing.assert_close(
        codes.var(dim=1, correction=0), torch.ones(3, 4, 6), rtol=0, atol=1e-2
    )


def test_each_date_is_told_its_own_date() -> None:
    network = build({"necks": necks(0, 0, 1, 1, dates=2)}, input={"frames": 2})
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


SELECT: dict[str, Any] = {"name": "SelectIndices", "indices": [0, 1]}
RESHAPE: dict[str, Any] = {"name": "ReshapeTokensToImage"}
MAXPOOL: dict[str, Any] = {"name": "MaxpoolToPyramidal"}
UPERNET: dict[str, Any] = {"name": "UperNetDecoder", "channels": 4}
FCN: dict[str, Any] = {"name": "FCNDecoder", "channels": 4}
IDENTITY: dict[str, Any] = {"name": "IdentityDecoder"}


@pytest.mark.parametrize(
    ("changes", "scale", "minimum", "multiple"),
    [
        ({}, Fraction(1), 1, 1),
        ({"padding": None}, Fraction(1), 8, 4),
        ({"rescale": False}, Fraction(1), 1, 1),
        ({"rescale": False, "patch_size": 8}, Fraction(1, 2), 1, 16),
        ({"rescale": False, "patch_size": 8, "padding": None}, Fraction(1, 2), 16, 16),
        ({"rescale": False, "necks": [], "decoder": FCN}, Fraction(4), 1, 1),
        ({"rescale": False, "necks": [], "decoder": IDENTITY}, Fraction(1, 4), 1, 8),
        ({"necks": [SELECT, RESHAPE, MAXPOOL], "decoder": UPERNET}, Fraction(1), 1, 1),
        (
            {"necks": [SELECT, RESHAPE, {**MAXPOOL, "kernel_size": 3}], "decoder": IDENTITY},
            Fraction(1),
            12,
            1,
        ),
        (
            {
                "rescale": False,
                "necks": [SELECT, RESHAPE, {**MAXPOOL, "kernel_size": 3}],
                "decoder": IDENTITY,
            },
            Fraction(1, 12),
            12,
            24,
        ),
    ],
)
def test_geometry(changes: dict[str, Any], scale: Fraction, minimum: int, multiple: int) -> None:
    geometry = PrithviDense.describe(PrithviDenseConfig(**{**NETWORK, **changes}))
    assert (geometry.scale, geometry.minimum, geometry.multiple) == (scale, minimum, multiple)
    assert Fraction(geometry.upscale, geometry.downscale) == scale


def test_refuses_pixels_that_are_no_whole_number_of_others() -> None:
    config = PrithviDenseConfig(**{**NETWORK, "patch_size": 14, "rescale": False})
    geometry = PrithviDense.describe(config)
    with pytest.raises(ContractError, match=r"gives 2/7 output pixels .* set rescale to true"):
        assert geometry.downscale


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"embed_dim": 40, "num_heads": 2}, "embed_dim must be a multiple of 16 .* got 40"),
        ({"embed_dim": 32, "num_heads": 3}, "embed_dim must be .* of num_heads=3, got 32"),
        ({"out_indices": [0, 2]}, r"out_indices must name some of 2 blocks, got \[0, 2\]"),
        ({"out_indices": [-3]}, r"out_indices must name some of 2 blocks, got \[-3\]"),
        ({"padding": "mirror"}, "padding must be null or one of .*, got 'mirror'"),
    ],
)
def test_refuses_a_configuration(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ContractError, match=f"vision_config.{message}"):
        make_config({**NETWORK, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"necks": [{"name": "AggregateTokens"}]}, r"necks\[0\]: AggregateTokens is not supported"),
        ({"necks": [SELECT, {"name": "PermuteDims"}]}, r"necks\[1\]: PermuteDims is not supported"),
        ({"necks": [{**SELECT, "index": 1}]}, r"SelectIndices does not take \['index'\] here"),
        ({"necks": ["SelectIndices"]}, r"necks\[0\] must look like \{\"name\": .* got 'Sel"),
        ({"necks": [{"name": "SelectIndices"}]}, "SelectIndices cannot be built with .*indices"),
        ({"necks": necks(0, 1, 2, 1)}, "indices must be the number of one of 2 features, got 2"),
        ({"necks": [SELECT]}, "UperNetDecoder reads maps, but the necks give tokens"),
        ({"necks": [SELECT, RESHAPE, {"name": "LearnedInterpolateToPyramidal"}]}, "be 4, got 2"),
        (
            {"necks": [{**RESHAPE, "effective_time_dim": 3}]},
            "effective_time_dim must be .* 1, got 3",
        ),
        ({"necks": [{**RESHAPE, "h": 5}]}, "h must be null or the rows .* 8, got 5"),
        ({"necks": [{**RESHAPE, "remove_cls_token": False}]}, "remove_cls_token must be true"),
        ({"necks": [{**RESHAPE, "temporal_inputs": True}]}, "temporal_inputs must be false"),
        ({"decoder": {"name": "SatMAEHead"}}, "decoder: SatMAEHead is not supported, only"),
        ({"decoder": {**UPERNET, "dropout": 1}}, r"UperNetDecoder does not take \['dropout'\]"),
        ({"decoder": {"name": "UNetDecoder", "channels": [4]}}, r"channels must be .* got \[4\]"),
        (
            {"decoder": {"name": "UNetDecoder", "channels": [4] * 4, "use_batchnorm": "inplace"}},
            "use_batchnorm must be .* got 'inplace'",
        ),
        ({"decoder": {"name": "MLPDecoder"}}, "MLPDecoder: its maps must be all of one width"),
        (
            {"decoder": {"name": "ASPPRegressionHead", "channels": 4, "in_channels": 6}},
            "in_channels must be 32, got 6",
        ),
        ({"head": {"name": "ScalarHead"}}, "head: ScalarHead is not supported"),
        ({"head": {"name": "SegmentationHead", "final_act": 1}}, r"does not take \['final_act'\]"),
        (
            {"head": {"name": "RegressionHead", "final_act": "os.system"}},
            "the activation 'os.system' is not one of",
        ),
        ({"head": None}, "Without a head the network gives the decoder's 8 channels, but 2 are"),
    ],
)
def test_refuses_parts(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ContractError, match=message):
        build(changes)


@pytest.mark.parametrize(
    ("network", "parts", "message"),
    [
        (
            {"patch_size": 3, "padding": None},
            {},
            "tile.multiple_of must be .* of 3 pixels .* got 8",
        ),
        ({"patch_size": 8, "padding": None}, {}, "tile.minimum must be at least 16 .* got 8"),
        ({}, {"output": {"upscale": 2}}, "output.upscale and downscale must be 1 and 1 .* 2 and 1"),
        ({}, {"output": {"downscale": 2}}, "output.upscale and .* 1 and 1 for .*, got 1 and 2"),
        (
            {"tubelet_size": 2},
            {"input": {"frames": 3}},
            "input.frames must be .* of tubelet_size=2",
        ),
    ],
)
def test_refuses_a_contract(network: dict[str, Any], parts: dict[str, Any], message: str) -> None:
    with pytest.raises(ContractError, match=f"raster.{message}"):
        build(network, **parts)


def test_refuses_to_be_built_from_nothing() -> None:
    with pytest.raises(ContractError, match=r"config.json has no `vision_config`"):
        build_network(None, make_config().contract, TorchLayers())
