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
        notes: What a person should know of it, after `weights` also what was left out.
    """

    source: Source
    facts: Facts
    config: RasterConfig
    notes: list[str] = field(default_factory=list)
    stored: Mapping[str, torch.Tensor] | None = field(default=None, repr=False)

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The weights under the names of a served checkpoint, floats in float32.

        Raises:
            WeightsError: The file cannot be read, or its weights are not those of the network.
        """
        stored = self.stored or read_tensors(self.source.weights)
        named = named_weights(self.source, self.facts, stored)
        notes = [*named.notes, *_note_positions(self.facts, stored)]
        self.notes = [*self.facts.notes, *notes]
        for note in notes:
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


def _note_positions(facts: Facts, stored: Mapping[str, torch.Tensor]) -> list[str]:
    """Whether the code of positions that is computed has the size of the one that is stored."""
    network = facts.network
    size = network["image_size"]
    sides = [size, size] if isinstance(size, int) else size
    expected = 1 + facts.frames // network["tubelet_size"] * math.prod(
        one // network["patch_size"] for one in sides
    )
    for name, one in stored.items():
        if name.rpartition(".")[2] == "pos_embed" and one.ndim == 3 and one.shape[1] != expected:
            return [
                f"The stored code of positions is for {one.shape[1] - 1} patches, the "
                f"configuration (image size, dates) makes it for {expected - 1}"
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
