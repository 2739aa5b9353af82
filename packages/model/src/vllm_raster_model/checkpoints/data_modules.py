"""What TerraTorch's data modules feed a network with: statistics, scale, fill, bands.

Means and standard deviations belong to the data module that a configuration names. Those in
`data_modules.json` are TerraTorch 1.2.13's (Apache-2.0); the order of a module's statistics is
that of its bands where it is not told which. All of its data sets put the replacement in place of
missing pixels first, multiply by the scale then, and subtract the means last.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

from vllm_raster_model.checkpoints.bands import BandList, same_kind, spelling
from vllm_raster_model.checkpoints.settings import Settings, shown
from vllm_raster_model.errors import ContractError

Statistics = tuple[float, ...] | tuple[tuple[float, ...], ...]
"""One number a band, or one list a band of one number a date."""

_GENERIC = {"GenericNonGeoSegmentationDataModule", "GenericNonGeoPixelwiseRegressionDataModule"}
_SENSOR = {"BioMasstersNonGeoDataModule": None, "CarbonFluxNonGeoDataModule": "image"}
"""Modules with statistics of several inputs, and the one to take; None where `sensors` says."""
_TARGETS = {"BioMasstersNonGeoDataModule": "AGBM"}
"""What the numbers of a regression stand for."""
_HARMLESS = {
    "ToTensorV2",
    "ToTensor",
    "FlattenTemporalIntoChannels",
    "UnflattenTemporalFromChannels",
    "FlattenSamplesIntoChannels",
    "UnflattenSamplesFromChannels",
    "Rearrange",
}
_DAYS_FROM_ZERO = {
    "MBeninSmallHolderCashewsNonGeoDataModule",
    "MForestNetNonGeoDataModule",
    "MNzCattleNonGeoDataModule",
    "MultiTemporalCropClassificationDataModule",
    "Sen1Floods11NonGeoDataModule",
}
"""Those whose data sets give the day of the year less one; the others give it as it is."""

_CROPS = {"CenterCrop", "RandomCrop", "Crop"}


@dataclass(frozen=True)
class Fed:
    """What a data module says of a network's input; None where it does not.

    Attributes:
        bands: Names of the bands, in the order in which the network gets them.
        mean: In the unit after the scale.
        std: Like `mean`.
        scale: Factor on stored counts.
        nodata_fill: Stands in for missing pixels, in the unit of `mean`.
        crop: Side of the windows in pixels.
        told_coordinates: Whether it gives places and dates.
        first_day: Number of 1 January among the days of a year.
        target: What a regression's values are.
        notes: What a person should know.
    """

    bands: tuple[str, ...] | None = None
    mean: Statistics | None = None
    std: Statistics | None = None
    scale: float | None = None
    nodata_fill: float | None = None
    crop: int | None = None
    told_coordinates: bool | None = None
    first_day: int = 1
    target: str | None = None
    notes: tuple[str, ...] = field(default=())


@lru_cache
def _table() -> Mapping[str, Any]:
    text = files(__package__).joinpath("data_modules.json").read_text(encoding="utf-8")
    modules: Mapping[str, Any] = json.loads(text)["modules"]
    return modules


def known_data_modules() -> list[str]:
    """The names of the data modules whose statistics are known."""
    return sorted({*_table(), *_GENERIC})


def read_data(data: Settings, model_bands: BandList, model_names_bands: bool) -> Fed:
    """Reads the `data` block of a configuration.

    Args:
        data: With `class_path` and `init_args`; empty where there is no block.
        model_bands: The bands that the model's own arguments give it.
        model_names_bands: Whether they do so, or leave it to the backbone.

    Raises:
        ContractError: The block contradicts itself or the model.
    """
    class_path = data.text("class_path")
    if class_path is None:
        return Fed()
    name = class_path.rpartition(".")[2]
    arguments = _arguments(name, data)
    crop, notes = _transforms(arguments)
    if name in _GENERIC:
        module = _generic(arguments, model_bands)
    elif name in _table():
        module = _named(name, arguments, model_bands, model_names_bands)
    else:
        notes.append(f"Nothing is known here of the data module {name}")
        return Fed(crop=crop, notes=tuple(notes))
    if normalises := _other_normalisation(arguments):
        notes.append(f"{normalises} normalises in a way of its own, which is not read")
        module = replace(module, mean=None, std=None)
    replacement = module.replacement
    if "no_data_replace" in arguments.values:
        replacement = arguments.number("no_data_replace")
    return Fed(
        bands=module.bands,
        mean=module.mean,
        std=module.std,
        scale=module.scale,
        # Replaced before the scale is applied, whereas the contract fills after it.
        nodata_fill=None if replacement is None else replacement * module.scale,
        crop=crop,
        told_coordinates=arguments.flag("use_metadata", False),
        first_day=0 if name in _DAYS_FROM_ZERO else 1,
        target=_TARGETS.get(name),
        notes=tuple(notes),
    )


@dataclass(frozen=True)
class _Module:
    """As `Fed`; `replacement` is in the unit of the stored counts."""

    bands: tuple[str, ...] | None
    mean: Statistics | None
    std: Statistics | None
    scale: float
    replacement: float | None


def _arguments(name: str, data: Settings) -> Settings:
    """All arguments of a data module; a null is kept, for it may stand against a default."""
    whole: dict[str, Any] = {}
    for key in ("init_args", "dict_kwargs"):
        data.section(key)
        whole.update(data.get(key) or {})
    return Settings(f"data ({name})", whole)


def _other_normalisation(arguments: Settings) -> str | None:
    if arguments.get("aug") is not None:
        return "The data module's aug"
    return "A transform" if "Normalize" in _transform_names(arguments) else None


def _generic(arguments: Settings, model_bands: BandList) -> _Module:
    listed = arguments.items("output_bands") or arguments.items("dataset_bands")
    bands = None if listed is None else BandList.of(f"{arguments.where}.output_bands", listed)
    _check_count(arguments, bands, model_bands)
    return _Module(
        bands=bands.names if bands else None,
        mean=_listed_statistics(arguments, "means", model_bands.count),
        std=_listed_statistics(arguments, "stds", model_bands.count),
        scale=_scale(arguments, 1.0),
        replacement=None,
    )


def _named(
    name: str, arguments: Settings, model_bands: BandList, model_names_bands: bool
) -> _Module:
    module = _table()[name]
    means, stds = module["means"], module["stds"]
    listed = arguments.get("bands")
    if name in _SENSOR:
        sensor = _SENSOR[name] or _sensor(arguments, means, model_bands)
        means, stds = means[sensor], stds[sensor]
        listed = listed.get(sensor) if isinstance(listed, Mapping) else listed
    bands = None
    if listed is not None:
        if not isinstance(listed, (list, tuple)):
            raise ContractError(f"{arguments.where}.bands must be a list, got {shown(listed)}")
        bands = BandList.of(f"{arguments.where}.bands", listed)
        _check_count(arguments, bands, model_bands)
    names, keys = _bands_of(name, means, bands, model_bands, model_names_bands)
    defaults = module["defaults"]
    return _Module(
        bands=names,
        mean=tuple(_frozen(means[key]) for key in keys),
        std=tuple(_frozen(stds[key]) for key in keys),
        scale=_scale(arguments, defaults.get("constant_scale", 1.0)),
        replacement=defaults.get("no_data_replace"),
    )


def _bands_of(
    name: str,
    table: Mapping[str, Any],
    told: BandList | None,
    model_bands: BandList,
    model_names_bands: bool,
) -> tuple[tuple[str, ...], list[str]]:
    """The names of the bands, and under which names their statistics are found."""
    by_spelling = {spelling(key): key for key in table}
    wanted = told.names if told is not None else model_bands.names
    if told is None and len(table) == model_bands.count:
        # The module gives all of its bands, in its own order.
        keys = list(table)
        if model_names_bands and model_bands.names and same_kind(keys, model_bands.names):
            return model_bands.names, keys
        return tuple(keys), keys
    unknown = [one for one in wanted or () if spelling(one) not in by_spelling]
    if wanted is None or unknown:
        raise ContractError(
            f"The data module {name} has no statistics of {shown(unknown or 'bands by number')}; "
            f"it has those of {', '.join(table)}"
        )
    return wanted, [by_spelling[spelling(one)] for one in wanted]


def _sensor(arguments: Settings, means: Mapping[str, Any], model_bands: BandList) -> str:
    known = [key for key, value in means.items() if isinstance(value, Mapping)]
    listed = arguments.items("sensors")
    if listed is None and isinstance(arguments.get("bands"), Mapping):
        listed = list(arguments.get("bands"))
    if listed is None:
        # The one that has the bands that the model reads.
        names = model_bands.names or ()
        listed = [s for s in known if all(spelling(n) in map(spelling, means[s]) for n in names)]
    if len(listed) != 1 or listed[0] not in known:
        raise ContractError(
            f"{arguments.where}.sensors must be one of {known}, got {shown(listed)}: a network "
            "of several inputs is not supported"
        )
    return str(listed[0])


def _listed_statistics(arguments: Settings, key: str, bands: int) -> Statistics | None:
    if isinstance(arguments.get(key), str):
        # A file on the machine of the training.
        return None
    numbers = arguments.numbers(key)
    if numbers is not None and len(numbers) != bands:
        raise ContractError(
            f"{arguments.where}.{key} must be one for each of the {bands} bands, got {len(numbers)}"
        )
    return None if numbers is None else tuple(_frozen(one) for one in numbers)


def _scale(arguments: Settings, default: float) -> float:
    scale = arguments.number("constant_scale")
    return default if scale is None else scale


def _check_count(arguments: Settings, bands: BandList | None, model_bands: BandList) -> None:
    if bands is not None and bands.count != model_bands.count:
        raise ContractError(
            f"{arguments.where} gives {bands.count} bands, but the model reads "
            f"{model_bands.count}: {shown(model_bands.names)}"
        )


def _transform_names(arguments: Settings) -> list[str]:
    paths = [
        one.get("class_path") if isinstance(one, Mapping) else one for one in _steps(arguments)
    ]
    return [str(path).rpartition(".")[2] for path in paths]


def _steps(arguments: Settings) -> list[Any]:
    listed = arguments.get("test_transform")
    return listed if isinstance(listed, list) else []


def _transforms(arguments: Settings) -> tuple[int | None, list[str]]:
    """The window that the test's transforms leave, and what a person should know of them."""
    crop, notes = None, []
    for name, step in zip(_transform_names(arguments), _steps(arguments), strict=True):
        if name in _CROPS:
            size = Settings.of(f"{arguments.where}.test_transform", step).section("init_args")
            sides = [size.whole(one) for one in ("height", "width")]
            crop = max((one for one in sides if one is not None), default=crop)
        elif name not in _HARMLESS | {"Normalize"}:
            notes.append(
                f"TerraTorch's {name} changes windows before the network; the server does not"
            )
    return crop, notes


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
