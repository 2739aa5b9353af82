"""Makes a Prithvi with random weights that maps two classes, in TerraTorch's layout and converted.

With weights as they come every pixel is of one class, and all maps agree. So the head's bias is set
such that half of a scene's pixels are of the other.
"""

import argparse
import tempfile
from pathlib import Path

import prithvi
import rasterio
import torch

from vllm_raster_model.pytorch import RasterForImageToImage
from vllm_raster_model.registration import register_with_transformers

_BIAS = "model.head.head.2.bias"


def offset(checkpoint: Path, scene: Path) -> torch.Tensor:
    """The median of what the second class' scores are above the first's, over one tile."""
    register_with_transformers()
    model = RasterForImageToImage.from_pretrained(checkpoint).eval()
    facts = model.config.contract.input
    with rasterio.open(scene) as dataset:
        pixels = torch.from_numpy(dataset.read().astype("float32"))
    mean, std = (torch.tensor(one).view(-1, 1, 1) for one in (facts.mean, facts.std))
    window = (pixels * facts.scale + facts.offset - mean) / std
    dates, place = torch.tensor([[[2024.0, 200.0]]]), torch.tensor([[47.0, 11.0]])
    with torch.inference_mode():
        scores = model.predictor.network(window[None, :, None], dates, place)[0]
    return (scores[1] - scores[0]).median()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="folder to make, in TerraTorch's layout")
    parser.add_argument("checkpoint", type=Path, help="folder to make, converted")
    parser.add_argument("scene", type=Path, help="one tile, in the network's six bands")
    parser.add_argument("--size", choices=sorted(prithvi.SIZES), default="tiny")
    parser.add_argument("--tile", type=int, default=512, help="side of a tile in pixels")
    options = parser.parse_args()
    prithvi.make(options.source, options.size, options.tile)
    with tempfile.TemporaryDirectory() as folder:
        prithvi.convert(options.source, Path(folder) / "checkpoint")
        wrong = offset(Path(folder) / "checkpoint", options.scene)
    stored = torch.load(options.source / "weights.pt", weights_only=True)
    stored["state_dict"][_BIAS][1] -= wrong
    torch.save(stored, options.source / "weights.pt")
    prithvi.convert(options.source, options.checkpoint)


if __name__ == "__main__":
    main()
