"""The configuration of a TerraTorch folder that is served as it is."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vllm_raster_model.checkpoints.facts import Facts
from vllm_raster_model.checkpoints.options import Options
from vllm_raster_model.checkpoints.sources import Source
from vllm_raster_model.checkpoints.terratorch import terratorch_facts
from vllm_raster_model.config import RasterConfig
from vllm_raster_model.errors import ContractError, RasterModelError
from vllm_raster_model.overlays import laid_over

_KEYS = {
    "bands": ("input", "bands"),
    "mean": ("input", "mean"),
    "std": ("input", "std"),
    "scale": ("input", "scale"),
    "nodata_fill": ("input", "nodata_fill"),
    "tile": ("tile", "size"),
}
"""Where a `raster` block says what the converter's options of these names say."""
_NOT_SERVED = ("stored", "said", "reason", "problem", "notes")


class UnconvertedConfig(RasterConfig):
    """What a folder would be converted to, with what was said besides when it was served.

    `raster` may be set to a part of a `raster` block, as vLLM does with `--hf-overrides` after it
    read config.json: it is laid over what the folder says. So nothing is refused before that was
    done, and `problem` keeps what there is to refuse.

    Args:
        stored: The folder's config.json.
        reason: Why this package serves it.
        **kwargs: As for `RasterConfig`.

    Attributes:
        stored: The folder's config.json.
        said: The part of a `raster` block that was said besides.
        reason: Why this package serves it.
        problem: Why it cannot be served with what was said so far; None if it can.
        notes: What a person should know of it.
    """

    def __init__(
        self, stored: Mapping[str, Any] | None = None, reason: str = "", **kwargs: Any
    ) -> None:
        self.stored, self.reason = dict(stored or {}), reason
        self.said: dict[str, Any] = {}
        self.problem: str | None = None
        self.notes: list[str] = []
        super().__init__(**kwargs)
        if stored is not None:
            self.raster = {}

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "raster" and value is not None:
            self._lay_over(value)
        else:
            super().__setattr__(name, value)

    def _lay_over(self, said: Any) -> None:
        self.__dict__.pop("contract", None)
        try:
            self.said = laid_over(self.said, _parts_of(said))
            facts = self.facts()
            if missing := facts.missing():
                raise ContractError(_asked_for(missing))
            whole = facts.config()
            block = laid_over(whole.raster or {}, self.said)
            block["tile"]["size"] = whole.contract.tile.size  # made to fit the cells
            self.__dict__["raster"] = block  # the whole, to be laid over nothing
            self.vision_config, self.dtype = whole.vision_config, whole.dtype
            self._derive()
            self.problem, self.notes = None, facts.notes
        except RasterModelError as error:
            self.problem = str(error)

    def source(self, weights: Path = Path()) -> Source:
        """The folder as the converter sees it, with this file of weights."""
        return Source("terratorch", Path(), self.stored, None, weights, None)

    def facts(self) -> Facts:
        """What the folder says, with what was said besides.

        Raises:
            ContractError: It describes nothing that can be served, or what was said does not fit.
        """
        facts = terratorch_facts(self.source())
        facts.apply(_options(self.said))
        return facts

    def to_dict(self) -> dict[str, Any]:
        """As config.json of the converted checkpoint holds it."""
        return {k: v for k, v in super().to_dict().items() if k not in _NOT_SERVED}


def _parts_of(said: Any) -> dict[str, Any]:
    """A part of a `raster` block, as far as it is read before the whole is checked."""
    parts = said if isinstance(said, Mapping) else {"": said}
    for name, part in parts.items():
        if name not in ("version", "compute_dtype") and not isinstance(part, Mapping):
            where = f"raster.{name}".rstrip(".")
            raise ContractError(f"{where} must hold keys and values, got {part!r}")
    given = dict(parts.get("input", {}))
    for name in ("mean", "std"):
        if isinstance(given.get(name), int | float):
            given[name] = [given[name]]
    return {**parts, "input": given}


def _options(said: Mapping[str, Any]) -> Options:
    """What the converter would be told in the place of a part of a `raster` block."""
    given, tile = said.get("input", {}), said.get("tile", {})
    # Of what is laid over the block afterwards, only that it was said, or how many, counts here.
    options: dict[str, Any] = {name: (1.0,) if name in given else None for name in ("mean", "std")}
    for name in ("scale", "nodata_fill"):
        options[name] = 1.0 if name in given else None
    if "classes" in said.get("output", {}):
        options["classes"] = (str(len(said["output"]["classes"])),)
    for name in ("bands", "coordinates"):
        options[name] = tuple(given[name]) if name in given else None
    return Options(tile=tile.get("size"), **options)


def _asked_for(missing: list[str]) -> str:
    """What the folder lacks, with both ways to say it."""
    example: dict[str, Any] = {}
    for option in missing:
        part, key = _KEYS[option.removeprefix("--").replace("-", "_")]
        example.setdefault(part, {})[key] = "…"
    keys = ", ".join(f"raster.{part}.{key}" for part, found in example.items() for key in found)
    overrides = json.dumps({"raster": example}, ensure_ascii=False).replace('"…"', "…")
    return (
        f"config.json does not say all that is needed. Missing: {keys}. Say it when serving, "
        f"--hf-overrides '{overrides}', or when converting, {' '.join(f'{o} …' for o in missing)}"
    )
