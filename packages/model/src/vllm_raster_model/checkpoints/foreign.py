"""Other people's checkpoints, as ones that this package serves."""

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from vllm_raster_model.checkpoints.bare import bare_facts
from vllm_raster_model.checkpoints.facts import Facts, building
from vllm_raster_model.checkpoints.names import Named, backbone_names, fine_tune_names
from vllm_raster_model.checkpoints.options import Options
from vllm_raster_model.checkpoints.sources import Source, find_source
from vllm_raster_model.checkpoints.tensors import read_tensors
from vllm_raster_model.checkpoints.terratorch import terratorch_facts
from vllm_raster_model.config import RasterConfig
from vllm_raster_model.errors import ContractError, SourceError, WeightsError
from vllm_raster_model.networks import TorchLayers, build_network

PREFIX = "predictor.network."
"""What the weights of a network begin with in a served checkpoint."""
_NAMED_AT_MOST = 12
_log = logging.getLogger("vllm.raster.model")


@dataclass
class ForeignCheckpoint:
    """A checkpoint of TerraTorch, or a bare Prithvi.

    Attributes:
        source: Its files.
        facts: What is known of it.
        config: The configuration to serve it with.
        said: What a person should know of it, after `weights` also of the positions.
        left_out: After `weights`, what was left out of them.
    """

    source: Source
    facts: Facts
    config: RasterConfig
    said: list[str] = field(default_factory=list)
    stored: Mapping[str, torch.Tensor] | None = field(default=None, repr=False)
    left_out: list[str] = field(default_factory=list)

    @property
    def notes(self) -> list[str]:
        """All of it."""
        return [*self.said, *self.left_out]

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The weights under the names of a served checkpoint, floats in float32.

        Raises:
            WeightsError: The file cannot be read, or its weights are not those of the network.
        """
        stored = self.stored or read_tensors(self.source.weights)
        named = named_weights(self.source, self.facts, stored)
        positions = _note_positions(self.source, self.facts, stored)
        self.said, self.left_out = [*self.facts.notes, *positions], named.notes
        for note in (*named.notes, *positions):
            _log.info("%s", note)
        wanted = _wanted(self.config)
        _check(wanted, {name: stored[key].shape for name, key in named.weights.items()})
        for name, key in named.weights.items():
            weight = stored[key]
            yield PREFIX + name, weight.float() if weight.is_floating_point() else weight


def named_weights(source: Source, facts: Facts, stored: Mapping[str, torch.Tensor]) -> Named:
    """The names of a file's weights in the network, and what is left out."""
    if source.kind != "bare":
        return fine_tune_names(stored, facts.coordinates)
    whole = facts.network["model_type"] == "prithvi_mae"
    return backbone_names(stored, facts.coordinates, with_decoder=whole)


def _note_positions(source: Source, facts: Facts, stored: Mapping[str, torch.Tensor]) -> list[str]:
    """Whether the code of positions that is computed has the size of the one that is stored."""
    network = facts.network
    size = network["image_size"]
    sides = [size, size] if isinstance(size, int) else size
    tubelet, a_date = network["tubelet_size"], math.prod(s // network["patch_size"] for s in sides)
    expected = facts.frames // tubelet * a_date
    for name, one in stored.items():
        if name.rpartition(".")[2] != "pos_embed" or one.ndim != 3:
            continue
        found = one.shape[1] - 1
        if source.kind == "bare" and found > 0 and found != expected and found % a_date == 0:
            dates = found // a_date * tubelet
            return [
                f"The file was trained with {dates} date{'s' * (dates > 1)}; converted for "
                f"{facts.frames} (--frames {dates} for {dates}): its code of positions is for "
                f"{found} patches, {a_date} a date"
            ]
        if found != expected:
            return [
                f"The stored code of positions is for {found} patches, the configuration (image "
                f"size, dates) makes it for {expected}"
            ]
    return []


def gather(path: Path, options: Options) -> tuple[Source, Facts, Mapping[str, torch.Tensor] | None]:
    """Finds out what a source says, and what a person says of it.

    Returns:
        Its files, what is known, and its weights where these had to be asked.

    Raises:
        RasterModelError: It is nothing that can be served.
    """
    source = find_source(path, options)
    if source.kind == "ours":
        raise SourceError(f"{path} is a checkpoint of this package already: serve it as it is")
    stored = None
    if source.kind == "bare":
        stored = read_tensors(source.weights)
        if any(".neck." in f".{n}" or ".head." in f".{n}" for n in stored):
            raise SourceError(
                f"{source.weights} is a fine-tuned network, but nothing beside it says which: "
                "give --config with the yaml or json of its training"
            )
        facts = bare_facts(source, options, stored)
    else:
        _refuse_bare_options(options)
        facts = terratorch_facts(source)
    facts.apply(options)
    return source, facts, stored


def read_checkpoint(path: Path | str, options: Options | None = None) -> ForeignCheckpoint:
    """Reads a TerraTorch folder for vLLM, a TerraTorch training run, or a bare Prithvi.

    Nothing that comes with it is executed. Weights are read when `weights` is asked for them.

    Args:
        path: The folder, or one of its files.
        options: What the source does not say.

    Raises:
        ContractError: A part of it is not supported, or something has to be said by an option.
        RasterModelError: It cannot be read.
    """
    source, facts, stored = gather(Path(path), options or Options())
    checkpoint = ForeignCheckpoint(source, facts, facts.config(), list(facts.notes), stored)
    for note in facts.notes:
        _log.warning("%s", note)
    return checkpoint


def _refuse_bare_options(options: Options) -> None:
    for name in ("task", "backbone", "frames"):
        if getattr(options, name) is not None:
            raise ContractError(f"--{name} is for bare encoders; this is a fine-tuned network")


def _wanted(config: RasterConfig) -> dict[str, torch.Size]:
    """Names and shapes of the network's weights; building it on no device costs no memory."""
    with building(), torch.device("meta"):
        network = build_network(config.vision_config, config.contract, TorchLayers())
    return {name: one.shape for name, one in network.state_dict().items()}


def _check(wanted: Mapping[str, torch.Size], given: Mapping[str, torch.Size]) -> None:
    missing, unknown = sorted(wanted.keys() - given.keys()), sorted(given.keys() - wanted.keys())
    if missing or unknown:
        raise WeightsError(
            "The weights are not those of the network that the configuration describes. "
            f"Missing: {_listed(missing)}. Unknown: {_listed(unknown)}"
        )
    patches = "encoder.patch_embed.proj.weight"
    if given[patches][1:2] != wanted[patches][1:2]:
        raise WeightsError(
            f"The weights are for {given[patches][1]} bands, the configuration names "
            f"{wanted[patches][1]}"
        )
    misfits = [
        f"{name} {tuple(given[name])} instead of {tuple(shape)}"
        for name, shape in wanted.items()
        if given[name] != shape
    ]
    if misfits:
        raise WeightsError(f"Weights do not fit the network: {_listed(misfits)}")


def _listed(names: list[str]) -> str:
    rest = len(names) - _NAMED_AT_MOST
    more = f" and {rest} more" if rest > 0 else ""
    return (", ".join(names[:_NAMED_AT_MOST]) or "none") + more
