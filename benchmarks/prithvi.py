"""A Prithvi network with random weights, stored as TerraTorch stores a fine-tune of it.

What a network costs does not depend on its weights, so none have to be fetched.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from vllm_raster_model.contract import RasterContract
from vllm_raster_model.networks import TorchLayers
from vllm_raster_model.networks.positions import resized_grid_code
from vllm_raster_model.networks.prithvi_dense import PrithviDense, PrithviDenseConfig

BANDS = ["BLUE", "GREEN", "RED", "NIR_NARROW", "SWIR_1", "SWIR_2"]
SIZES: dict[str, dict[str, Any]] = {
    "300m": {
        "backbone": "prithvi_eo_v2_300_tl",
        "shape": {"embed_dim": 1024, "depth": 24, "num_heads": 16},
        "indices": [5, 11, 17, 23],
        "decoder_channels": 256,
    },
    "tiny": {
        "backbone": "prithvi_eo_v2_tiny_tl",
        "shape": {"embed_dim": 192, "depth": 12, "num_heads": 3},
        "indices": [2, 5, 8, 11],
        "decoder_channels": 256,
    },
}
"""The published Prithvi-EO-2.0 backbones that are timed, with TerraTorch's names for them."""


def make(folder: Path, size: str, tile: int) -> None:
    """Writes config.json and weights.pt of one of `SIZES` with a UPerNet for two classes.

    Args:
        folder: Is made.
        size: Key of `SIZES`.
        tile: Side of a tile in pixels.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_config(SIZES[size], tile), indent=1))
    torch.save({"state_dict": _weights(size, tile)}, folder / "weights.pt")


def convert(source: Path, checkpoint: Path) -> None:
    """Converts what `make` wrote, as a user does."""
    command = [Path(sys.executable).with_name("vllm-raster-model"), "convert"]
    subprocess.run([*command, source, checkpoint], check=True, stdout=sys.stderr)


def _config(facts: dict[str, Any], tile: int) -> dict[str, Any]:
    data = {
        "class_path": "terratorch.datamodules.Sen1Floods11NonGeoDataModule",
        "init_args": {
            "data_root": ".",
            "constant_scale": 0.0001,
            "no_data_replace": 0.0,
            "bands": BANDS,
            "test_transform": [{"class_path": "albumentations.pytorch.ToTensorV2"}],
        },
    }
    arguments = {
        "backbone": facts["backbone"],
        "backbone_pretrained": False,
        "backbone_bands": BANDS,
        "backbone_coords_encoding": ["time", "location"],
        "necks": _necks(facts),
        "decoder": "UperNetDecoder",
        "decoder_channels": facts["decoder_channels"],
        "num_classes": 2,
        "rescale": True,
        "head_dropout": 0.1,
    }
    task = {
        "class_path": "terratorch.tasks.SemanticSegmentationTask",
        "init_args": {"model_factory": "EncoderDecoderFactory", "model_args": arguments},
    }
    pixels = {"type": "torch.Tensor", "shape": [len(BANDS), tile, tile]}
    return {
        "architectures": ["Terratorch"],
        "num_classes": 0,
        "pretrained_cfg": {
            "seed_everything": 0,
            "input": {"target": "pixel_values", "data": {"pixel_values": pixels}},
            "data": data,
            "model": task,
        },
    }


def random_network(size: str, tile: int) -> PrithviDense:
    """One of `SIZES` with a UPerNet for two classes and random weights, in plain PyTorch."""
    facts = SIZES[size]
    config = PrithviDenseConfig(
        **facts["shape"],
        necks=_necks(facts),
        decoder={"name": "UperNetDecoder", "channels": facts["decoder_channels"]},
        head={"name": "SegmentationHead", "dropout": 0.1},
    )
    torch.manual_seed(0)
    return PrithviDense(config, contract(tile), TorchLayers()).eval()


def contract(tile: int) -> RasterContract:
    """What such a network eats and gives."""
    return RasterContract.parse(
        {
            "version": 1,
            "input": {"bands": BANDS, "coordinates": ["time", "location"]},
            "tile": {"size": tile, "minimum": 32},
            "output": {"kind": "classes", "classes": [{"name": "dry"}, {"name": "water"}]},
        }
    )


def _necks(facts: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"name": "SelectIndices", "indices": facts["indices"]},
        {"name": "ReshapeTokensToImage"},
        {"name": "LearnedInterpolateToPyramidal"},
    ]


def _weights(size: str, tile: int) -> dict[str, torch.Tensor]:
    network = random_network(size, tile)
    # As stored; TerraTorch and this project compute it for the size in use.
    code = resized_grid_code(SIZES[size]["shape"]["embed_dim"], 1, (14, 14), (14, 14))
    stored = {f"model.{name}": one for name, one in network.state_dict().items()}
    stored["model.encoder.pos_embed"] = torch.cat((torch.zeros(1, code.shape[1]), code))[None]
    return stored


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", choices=sorted(SIZES), default="300m")
    parser.add_argument("--tile", type=int, default=512, help="side of a tile in pixels")
    options = parser.parse_args()
    make(options.folder, options.size, options.tile)
