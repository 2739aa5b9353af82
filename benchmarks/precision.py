"""What bfloat16 does to maps and to speed, and what a server would choose by itself.

Maps are those of the tests' trained checkpoints on the real scenes that they know; the speed of a
Prithvi does not depend on its weights. `auto` is asked with the share that was measured; of the
Prithvi, whose weights are random, as if its real scenes agreed.
"""

import argparse
import json
import sys
import time
import warnings

import prithvi
import torch
from calls import LAND_COVER, add_threads, seconds
from rasterio.errors import NotGeoreferencedWarning
from torch import nn

from vllm_raster_model.agreement import Comparison, read_scene
from vllm_raster_model.contract import RasterContract
from vllm_raster_model.networks.precision import Shortened
from vllm_raster_model.precision import settle_precision
from vllm_raster_model.pytorch import RasterForImageToImage

TESTS = LAND_COVER.parents[1]
SCENES = sorted((TESTS / "data").glob("sentinel2_*_4band.tif"))
ROUNDS = 3
TILE = 512


def agreements() -> dict[str, float]:
    """The worst of the real scenes: of the classes of one checkpoint, of the values of another."""
    scenes = [read_scene(path) for path in SCENES]
    classes = [Comparison(LAND_COVER).of(*scene) for scene in scenes]
    greenness = Comparison(LAND_COVER.with_name("instructed"), targets=["greenness"])
    values = [greenness.of(*scene) for scene in scenes]
    return {
        "bf16_agreement": min(one.share for one in classes),
        "bf16_pixels": sum(one.pixels for one in classes),
        "bf16_values_agreement": min(one.share for one in values),
        "bf16_values_largest_std": max(one.largest for one in values),
    }


def gain(network: nn.Module, bands: int, side: int) -> float:
    """How many times as fast bfloat16 is, in turn with float32."""
    shortened = Shortened(network, torch.bfloat16)
    whole, short = [], []
    for _ in range(ROUNDS + 1):
        whole.append(seconds(network, bands, side))
        with shortened:
            short.append(seconds(network, bands, side))
    return min(whole[1:]) / min(short[1:])  # the first of each is slower


def chosen(network: nn.Module, contract: RasterContract, agreement: float) -> dict[str, float]:
    """What a server chooses at its start, 1 for bfloat16, and the seconds that it takes for it."""
    asked = contract.model_copy(update={"agreement": {"bfloat16": agreement}})
    begin = time.perf_counter()
    choice = settle_precision(network, asked)
    took = time.perf_counter() - begin
    print(choice, file=sys.stderr, flush=True)
    return {"auto_bf16": float(choice.dtype == torch.bfloat16), "auto_s": took}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_threads(parser)
    torch.set_num_threads(parser.parse_args().threads)
    warnings.simplefilter("ignore", NotGeoreferencedWarning)
    figures = agreements()
    model = RasterForImageToImage.from_pretrained(LAND_COVER).eval()
    agreed = {"land_cover": figures["bf16_agreement"], "prithvi_tiny": 1.0}
    asked = {
        "land_cover": (model.predictor.network, model.config.contract),
        "prithvi_tiny": (prithvi.random_network("tiny", TILE), prithvi.contract(TILE)),
    }
    for name, (network, contract) in asked.items():
        with torch.inference_mode():
            speed = gain(network, len(contract.input.bands), contract.tile.size)
        print(f"{name}: bfloat16 is {speed:.2f} times as fast", file=sys.stderr, flush=True)
        figures[f"{name}_bf16_speed"] = speed
        for key, value in chosen(network, contract, agreed[name]).items():
            figures[f"{name}_{key}"] = value
    print(json.dumps({name: round(value, 6) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
