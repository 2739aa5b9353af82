"""Compares a converted checkpoint with what TerraTorch computed of the same windows.

`python examples/compare_with_terratorch.py CHECKPOINT CASE`, where CASE is a safetensors file with
`pixel_values` (batch, bands[, dates], height, width), normalised as TerraTorch's data module does,
`expected`, the scores that TerraTorch computed, and `temporal_coords` and `location_coords` where
the network is told them. docs/terratorch.md has the lines that write one.
"""

import argparse
from pathlib import Path

import torch
from safetensors.torch import load_file

from vllm_raster_model.pytorch import RasterForImageToImage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("case", type=Path)
    options = parser.parse_args()
    case = load_file(options.case)
    network = RasterForImageToImage.from_pretrained(options.checkpoint).eval().predictor.network
    pixels = case["pixel_values"]
    with torch.inference_mode():
        found = network(
            pixels if pixels.ndim == 5 else pixels[:, :, None],
            case.get("temporal_coords"),
            case.get("location_coords"),
        )
    expected = case["expected"]
    # TerraTorch takes a single channel away.
    expected = expected[:, None] if expected.ndim == 3 else expected
    print(f"largest difference {(found - expected).abs().max():.2g}")
    if expected.shape[1] > 1:
        same = (found.argmax(1) == expected.argmax(1)).double().mean()
        print(f"{same:.2%} of the pixels have the same class")


if __name__ == "__main__":
    main()
