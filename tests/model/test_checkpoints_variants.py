"""Networks of every other kind, converted from TerraTorch's configuration of them."""

import json
from pathlib import Path

import pytest
import torch

from vllm_raster_model.checkpoints import ForeignCheckpoint, read_checkpoint

from .foreign import NORMALISED, run_config, save_lightning, served_config, write
from .foreign import maps as mapped
from .terratorch import TerraTorchCase, variants


def folder_of(case: TerraTorchCase, folder: Path) -> Path:
    """The case as TerraTorch publishes it for vLLM."""
    task = "SemanticSegmentationTask" if case.task == "segmentation" else "PixelwiseRegressionTask"
    arguments = dict(case.arguments)
    arguments.setdefault("backbone_bands", list("abcdefgh")[: case.pixels.shape[1]])
    count = "num_classes" if case.task == "segmentation" else "num_outputs"
    arguments[count] = case.expected.shape[1]
    config = run_config(arguments, data=None, task=task)
    bands, frames, *sides = case.pixels.shape[1:]
    path = served_config(folder, config, [bands, frames, *sides])
    if case.dates is not None or case.places is not None:
        whole = json.loads(path.read_text())
        whole["pretrained_cfg"]["input"]["data"]["location_coords"] = {"shape": [1, 2]}
        write(path, json.dumps(whole))
    save_lightning(folder / "weights.pt", {f"model.{n}": w for n, w in case.weights.items()})
    return folder


def inputs(case: TerraTorchCase) -> dict[str, torch.Tensor]:
    found = {"pixel_values": case.pixels}
    if case.dates is not None:
        found["temporal_coords"] = case.dates
    if case.places is not None:
        found["location_coords"] = case.places
    return found


@pytest.mark.parametrize("name", sorted(variants()))
def test_converted_as_terratorch_computed(name: str, tmp_path: Path) -> None:
    case = TerraTorchCase.variant(name)
    checkpoint: ForeignCheckpoint = read_checkpoint(folder_of(case, tmp_path), NORMALISED)
    assert checkpoint.config.contract.tile.size >= max(case.pixels.shape[-2:])
    found = mapped(checkpoint, inputs(case))
    rows, columns = case.expected.shape[-2:]
    torch.testing.assert_close(found[..., :rows, :columns], case.expected, rtol=0, atol=1e-4)
