"""Data modules: whose means, which bands, in what order, in what unit."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from vllm_raster_model.checkpoints.bands import BandList
from vllm_raster_model.checkpoints.data_modules import Fed, known_data_modules, read_data
from vllm_raster_model.checkpoints.settings import Settings
from vllm_raster_model.errors import ContractError

from .foreign import BANDS, floods_data, make_run, maps, model_arguments

SIX = BandList(6, tuple(BANDS))


def feed(name: str, model_bands: BandList = SIX, /, **arguments: Any) -> Fed:
    data = {"class_path": f"terratorch.datamodules.{name}", "init_args": arguments}
    return read_data(Settings.of("data", data), model_bands, model_names_bands=True)


def test_every_module_has_the_statistics_of_the_table() -> None:
    table = json.loads(
        (Path(read_data.__code__.co_filename).parent / "data_modules.json").read_text()
    )
    assert len(table["modules"]) == 22
    assert set(table["modules"]) < set(known_data_modules())
    for name, module in table["modules"].items():
        if any(isinstance(one, dict) for one in module["means"].values()):
            continue
        bands = list(module["means"])
        fed = feed(name, BandList(len(bands), tuple(bands)), bands=bands)
        assert fed.bands == tuple(bands)
        for found, wanted in ((fed.mean, module["means"]), (fed.std, module["stds"])):
            assert found is not None
            as_lists = [list(one) if isinstance(one, tuple) else one for one in found]
            assert as_lists == list(wanted.values())


def test_floods_by_hand() -> None:
    fed = feed("Sen1Floods11NonGeoDataModule", bands=BANDS)
    assert fed.bands == tuple(BANDS)
    assert fed.mean == (0.1412956, 0.13795798, 0.12353792, 0.30902815, 0.2044958, 0.11912015)
    assert fed.std == (0.07406382, 0.07370365, 0.08692279, 0.11798815, 0.09772074, 0.07659938)
    assert (fed.scale, fed.nodata_fill) == (0.0001, 0.0)


def test_bands_chosen_and_reordered() -> None:
    bands = BandList(3, ("RED", "NIR_NARROW", "BLUE"))
    for told in (
        {"bands": ["RED", "NIR_NARROW", "BLUE"]},
        {"bands": ["HLSBands.RED", "NIR_NARROW", "BLUE"]},
        {},
    ):
        fed = feed("Sen1Floods11NonGeoDataModule", bands, **told)
        assert fed.bands == ("RED", "NIR_NARROW", "BLUE")
        assert fed.mean == (0.12353792, 0.30902815, 0.1412956)


def test_the_data_modules_order_goes_before_the_models() -> None:
    # TerraTorch feeds the bands as the data module gives them, whatever the model calls them.
    other = [*BANDS[3:], *BANDS[:3]]
    fed = feed("FireScarsNonGeoDataModule", bands=other)
    assert fed.bands == tuple(other)
    assert fed.mean is not None
    assert fed.mean[0] == 0.2323245113436119


def test_all_bands_of_a_module_in_its_order() -> None:
    # Near infrared is NIR there, and the model's own name for it is kept.
    fed = feed("BurnIntensityNonGeoDataModule")
    assert fed.bands == tuple(BANDS)
    assert fed.mean is not None
    assert fed.mean[3] == (1761.3884, 1890.2156, 1552.0403)
    turned = BandList(6, tuple(reversed(BANDS)))
    assert feed("FireScarsNonGeoDataModule", turned).bands == tuple(BANDS)


def test_one_statistic_a_date(tmp_path: Path) -> None:
    arguments = model_arguments(backbone_num_frames=3)
    arguments["necks"][1]["effective_time_dim"] = 3
    data = {"class_path": "BurnIntensityNonGeoDataModule", "init_args": {}}
    checkpoint = make_run(tmp_path, arguments=arguments, data=data)
    contract = checkpoint.config.contract.input
    assert contract.mean[0] == (331.6921, 896.8024, 348.8031)
    assert contract.std[5] == (612.9131, 1495.8365, 661.6196)
    assert contract.nodata_fill == 0.0001
    assert contract.scale == 1.0
    assert maps(checkpoint, {"pixel_values": torch.ones(1, 6, 3, 32, 32)}).isfinite().all()


@pytest.mark.parametrize(
    "told", [{"sensors": ["S2"], "bands": {"S2": ["BLUE", "RED"]}}, {"bands": ["BLUE", "RED"]}]
)
def test_one_of_several_sensors(told: dict[str, Any]) -> None:
    fed = feed("BioMasstersNonGeoDataModule", BandList(2, ("BLUE", "RED")), **told)
    assert fed.mean == (1633.0802, 1599.557)
    assert fed.std == (2499.7146, 2388.2268)
    assert fed.target == "AGBM"
    # It replaces no missing pixels.
    assert fed.nodata_fill is None


def test_several_sensors_at_once_are_refused() -> None:
    with pytest.raises(ContractError, match="a network of several inputs is not supported"):
        feed("BioMasstersNonGeoDataModule", sensors=["S1", "S2"])


def test_the_image_beside_weather() -> None:
    fed = feed("CarbonFluxNonGeoDataModule")
    assert fed.mean is not None
    assert fed.mean[0] == 0.07372144372093026
    assert fed.nodata_fill == 0.0001


GENERIC: dict[str, Any] = {
    "dataset_bands": [*BANDS, "CLOUD"],
    "output_bands": list(reversed(BANDS)),
    "means": [1, 2.5, 3, 4, 5, 6],
    "stds": [1, 1, 1, 1, 1, "2"],
    "constant_scale": 0.5,
    "no_data_replace": -8,
}


@pytest.mark.parametrize("kind", ["Segmentation", "PixelwiseRegression"])
def test_the_generic_modules_own_statistics(kind: str) -> None:
    fed = feed(f"GenericNonGeo{kind}DataModule", **GENERIC)
    assert fed.bands == tuple(reversed(BANDS))
    assert fed.mean == (1, 2.5, 3, 4, 5, 6)
    assert fed.std == (1, 1, 1, 1, 1, 2)
    assert fed.scale == 0.5
    # Missing pixels are replaced before the scale is applied.
    assert fed.nodata_fill == -4


@pytest.mark.parametrize("gone", ["means", "stds", "no_data_replace"])
def test_what_the_generic_module_leaves_open(gone: str) -> None:
    told = {key: value for key, value in GENERIC.items() if key != gone}
    fed = feed("GenericNonGeoSegmentationDataModule", **told)
    field = {"means": "mean", "stds": "std", "no_data_replace": "nodata_fill"}[gone]
    assert getattr(fed, field) is None
    assert feed("GenericNonGeoSegmentationDataModule", **{**GENERIC, "means": "a.txt"}).mean is None


def test_a_null_against_a_default() -> None:
    assert feed("FireScarsNonGeoDataModule", no_data_replace=None).nodata_fill is None
    assert feed("FireScarsNonGeoDataModule").nodata_fill == 0


def test_arguments_behind_the_signature() -> None:
    # Lightning writes arguments that the signature does not name apart.
    data = {
        "class_path": "MChesapeakeLandcoverNonGeoDataModule",
        "init_args": {"batch_size": 4},
        "dict_kwargs": {"bands": ["RED", "NIR"]},
    }
    fed = read_data(Settings.of("data", data), BandList(2, ("RED", "NIR")), model_names_bands=True)
    assert fed.mean == (0.4570387601852417, 0.569856584072113)


def test_a_module_that_is_not_known() -> None:
    fed = feed("MyDataModule", means=[1])
    assert fed.mean is fed.scale is fed.nodata_fill is None
    assert fed.notes == ("Nothing is known here of the data module MyDataModule",)
    assert read_data(Settings.of("data", None), SIX, model_names_bands=True) == Fed()


@pytest.mark.parametrize(
    ("transform", "note"),
    [
        ({"class_path": "albumentations.Resize", "init_args": {"height": 448}}, "Resize changes"),
        ({"class_path": "albumentations.Normalize"}, "normalises in a way of its own"),
    ],
)
def test_transforms_that_change_the_input(transform: dict[str, Any], note: str) -> None:
    fed = feed(
        "FireScarsNonGeoDataModule", test_transform=[transform, {"class_path": "ToTensorV2"}]
    )
    assert any(note in one for one in fed.notes)
    assert (fed.mean is None) == (transform["class_path"] == "albumentations.Normalize")


def test_a_crop_is_the_window() -> None:
    crop = {"class_path": "albumentations.CenterCrop", "init_args": {"height": 96, "width": 64}}
    assert feed("FireScarsNonGeoDataModule", test_transform=[crop]).crop == 96


def test_numbers_of_a_contract_by_hand(tmp_path: Path) -> None:
    # (p * scale + offset - mean) / std with the module's own numbers, for one band.
    arguments = model_arguments(backbone_bands=["RED"])
    data = floods_data(bands=["RED"], constant_scale=0.001, no_data_replace=30)
    contract = make_run(tmp_path, arguments=arguments, data=data).config.contract.input
    assert (contract.scale, contract.offset, contract.nodata_fill) == (0.001, 0, 0.03)
    normalised = (250 * contract.scale + contract.offset - contract.mean[0]) / contract.std[0]
    assert normalised == pytest.approx((0.25 - 0.12353792) / 0.08692279)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        (
            "Sen1Floods11NonGeoDataModule",
            {"bands": ["RED"]},
            "gives 1 bands, but the model reads 6",
        ),
        ("Sen1Floods11NonGeoDataModule", {"bands": [*BANDS[:5], "XX"]}, "no statistics of .'XX'."),
        ("Sen1Floods11NonGeoDataModule", {"bands": [1, 2, 3, 8, 11, 12]}, "bands by number"),
        ("Sen1Floods11NonGeoDataModule", {"bands": "RED"}, "bands must be a list"),
        (
            "Sen1Floods11NonGeoDataModule",
            {"constant_scale": "x"},
            "constant_scale must be a finite",
        ),
        ("GenericNonGeoSegmentationDataModule", {"means": [1, 2]}, "each of the 6 bands, got 2"),
        ("GenericNonGeoSegmentationDataModule", {"means": [1, "x"]}, "must be finite numbers"),
        ("GenericNonGeoSegmentationDataModule", {"means": [float("nan")] * 6}, "finite numbers"),
        ("BioMasstersNonGeoDataModule", {"sensors": ["S3"]}, r"must be one of \['S1', 'S2'\]"),
    ],
)
def test_refusals(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ContractError, match=message):
        feed(name, **arguments)


def test_days_count_from_where_the_data_set_counts_them() -> None:
    """As the data sets of TerraTorch 1.2.13 make temporal coordinates."""
    assert feed("Sen1Floods11NonGeoDataModule", bands=BANDS).first_day == 0
    assert feed("FireScarsNonGeoDataModule", bands=BANDS).first_day == 1
