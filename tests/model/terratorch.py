"""What TerraTorch stored and computed, see tests/fixtures/terratorch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from safetensors.torch import load_file

from vllm_raster_model.contract import RasterContract
from vllm_raster_model.networks import Layers
from vllm_raster_model.networks.prithvi_upernet import PrithviUPerNet, PrithviUPerNetConfig

FLOODS = Path(__file__).resolve().parents[1] / "fixtures" / "terratorch" / "floods_upernet"

_OURS = {"model.": "", "neck.2.": "neck.", "head.head.2.": "head."}


@dataclass(frozen=True)
class FloodsCase:
    """A flood network: its weights under our names, two windows, and what came of them."""

    weights: dict[str, torch.Tensor]
    pixels: torch.Tensor
    dates: torch.Tensor
    places: torch.Tensor
    expected: torch.Tensor

    @classmethod
    def load(cls) -> Self:
        stored = torch.load(FLOODS / "weights.pt", weights_only=True)["state_dict"]
        case = load_file(FLOODS / "case.safetensors")
        return cls(
            {_our_name(name): weight for name, weight in stored.items()},
            case["pixel_values"][:, :, None],
            case["temporal_coords"],
            case["location_coords"],
            case["expected"],
        )

    def network(self, layers: Layers) -> PrithviUPerNet:
        """The network with random weights."""
        config = PrithviUPerNetConfig(
            embed_dim=64,
            depth=4,
            num_heads=4,
            image_size=64,
            out_indices=(0, 1, 2, 3),
            decoder_channels=32,
        )
        return PrithviUPerNet(config, self.contract, layers).eval()

    @property
    def contract(self) -> RasterContract:
        return RasterContract.parse(
            {
                "version": 1,
                "input": {"bands": list("bgrnst"), "coordinates": ["time", "location"]},
                "tile": {"size": 64, "minimum": 32},
                "output": {"kind": "classes", "classes": [{"name": "dry"}, {"name": "water"}]},
            }
        )

    @property
    def network_weights(self) -> dict[str, torch.Tensor]:
        """All but the code of positions, which the network computes."""
        return {name: w for name, w in self.weights.items() if name != "encoder.pos_embed"}


def _our_name(name: str) -> str:
    for theirs, ours in _OURS.items():
        name = name.replace(theirs, ours, 1)
    return name
