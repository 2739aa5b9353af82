"""Finding the files of a checkpoint, and of what kind it is."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vllm_raster_model.checkpoints.documents import front_matter, read_json, read_yaml
from vllm_raster_model.checkpoints.options import Options
from vllm_raster_model.checkpoints.tensors import SUFFIXES, holds_an_encoder
from vllm_raster_model.errors import SourceError

Kind = Literal["ours", "terratorch", "run", "bare"]
_YAML = (".yaml", ".yml")
_NOT_A_RUN = ("hparams.yaml",)
_LIKELY_RUNS = ("config.yaml", "config.yml")

_LICENCE = re.compile(r"[\w.+ -]{1,60}")


@dataclass(frozen=True)
class Source:
    """A checkpoint's files.

    Attributes:
        kind: One of ours, TerraTorch's folder for vLLM, a training run of it, or a bare encoder.
        place: What was named.
        config: What the configuration holds; empty for a bare encoder without one.
        config_path: Its file.
        weights: The file of the weights.
        licence: As a model card beside them states it.
    """

    kind: Kind
    place: Path
    config: dict[str, Any]
    config_path: Path | None
    weights: Path
    licence: str | None


def find_source(place: Path, options: Options | None = None) -> Source:
    """Finds out what a path holds.

    Args:
        place: A folder, a file of weights, or a configuration.
        options: May name the files where there are several.

    Raises:
        SourceError: Nothing there is known, something is missing, or there is too much of it.
    """
    options = options or Options()
    if not place.exists():
        raise SourceError(f"There is nothing at {place}")
    folder = place if place.is_dir() else place.parent
    config_path = options.config or _config_path(place, folder)
    config = _read(config_path) if config_path else {}
    kind = _kind(config, config_path)
    if place.is_file() and place.suffix in SUFFIXES:
        weights = place
    else:
        weights = options.weights or _weights_path(folder)
    return Source(kind, place, config, config_path, weights, _licence(folder))


def _config_path(place: Path, folder: Path) -> Path | None:
    if place.is_file() and place.suffix in (*_YAML, ".json"):
        return place
    if place.is_file() and place.suffix not in SUFFIXES:
        raise SourceError(f"{place} is neither a configuration nor a file of weights")
    for one in (folder, folder.parent) if folder.name == "checkpoints" else (folder,):
        if (one / "config.json").is_file():
            return one / "config.json"
        found = [p for p in _files(one, _YAML) if p.name not in _NOT_A_RUN]
        likely = [p for p in found if p.name in _LIKELY_RUNS] or found
        if path := _only(likely, "configurations", "--config", _describes_a_model):
            return path
    return None


def _weights_path(folder: Path) -> Path:
    for one in (folder, folder / "checkpoints"):
        found = _files(one, SUFFIXES) if one.is_dir() else []
        if path := _only(found, "files of weights", "--weights", holds_an_encoder):
            return path
    raise SourceError(f"There is no file of weights in {folder} ({', '.join(SUFFIXES)})")


def _only(found: list[Path], what: str, option: str, wanted: Callable[[Path], bool]) -> Path | None:
    """The one that is wanted, where there are several; the only one as it is."""
    if len(found) > 1:
        found = [one for one in found if wanted(one)] or found
    if len(found) > 1:
        names = ", ".join(one.name for one in found[:8])
        raise SourceError(f"{found[0].parent} has several {what}, choose by {option}: {names}")
    return found[0] if found else None


def _files(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    try:
        return sorted(p for p in folder.iterdir() if p.suffix in suffixes and p.is_file())
    except OSError as error:
        raise SourceError(f"{folder} cannot be read: {error.strerror}") from None


def _describes_a_model(path: Path) -> bool:
    try:
        return "model" in read_yaml(path)
    except SourceError:
        return False


def _read(path: Path) -> dict[str, Any]:
    return read_json(path) if path.suffix == ".json" else read_yaml(path)


def _kind(config: dict[str, Any], path: Path | None) -> Kind:
    if path is None:
        return "bare"
    if "raster" in config:
        return "ours"
    if isinstance(config.get("model"), dict):
        return "run"
    within = config.get("pretrained_cfg")
    if isinstance(within, dict) and ("model" in within or "model_args" in within):
        return "terratorch"
    if any(isinstance(config.get(key), str) for key in ("architecture", "model_name")):
        return "bare"
    raise SourceError(
        f"{path} is none of a TerraTorch folder for vLLM (pretrained_cfg), a TerraTorch training "
        "run (model and data), a Prithvi encoder (architecture), or a checkpoint of this package"
    )


def _licence(folder: Path) -> str | None:
    card = folder / "README.md"
    stated = front_matter(card).get("license") if card.is_file() else None
    return stated if isinstance(stated, str) and _LICENCE.fullmatch(stated) else None
