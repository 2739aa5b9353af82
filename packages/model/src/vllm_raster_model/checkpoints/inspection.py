"""What a checkpoint is, what it eats and what it gives: ours, or one that can be converted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vllm_raster_model.checkpoints.facts import Facts, building
from vllm_raster_model.checkpoints.foreign import ForeignCheckpoint, gather, named_weights
from vllm_raster_model.checkpoints.names import count_parameters
from vllm_raster_model.checkpoints.options import Options
from vllm_raster_model.checkpoints.sources import Source, find_source
from vllm_raster_model.checkpoints.tensors import read_tensors
from vllm_raster_model.config import InstructedRasterConfig, RasterConfig
from vllm_raster_model.errors import SourceError


@dataclass
class Report:
    """What is said of a checkpoint.

    Attributes:
        what: The kind of checkpoint.
        parameters: Numbers that training has set.
        network: The network's configuration.
        raster: The `raster` block; of what could not be converted yet, as much as is known.
        missing: Options that a conversion needs.
        notes: What a person should know.
    """

    what: str
    parameters: int
    network: dict[str, Any]
    raster: dict[str, Any]
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """As json holds it."""
        return {
            "what": self.what,
            "parameters": self.parameters,
            "network": self.network,
            "raster": self.raster,
            "missing_options": self.missing,
            "notes": self.notes,
        }


def inspect_checkpoint(path: Path, options: Options | None = None) -> Report:
    """Looks at a checkpoint without running anything of it.

    Raises:
        RasterModelError: It is none, or is broken.
    """
    options = options or Options()
    source = find_source(path, options)
    if source.kind == "ours":
        return _ours(source)
    source, facts, stored = gather(path, options)
    if missing := facts.missing():
        tensors = stored or read_tensors(source.weights)
        named = named_weights(source, facts, tensors)
        return Report(
            what=facts.source,
            parameters=count_parameters({n: tensors[key] for n, key in named.weights.items()}),
            network=facts.network,
            raster=_known(facts),
            missing=missing,
            notes=list(facts.notes),
        )
    checkpoint = ForeignCheckpoint(source, facts, facts.config(), list(facts.notes), stored)
    parameters = count_parameters(dict(checkpoint.weights()))
    return Report(
        what=facts.source,
        parameters=parameters,
        network=facts.network,
        raster=checkpoint.config.contract.model_dump(mode="json", exclude_none=True),
        notes=checkpoint.said,
    )


def _ours(source: Source) -> Report:
    folder = source.place if source.place.is_dir() else source.place.parent
    instructed = "text_config" in source.config
    kind = InstructedRasterConfig if instructed else RasterConfig
    try:
        config = kind.from_pretrained(folder)
    except (OSError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"{source.config_path} cannot be read: {error}") from None
    network = config.to_dict()["vision_config"] if config.vision_config else {}
    return Report(
        what="checkpoint of this package" + (", with a language model" if instructed else ""),
        parameters=count_parameters(read_tensors(source.weights)),
        network=network,
        raster=config.contract.model_dump(mode="json", exclude_none=True),
    )


def _known(facts: Facts) -> dict[str, Any]:
    """As much of the `raster` block as the source says."""
    inputs = {
        "bands": facts.bands or facts.band_count,
        "scale": facts.scale,
        "offset": facts.offset,
        "mean": facts.mean,
        "std": facts.std,
        "nodata_fill": facts.nodata_fill,
        "frames": facts.frames,
        "coordinates": list(facts.coordinates),
    }
    with building():
        tile, scales = facts.sizes()
    output = {
        "kind": facts.kind,
        **scales,
        "channels": facts.channels,
        "names": facts.channel_names,
    }
    return {"input": _said(inputs), "tile": tile, "output": _said(output)}


def _said(part: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if value is not None}
