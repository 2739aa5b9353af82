"""Small checkpoints of this package's own kind, for tests to build, save and serve."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig

from vllm_raster_model.config import RasterConfig
from vllm_raster_model.contract import RasterContract
from vllm_raster_model.processor import RasterProcessor
from vllm_raster_model.pytorch import RasterForImageToImage
from vllm_raster_model.tokenizer import minimal_tokenizer, word_tokenizer

BANDS = 3
CELL = 8
TILE = 32

_BLOCK: dict[str, Any] = {
    "version": 1,
    "input": {
        "bands": ["GREEN", "NIR", "SWIR"],
        "scale": 0.0001,
        "offset": -0.1,
        "mean": [0.05, 0.25, 0.2],
        "std": [0.02, 0.1, 0.08],
        "nodata_fill": 0.05,
        "coordinates": ["time", "location"],
    },
    "tile": {"size": TILE, "multiple_of": CELL},
    "output": {"kind": "classes", "classes": [{"name": "water"}, {"name": "land"}]},
}

NETWORK: dict[str, Any] = {
    "model_type": "prithvi_dense",
    "embed_dim": 32,
    "depth": 2,
    "num_heads": 2,
    "patch_size": 4,
    "tubelet_size": 1,
    "image_size": 16,
    "mlp_ratio": 2.0,
    "out_indices": None,
    "necks": [
        {"name": "SelectIndices", "indices": [0, 0, 1, 1]},
        {"name": "ReshapeTokensToImage"},
        {"name": "LearnedInterpolateToPyramidal"},
    ],
    "decoder": {"name": "UperNetDecoder", "channels": 8},
    "head": {"name": "SegmentationHead"},
    "rescale": True,
    "padding": "reflect",
}


def raster_block(**parts: dict[str, Any]) -> dict[str, Any]:
    """A `raster` block; each argument changes or adds keys of the part of its name."""
    block = copy.deepcopy(_BLOCK)
    for name, changes in parts.items():
        block[name].update(changes)
    return block


def make_config(network: dict[str, Any] | None = None, **parts: dict[str, Any]) -> RasterConfig:
    """A configuration; of a tiny Prithvi with UPerNet unless another `network` is given."""
    vision = dict(NETWORK if network is None else network)
    return RasterConfig(
        vision_config=vision, raster=raster_block(**parts), architectures=["RasterForImageToImage"]
    )


def make_processor(config: RasterConfig, words: Sequence[str] = ()) -> RasterProcessor:
    """The processor that belongs to a configuration, with a tokenizer that knows `words`."""
    contract = config.contract
    tokenizer = word_tokenizer(words) if words else minimal_tokenizer()
    end, answer = (
        None if token is None else tokenizer.convert_ids_to_tokens(token)
        for token in (config.image_end_token_id, config.answer_token_id)
    )
    return RasterProcessor(
        tokenizer,
        bands=len(contract.input.bands),
        frames=contract.input.frames,
        cell=contract.tile.multiple_of,
        minimum_cells=contract.tile.minimum_cells,
        image_end_token=end,
        answer_token=answer,
    )


def make_model(config: RasterConfig, seed: int = 0) -> RasterForImageToImage:
    """The PyTorch model with random weights that use all of the network."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = RasterForImageToImage(config)
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.running_mean.uniform_(-0.1, 0.1)
                    module.running_var.uniform_(0.5, 1.5)
    return model.eval()


def save_checkpoint(folder: Path, config: RasterConfig) -> RasterForImageToImage:
    """Writes a whole checkpoint, as a user would, and gives the model in it."""
    model = make_model(config)
    model.save_pretrained(folder)
    make_processor(config).save_pretrained(folder)
    return model


class EnlargeConfig(PreTrainedConfig):
    model_type = "enlarge"


ENLARGE = {"model_type": "enlarge"}


class Enlarge(nn.Module):
    """A network whose answer is plain to see: the first date, each pixel as a block of pixels.

    Its one weight is a factor, so that loading it can be seen too.
    """

    config_class = EnlargeConfig

    def __init__(
        self,
        config: EnlargeConfig,
        contract: RasterContract,
        layers: object,
        prefix: str,
        channels: int,
    ) -> None:
        super().__init__()
        self.upscale = contract.output.upscale
        self.channels = channels
        self.factor = nn.Parameter(torch.ones(()))

    def forward(self, pixels: torch.Tensor, dates: object, places: object) -> torch.Tensor:
        first = pixels[:, : self.channels, 0] * self.factor
        for dim in (-2, -1):
            first = first.repeat_interleave(self.upscale, dim)
        return first
