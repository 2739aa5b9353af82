"""TerraTorch's folders for vLLM: what TerraTorch computed, the converted checkpoint computes."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoProcessor

from vllm_raster_model.checkpoints import Options, read_checkpoint
from vllm_raster_model.checkpoints.writing import write_checkpoint
from vllm_raster_model.config import RasterConfig
from vllm_raster_model.errors import ContractError
from vllm_raster_model.pytorch import RasterForImageToImage
from vllm_raster_model.registration import register_with_transformers

from .foreign import FIXTURES, NORMALISED, maps, recorded, run_model

EVERY = sorted(one.parent.name for one in FIXTURES.glob("*/config.json"))
TOLERANCE = {"rtol": 0, "atol": 1e-4}
each_fixture = pytest.mark.parametrize("name", EVERY)


def test_all_fixtures_are_here() -> None:
    kinds = {"biomass_regression", "burnscars_unet", "crops_fcn_3frames", "floods_upernet"}
    assert kinds | {"landcover_identity"} <= set(EVERY)


@each_fixture
def test_converted_as_terratorch_computed(name: str, tmp_path: Path) -> None:
    case, expected = recorded(FIXTURES / name)
    checkpoint = read_checkpoint(FIXTURES / name, NORMALISED)
    torch.testing.assert_close(maps(checkpoint, case), expected, **TOLERANCE)
    write_checkpoint(checkpoint, tmp_path / "out")
    model = RasterForImageToImage.from_pretrained(tmp_path / "out").eval()
    torch.testing.assert_close(run_model(model, case), expected, **TOLERANCE)


@each_fixture
def test_normalising_undone_by_the_statistics(name: str) -> None:
    # Counts that the contract normalises to the recorded input give the recorded output.
    case, expected = recorded(FIXTURES / name)
    count = case["pixel_values"].shape[1]
    mean = [0.05 * (i + 1) for i in range(count)]
    std = [0.02 * (i + 1) for i in range(count)]
    options = Options(mean=tuple(mean), std=tuple(std), scale=0.0001, offset=-0.1, nodata_fill=0.0)
    shape = (1, count, *[1] * (case["pixel_values"].ndim - 2))
    physical = case["pixel_values"].double() * torch.tensor(std).view(shape)
    counts = (physical + torch.tensor(mean).view(shape) + 0.1) / 0.0001
    checkpoint = read_checkpoint(FIXTURES / name, options)
    found = maps(checkpoint, {**case, "pixel_values": counts})
    torch.testing.assert_close(found, expected, rtol=0, atol=5e-4)


@each_fixture
def test_what_transformers_loads(name: str, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(FIXTURES / name, NORMALISED)
    write_checkpoint(checkpoint, tmp_path / "out")
    register_with_transformers()
    config = AutoConfig.from_pretrained(tmp_path / "out")
    assert isinstance(config, RasterConfig)
    assert config.architectures == ["RasterForImageToImage"]
    assert config.contract == checkpoint.config.contract
    processor = AutoProcessor.from_pretrained(tmp_path / "out")
    contract = config.contract
    assert (processor.bands, processor.frames) == (len(contract.input.bands), contract.input.frames)
    assert processor.cell == contract.tile.multiple_of
    assert processor.tokenizer.convert_tokens_to_ids("<image>") == config.image_token_id


@pytest.mark.parametrize(
    ("name", "size", "frames", "kind", "channels"),
    [
        ("biomass_regression", 80, 1, "values", 1),
        ("burnscars_unet", 96, 1, "classes", 2),
        ("crops_fcn_3frames", 64, 3, "classes", 13),
        ("floods_upernet", 64, 1, "classes", 2),
        ("landcover_identity", 64, 1, "classes", 9),
    ],
)
def test_what_is_taken_from_the_configuration(
    name: str, size: int, frames: int, kind: str, channels: int
) -> None:
    contract = read_checkpoint(FIXTURES / name, NORMALISED).config.contract
    assert contract.tile.size == size
    assert contract.input.frames == frames
    assert contract.input.bands == ("BLUE", "GREEN", "RED", "NIR_NARROW", "SWIR_1", "SWIR_2")
    assert (contract.output.kind, contract.output.channels) == (kind, channels)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("floods_upernet", ("time", "location")),
        # It has both encodings, but vLLM is told of neither input.
        ("landcover_identity", ()),
        ("burnscars_unet", ()),
    ],
)
def test_the_network_is_told_what_it_was_told(name: str, told: tuple[str, ...]) -> None:
    checkpoint = read_checkpoint(FIXTURES / name, NORMALISED)
    assert checkpoint.config.contract.input.coordinates == told


def test_encodings_are_kept_on_request() -> None:
    options = Options(
        mean=(0.0,), std=(1.0,), scale=1.0, nodata_fill=0.0, coordinates=("time", "location")
    )
    case, expected = recorded(FIXTURES / "landcover_identity")
    checkpoint = read_checkpoint(FIXTURES / "landcover_identity", options)
    assert "predictor.network.encoder.temporal_embed_enc.scale" in dict(checkpoint.weights())
    torch.testing.assert_close(maps(checkpoint, case), expected, **TOLERANCE)


def test_what_the_source_does_not_say_is_named_all_at_once() -> None:
    with pytest.raises(ContractError, match=r"give --mean, --std, --scale, --nodata-fill$"):
        read_checkpoint(FIXTURES / "floods_upernet")


@pytest.mark.parametrize("gone", ["mean", "std", "scale", "nodata_fill"])
def test_each_missing_fact_names_its_option(gone: str) -> None:
    given: dict[str, Any] = {"mean": (0.0,), "std": (1.0,), "scale": 1.0, "nodata_fill": 0.0}
    del given[gone]
    with pytest.raises(ContractError, match=f"give --{gone.replace('_', '-')}$"):
        read_checkpoint(FIXTURES / "floods_upernet", Options(**given))


def test_missing_tile_and_bands(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "floods_upernet", tmp_path / "source")
    path = tmp_path / "source" / "config.json"
    whole = json.loads(path.read_text())
    arguments = whole["pretrained_cfg"]["model"]["init_args"]["model_args"]
    del whole["pretrained_cfg"]["input"], arguments["backbone_img_size"]
    arguments["backbone_bands"] = [0, [3, 7]]
    path.write_text(json.dumps(whole))
    with pytest.raises(ContractError, match=r"give --bands, --tile$"):
        read_checkpoint(tmp_path / "source", NORMALISED)


def test_names_of_weights_are_terratorchs_with_another_beginning() -> None:
    checkpoint = read_checkpoint(FIXTURES / "floods_upernet", NORMALISED)
    names = {name for name, _ in checkpoint.weights()}
    stored = torch.load(FIXTURES / "floods_upernet" / "weights.pt", weights_only=True)
    kept = {one for one in stored["state_dict"] if one != "model.encoder.pos_embed"}
    assert names == {one.replace("model.", "predictor.network.", 1) for one in kept}


def test_options_go_before_the_source(tmp_path: Path) -> None:
    options = Options(
        bands=("a b c d e f",),
        mean=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0),
        std=(2.0,),
        scale=0.5,
        offset=-1.0,
        nodata_fill=-3.0,
        tile=100,
        overlap=20,
        classes=("dry", "open water"),
        coordinates=("location",),
    )
    contract = read_checkpoint(FIXTURES / "floods_upernet", options).config.contract
    assert contract.input.bands == ("a", "b", "c", "d", "e", "f")
    assert contract.input.mean == (1, 2, 3, 4, 5, 6)
    assert (contract.input.scale, contract.input.offset) == (0.5, -1)
    assert contract.input.nodata_fill == -3
    assert contract.input.coordinates == ("location",)
    # Whole cells of 16 pixels.
    assert (contract.tile.size, contract.tile.overlap) == (112, 20)
    assert [one.name for one in contract.output.classes] == ["dry", "open water"]
