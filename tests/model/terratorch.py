"""What TerraTorch stored and computed, see tests/fixtures."""

import json
import lzma
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load, load_file

from vllm_raster_model.contract import RasterContract
from vllm_raster_model.networks import Layers
from vllm_raster_model.networks.prithvi_dense import PrithviDense, PrithviDenseConfig

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
STORED = FIXTURES / "terratorch"
VARIANTS = FIXTURES / "terratorch_variants"

_SHAPE = ("embed_dim", "depth", "num_heads", "mlp_ratio", "out_indices", "padding")
_HEADS = {"SemanticSegmentationTask": "segmentation", "PixelwiseRegressionTask": "regression"}


@dataclass(frozen=True)
class TerraTorchCase:
    """A network: what it is made of, its weights, two windows, and what came of them.

    `arguments` are TerraTorch's for the model, `weights` stand under its names less `model.`.
    """

    task: str
    arguments: dict[str, Any]
    weights: dict[str, torch.Tensor]
    pixels: torch.Tensor
    dates: torch.Tensor | None
    places: torch.Tensor | None
    expected: torch.Tensor

    @classmethod
    def stored(cls, name: str) -> Self:
        """A fine-tune in TerraTorch's own layout."""
        model = json.loads((STORED / name / "config.json").read_text())["pretrained_cfg"]["model"]
        kept = torch.load(STORED / name / "weights.pt", weights_only=True)["state_dict"]
        weights = {key.removeprefix("model."): one for key, one in kept.items()}
        task = _HEADS[model["class_path"].rpartition(".")[2]]
        case = load_file(STORED / name / "case.safetensors")
        return cls._of(task, model["init_args"]["model_args"], weights, case)

    @classmethod
    def variant(cls, name: str) -> Self:
        """One of the small networks that cover the other kinds."""
        described = variants()[name]
        begin = f"{name}/"
        case = {
            key.removeprefix(begin): one.float() if one.is_floating_point() else one
            for key, one in variant_tensors().items()
            if key.startswith(begin)
        }
        weights = {
            key.removeprefix("weights/"): one
            for key, one in case.items()
            if key.startswith("weights/")
        }
        return cls._of(described["task"], described["model_args"], weights, case)

    @classmethod
    def _of(
        cls,
        task: str,
        arguments: dict[str, Any],
        weights: dict[str, torch.Tensor],
        case: Mapping[str, torch.Tensor],
    ) -> Self:
        pixels, expected = case["pixel_values"], case["expected"]
        return cls(
            task,
            arguments,
            weights,
            pixels if pixels.ndim == 5 else pixels[:, :, None],
            case.get("temporal_coords"),
            case.get("location_coords"),
            expected if expected.ndim == 4 else expected[:, None],  # one channel is squeezed away
        )

    @property
    def config(self) -> PrithviDenseConfig:
        """The network's shape in our terms."""
        patch = self._told("patch_size", 16)
        tubelet, side, _ = (1, patch, patch) if isinstance(patch, int) else patch
        head = "SegmentationHead" if self.task == "segmentation" else "RegressionHead"
        shape = {name: self._told(name, None) for name in _SHAPE}
        return PrithviDenseConfig(
            patch_size=side,
            tubelet_size=tubelet,
            image_size=self._told("img_size", 224),
            necks=self.arguments.get("necks", []),
            decoder={"name": self.arguments["decoder"]} | self._all("decoder_"),
            head={"name": head} | self._all("head_"),
            rescale=self.arguments.get("rescale", True),
            **{name: value for name, value in shape.items() if value is not None},
        )

    @property
    def contract(self) -> RasterContract:
        """The block of a checkpoint that takes these windows as they are."""
        geometry = PrithviDense.describe(self.config, frames=self.frames)
        cell = max(geometry.multiple, self.config.patch_size)
        kind, names = ("classes", "classes") if self.task == "segmentation" else ("values", "bands")
        channels = [{"name": str(i)} for i in range(self.expected.shape[1])]
        block = {
            "version": 1,
            "input": {
                "bands": [str(i) for i in range(self.pixels.shape[1])],
                "frames": self.frames,
                "coordinates": self._told("coords_encoding", []),
            },
            "tile": {"size": 12 * cell, "multiple_of": cell},
            "output": {
                "kind": kind,
                names: channels,
                "upscale": geometry.upscale,
                "downscale": geometry.downscale,
            },
        }
        return RasterContract.parse(block)

    @property
    def frames(self) -> int:
        return self.pixels.shape[2]

    def network(self, layers: Layers) -> PrithviDense:
        """The network with random weights."""
        return PrithviDense(self.config, self.contract, layers).eval()

    @property
    def network_weights(self) -> dict[str, torch.Tensor]:
        """All but the code of positions, which the network computes."""
        return {name: w for name, w in self.weights.items() if name != "encoder.pos_embed"}

    def _told(self, name: str, otherwise: Any) -> Any:
        return self.arguments.get(f"backbone_{name}", otherwise)

    def _all(self, prefix: str) -> dict[str, Any]:
        return {
            key.removeprefix(prefix): value
            for key, value in self.arguments.items()
            if key.startswith(prefix)
        }


def stored_names() -> list[str]:
    """The fine-tunes in TerraTorch's own layout."""
    return sorted(one.parent.name for one in STORED.glob("*/weights.pt"))


def variants() -> dict[str, Any]:
    """Task, channels and TerraTorch's arguments of each variant."""
    described: dict[str, Any] = json.loads((VARIANTS / "variants.json").read_text())
    return described


@cache
def variant_tensors() -> dict[str, torch.Tensor]:
    """The tensors of all variants, each under the name of its own."""
    content = lzma.decompress((VARIANTS / "variants.safetensors.xz").read_bytes())
    tensors: dict[str, torch.Tensor] = load(content)
    return tensors
