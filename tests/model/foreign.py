"""Other people's checkpoints, small and with random weights, for tests to read."""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import load_file

from vllm_raster_model.checkpoints import ForeignCheckpoint, Options, read_checkpoint
from vllm_raster_model.config import RasterConfig
from vllm_raster_model.networks import TorchLayers, build_network
from vllm_raster_model.pytorch import RasterForImageToImage

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "terratorch"
BANDS = ["BLUE", "GREEN", "RED", "NIR_NARROW", "SWIR_1", "SWIR_2"]
NORMALISED = Options(mean=(0.0,), std=(1.0,), scale=1.0, nodata_fill=0.0)
"""Says that the input is normalised already."""

_MODEL_ARGUMENTS: dict[str, Any] = {
    "backbone": "prithvi_eo_v2_300",
    "backbone_pretrained": False,
    "backbone_bands": BANDS,
    "backbone_embed_dim": 32,
    "backbone_depth": 2,
    "backbone_num_heads": 2,
    "backbone_img_size": 32,
    "necks": [
        {"name": "SelectIndices", "indices": [0, 0, 1, 1]},
        {"name": "ReshapeTokensToImage"},
        {"name": "LearnedInterpolateToPyramidal"},
    ],
    "decoder": "UperNetDecoder",
    "decoder_channels": 8,
    "num_classes": 3,
    "rescale": True,
    "head_dropout": 0.1,
}
_FLOODS: dict[str, Any] = {
    "class_path": "terratorch.datamodules.Sen1Floods11NonGeoDataModule",
    "init_args": {
        "constant_scale": 0.0001,
        "no_data_replace": 0.0,
        "no_label_replace": -1,
        "bands": BANDS,
        "test_transform": [{"class_path": "albumentations.pytorch.ToTensorV2"}],
    },
}


def model_arguments(**changes: Any) -> dict[str, Any]:
    """`model_args` of a small network; None takes an argument away."""
    whole = {**copy.deepcopy(_MODEL_ARGUMENTS), **changes}
    return {key: value for key, value in whole.items() if value is not None}


def run_config(
    arguments: dict[str, Any] | None = None,
    data: dict[str, Any] | None = _FLOODS,
    task: str = "SemanticSegmentationTask",
    factory: str = "EncoderDecoderFactory",
    **task_arguments: Any,
) -> dict[str, Any]:
    """What the yaml of a training run holds."""
    return {
        "seed_everything": 0,
        "trainer": {"precision": "16-mixed", "max_epochs": 1},
        **({} if data is None else {"data": copy.deepcopy(data)}),
        "model": {
            "class_path": f"terratorch.tasks.{task}",
            "init_args": {
                "model_factory": factory,
                "model_args": arguments or model_arguments(),
                "loss": "ce",
                "ignore_index": -1,
                "freeze_backbone": False,
                **task_arguments,
            },
        },
        "optimizer": {"class_path": "torch.optim.AdamW", "init_args": {"lr": 1e-4}},
    }


def floods_data(**changes: Any) -> dict[str, Any]:
    """A `data` block of the flood data module with some arguments changed or added."""
    data = copy.deepcopy(_FLOODS)
    data["init_args"].update(changes)
    return data


def served_config(folder: Path, config: Mapping[str, Any], shape: list[int]) -> Path:
    """Writes the config.json of TerraTorch's folder for vLLM."""
    inputs = {"pixel_values": {"type": "torch.Tensor", "shape": shape}}
    whole = {
        "architectures": ["Terratorch"],
        "num_classes": 0,
        "pretrained_cfg": {**config, "input": {"target": "pixel_values", "data": inputs}},
    }
    return write(folder / "config.json", json.dumps(whole))


def write_run(folder: Path, config: Mapping[str, Any]) -> Path:
    """Writes the yaml of a training run."""
    return write(folder / "config.yaml", yaml.safe_dump(dict(config)))


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def random_weights(config: RasterConfig, seed: int = 0) -> dict[str, torch.Tensor]:
    """Weights for the network of a configuration, under the names that TerraTorch gives them."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = build_network(config.vision_config, config.contract, TorchLayers())
        for module in network.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.running_mean.uniform_(-0.1, 0.1)
                module.running_var.uniform_(0.5, 1.5)
    return {f"model.{name}": one.clone() for name, one in network.state_dict().items()}


def save_lightning(path: Path, weights: Mapping[str, torch.Tensor], **beside: Any) -> Path:
    """Writes weights as TerraTorch's trainer does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"epoch": 0, "global_step": 0, "state_dict": dict(weights), **beside}, path)
    return path


def make_run(folder: Path, options: Options | None = None, **config: Any) -> ForeignCheckpoint:
    """Writes a training run with weights that fit its configuration, and reads it."""
    write_run(folder, run_config(**config))
    return finish(folder, "epoch=0.ckpt", options)


def finish(folder: Path, name: str, options: Options | None = None) -> ForeignCheckpoint:
    """Adds weights that fit the configuration in a folder, and reads it all."""
    save_lightning(folder / name, {"model.encoder.patch_embed.proj.weight": torch.zeros(1)})
    checkpoint = read_checkpoint(folder, options)
    save_lightning(folder / name, random_weights(checkpoint.config))
    return read_checkpoint(folder, options)


def maps(checkpoint: ForeignCheckpoint, case: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """What the plain module makes of windows (batch, bands[, frames], height, width)."""
    model = RasterForImageToImage(checkpoint.config).eval()
    model.load_state_dict(dict(checkpoint.weights()), strict=True)
    return run_model(model, case)


def run_model(model: RasterForImageToImage, case: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Maps windows, each with its coordinates where there are some."""
    pixels = case["pixel_values"]
    pixels = pixels[:, :, None] if pixels.ndim == 4 else pixels
    dates = torch.full((len(pixels), pixels.shape[2], 2), torch.nan, dtype=torch.float64)
    places = torch.full((len(pixels), 2), torch.nan, dtype=torch.float64)
    with torch.inference_mode():
        found = model(
            list(pixels),
            [torch.zeros((0, 0), dtype=torch.bool)] * len(pixels),
            list(case.get("temporal_coords", dates).double()),
            list(case.get("location_coords", places).double()),
        )
    return torch.stack(found)


def recorded(folder: Path) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The inputs of a fixture, and what TerraTorch computed of them, (batch, channels, …)."""
    case = load_file(folder / "case.safetensors")
    expected = case.pop("expected")
    return case, expected[:, None] if expected.ndim == 3 else expected
