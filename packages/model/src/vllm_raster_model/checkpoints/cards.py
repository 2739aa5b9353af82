"""The model card of a converted checkpoint."""

import shlex
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import yaml

from vllm_raster_model.checkpoints.foreign import ForeignCheckpoint
from vllm_raster_model.contract import InputContract, OutputContract

_SEGMENTATION, _OTHER = "image-segmentation", "image-to-image"
_NOT_IN_MARKDOWN: dict[str, str | int | None] = {"|": "/", "`": "'", "<": "(", ">": ")"}
_LISTED_AT_MOST = 64


def model_card(checkpoint: ForeignCheckpoint, name: str, parameters: int) -> str:
    """What a person should know of a checkpoint, in Markdown.

    Args:
        checkpoint: What was converted.
        name: Of the folder that it is in now.
        parameters: Numbers that training has set.
    """
    contract = checkpoint.config.contract
    tile = contract.tile
    sections = [
        _head(checkpoint),
        f"# {_plain(name)}\n",
        f"{checkpoint.facts.source}, converted for vLLM by vllm-raster-model {_version()}. "
        f"{parameters:,} parameters.\n",
        "## Input\n",
        _input_table(contract.input),
        f"A stored count `p` becomes `(p * {contract.input.scale:g} + {contract.input.offset:g} "
        f"- mean) / std`; a missing pixel counts as {contract.input.nodata_fill:g} in the unit of "
        "the means.\n",
        *_dates(contract.input),
        f"Windows of up to {tile.size} pixels a side; neighbouring ones share {tile.overlap}.\n",
        "## Output\n",
        _output(contract.output),
        "## Serve it\n",
        f"```bash\nvllm serve {shlex.quote(_plain(name))}\n```\n",
        "## Where it comes from\n",
        f"`{_plain(checkpoint.source.weights.name)}` of "
        f"`{_plain(checkpoint.source.place.resolve().name)}`. {_licence(checkpoint)}\n",
        *(f"- {_plain(one)}" for one in checkpoint.notes),
    ]
    return "\n".join(sections).rstrip() + "\n"


def _head(checkpoint: ForeignCheckpoint) -> str:
    classes = checkpoint.config.contract.output.kind == "classes"
    head: dict[str, object] = {
        "pipeline_tag": _SEGMENTATION if classes else _OTHER,
        "tags": ["vllm", "raster", "earth-observation"],
    }
    if checkpoint.facts.licence:
        head["license"] = checkpoint.facts.licence
    return f"---\n{yaml.safe_dump(head, sort_keys=True)}---\n"


def _licence(checkpoint: ForeignCheckpoint) -> str:
    if checkpoint.facts.licence:
        return f"Its licence is `{_plain(checkpoint.facts.licence)}`, as its card states."
    return "It states no licence: ask who made it."


def _input_table(contract: InputContract) -> str:
    lines = ["| band | mean | standard deviation |", "|---|---|---|"]
    count = len(contract.bands)
    means = contract.mean if len(contract.mean) == count else contract.mean * count
    stds = contract.std if len(contract.std) == count else contract.std * count
    for band, mean, std in zip(contract.bands, means, stds, strict=True):
        lines.append(f"| {_plain(band)} | {_number(mean)} | {_number(std)} |")
    return "\n".join(lines) + "\n"


def _dates(contract: InputContract) -> list[str]:
    found = []
    if contract.frames > 1:
        found.append(
            f"{contract.frames} dates; a file that holds all of them has the bands of the first "
            "date first.\n"
        )
    if contract.coordinates:
        found.append(f"The network is told {' and '.join(contract.coordinates)}, where known.\n")
    return found


def _output(contract: OutputContract) -> str:
    if contract.kind == "classes":
        what = "Ids of classes, as they are:"
    else:
        what = "One band each, in float32:"
    units = {one.name: one.unit for one in contract.bands if one.unit}
    names = [one.name for one in contract.classes or contract.bands]
    lines = [f"- {i} {_plain(name)}" for i, name in enumerate(names[:_LISTED_AT_MOST])]
    lines = [
        f"{line} ({units[name]})" if name in units else line
        for line, name in zip(lines, names, strict=False)
    ]
    if rest := len(names) - _LISTED_AT_MOST:
        lines += [f"- and {rest} more"] if rest > 0 else []
    size = ""
    if contract.upscale != 1:
        size = f"\nA pixel becomes a block of {contract.upscale} pixels a side.\n"
    if contract.downscale != 1:
        size = f"\nA block of {contract.downscale} pixels a side becomes one pixel.\n"
    return "\n".join([what, "", *lines]) + "\n" + size


def _number(value: Any) -> str:
    """A statistic of a band: one number, or one a date."""
    if isinstance(value, tuple):
        return ", ".join(f"{one:g}" for one in value)
    return f"{value:g}"


def _plain(text: str) -> str:
    """A text without what Markdown would take for something else."""
    return " ".join(text.split()).translate(str.maketrans(_NOT_IN_MARKDOWN))


def _version() -> str:
    try:
        return version("vllm-raster-model")
    except PackageNotFoundError:
        return "of unknown version"
