"""Networks that cost nothing, or little, to see what the service costs.

They are added to the package as any other package may add one: by an entry point, of a
distribution that `installed` makes for as long as a benchmark runs.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig

BANDS = ("BLUE", "GREEN", "RED", "NIR_NARROW", "SWIR_1", "SWIR_2")
CLASSES = ("land", "water")
CELL = 16
_ENTRY_POINTS = """[vllm_raster.networks]
benchmark_nothing = networks:Nothing
benchmark_light = networks:Light

[vllm.general_plugins]
benchmark_stages = stages:start
"""


class NothingConfig(PreTrainedConfig):
    """Has nothing to say."""

    model_type = "benchmark_nothing"


class Nothing(nn.Module):
    """Its scores are its first bands."""

    config_class = NothingConfig
    thread_safe = True

    def __init__(self, config: Any, contract: Any, layers: Any, prefix: str, channels: Any) -> None:
        super().__init__()
        self.channels = contract.output.channels
        # A checkpoint without any weight would be none.
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, pixels: torch.Tensor, *_: Any) -> torch.Tensor:
        """(batch, bands, frames, height, width) to (batch, channels, height, width)."""
        return pixels[:, : self.channels, 0]


class LightConfig(PreTrainedConfig):
    """How many channels its inner layers have."""

    model_type = "benchmark_light"

    def __init__(self, width: int = 40, **kwargs: Any) -> None:
        self.width = width
        super().__init__(**kwargs)


class Light(nn.Module):
    """A few convolutions at half the resolution: some 20 ms a 512 × 512 tile on two cores."""

    config_class = LightConfig
    thread_safe = True

    def __init__(self, config: Any, contract: Any, layers: Any, prefix: str, channels: Any) -> None:
        super().__init__()
        width = config.width
        self.layers = nn.Sequential(
            nn.Conv2d(len(contract.input.bands), width, 3, stride=2, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(width, contract.output.channels, 2, stride=2),
        )

    def forward(self, pixels: torch.Tensor, *_: Any) -> torch.Tensor:
        """(batch, bands, frames, height, width) to (batch, channels, height, width)."""
        scores: torch.Tensor = self.layers(pixels[:, :, 0])
        return scores


@contextmanager
def installed(more: str = "") -> Iterator[None]:
    """Has this process and those that it starts know the networks, as if they were installed.

    Args:
        more: Other entry points, as they stand in `entry_points.txt`.
    """
    here = str(Path(__file__).resolve().parent)
    with TemporaryDirectory() as folder:
        facts = Path(folder) / "vllm_raster_benchmarks-1.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text("Name: vllm-raster-benchmarks\nVersion: 1\n")
        (facts / "entry_points.txt").write_text(_ENTRY_POINTS + more)
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, here, *filter(None, [before])])
        sys.path[:0] = [folder, here]
        try:
            yield
        finally:
            for one in (folder, here):
                sys.path.remove(one)
            os.environ.pop("PYTHONPATH")
            if before is not None:
                os.environ["PYTHONPATH"] = before


def raster(*, tile: int = 512, overlap: int = 0, bands: Sequence[str] = BANDS) -> dict[str, Any]:
    """The `raster` block of such a network's checkpoint; see `make`."""
    return {
        "version": 1,
        "input": {
            "bands": list(bands),
            "scale": 0.0001,
            "mean": [0.1] * len(bands),
            "std": [0.1] * len(bands),
            "nodata_fill": 0.0,
        },
        "tile": {"size": tile, "multiple_of": CELL, "overlap": overlap},
        "output": {"kind": "classes", "classes": [{"name": name} for name in CLASSES]},
    }


def make(
    folder: Path,
    model_type: str,
    *,
    tile: int = 512,
    overlap: int = 0,
    bands: Sequence[str] = BANDS,
) -> None:
    """Writes a checkpoint of one of these networks, for two classes.

    Must be called while the networks are `installed`.

    Args:
        folder: Is made.
        model_type: Of the network.
        tile: Side of a window in pixels.
        overlap: Pixels that two windows share.
        bands: Names of its bands, two or more.
    """
    from vllm_raster_model.config import RasterConfig
    from vllm_raster_model.processor import RasterProcessor
    from vllm_raster_model.pytorch import RasterForImageToImage

    torch.manual_seed(0)
    config = RasterConfig(
        raster=raster(tile=tile, overlap=overlap, bands=bands),
        vision_config={"model_type": model_type},
    )
    model = RasterForImageToImage(config)
    model.save_pretrained(folder)
    RasterProcessor.of(model.config.contract).save_pretrained(folder)
