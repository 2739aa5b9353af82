"""Compares a converted checkpoint with what TerraTorch computed of the same windows.

`python examples/compare_with_terratorch.py CHECKPOINT CASE`, where CHECKPOINT is a folder that
`vllm-raster-model convert` wrote, and CASE a safetensors file with `pixel_values` (batch, bands[,
dates], height, width), normalised as TerraTorch's data module does, `expected`, the scores that
TerraTorch computed, and `temporal_coords` and `location_coords` where the network is told them.
docs/terratorch.md has the lines that write one. The exit code is 1 where a score differs by more
than 1e-4.
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from vllm_raster_model import RasterConfig, RasterModelError
from vllm_raster_model.pytorch import RasterForImageToImage

MOST = 1e-4
COORDINATES = {"time": "temporal_coords", "location": "location_coords"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("case", type=Path)
    options = parser.parse_args()
    case = read_case(options.case)
    model = read_checkpoint(options.checkpoint)
    pixels, expected = case["pixel_values"], case["expected"]
    pixels = pixels if pixels.ndim == 5 else pixels[:, :, None]
    # TerraTorch takes a single channel away.
    expected = expected[:, None] if expected.ndim == 3 else expected
    taken = model.config.contract.input
    if pixels.shape[1:3] != (len(taken.bands), taken.frames):
        raise SystemExit(
            f"The case is of another network: it has {pixels.shape[1]} bands and {pixels.shape[2]} "
            f"dates, the checkpoint takes {len(taken.bands)} and {taken.frames}"
        )
    with torch.inference_mode():
        told = (case.get(key) for key in COORDINATES.values())
        found = model.predictor.network(pixels, *told)
    if found.shape != expected.shape:
        raise SystemExit(
            "The case is of another network: its scores are "
            f"{tuple(expected.shape)}, the checkpoint's {tuple(found.shape)}"
        )
    for name, key in COORDINATES.items():
        if key in case and name not in taken.coordinates:
            print(
                f"the case has {key}, the checkpoint is not told the {name}: convert with "
                f"--coordinates {','.join(one for one in COORDINATES if COORDINATES[one] in case)}"
            )
        elif key not in case and name in taken.coordinates:
            print(f"the checkpoint is told the {name}, the case has no {key}")
    largest = float((found - expected).abs().max())
    print(f"largest difference {largest:.2g}")
    if expected.shape[1] > 1:
        same = (found.argmax(1) == expected.argmax(1)).double().mean()
        print(f"{same:.2%} of the pixels have the same class")
    # Not a number is no small difference.
    if not largest <= MOST:
        raise SystemExit(1)


def read_case(path: Path) -> dict[str, torch.Tensor]:
    """What TerraTorch was given and gave."""
    try:
        case = load_file(path)
    except (OSError, SafetensorError) as error:
        raise SystemExit(f"{path} cannot be read as safetensors: {error}") from None
    if missing := {"pixel_values", "expected"} - case.keys():
        raise SystemExit(f"{path} has no {' and no '.join(sorted(missing))}")
    return case


def read_checkpoint(folder: Path) -> RasterForImageToImage:
    """The checkpoint as plain PyTorch."""
    try:
        stored = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise SystemExit(f"{folder} is no checkpoint: {error}") from None
    if not isinstance(stored, dict) or stored.get("model_type") != RasterConfig.model_type:
        raise SystemExit(f"{folder} is not converted: vllm-raster-model convert {folder} OUT")
    try:
        return RasterForImageToImage.from_pretrained(folder).eval()
    except (RasterModelError, OSError) as error:
        raise SystemExit(f"{folder} cannot be loaded: {error}") from None


if __name__ == "__main__":
    main()
