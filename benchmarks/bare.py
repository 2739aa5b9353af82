"""Tiles a second of a checkpoint's network in a bare PyTorch loop: no server, no raster.

Prints a json object with the best of some batch sizes: as PyTorch comes, and with memory that is
kept between two layers, as the served engine keeps it.
"""

import argparse
import json
import os
import sys
import time

import torch

from vllm_raster_model.allocation import keep_memory
from vllm_raster_model.config import RasterConfig
from vllm_raster_model.pytorch import RasterForImageToImage
from vllm_raster_model.registration import register_with_transformers


def inputs(config: RasterConfig, batch: int) -> tuple[torch.Tensor, ...]:
    """Normalised tiles of the largest size, with a date and a place each."""
    facts, size = config.contract.input, config.contract.tile.size
    generator = torch.Generator().manual_seed(0)
    shape = (batch, len(facts.bands), facts.frames, size, size)
    pixels = torch.randn(shape, generator=generator)
    dates = torch.tensor([2024.0, 200.0]).expand(batch, facts.frames, 2)
    return pixels, dates, torch.tensor([47.0, 11.0]).expand(batch, 2)


def tiles_a_second(model: RasterForImageToImage, batch: int, seconds: float) -> float:
    """Runs the network again and again for at least so long."""
    network, tensors = model.predictor.network, inputs(model.config, batch)
    network(*tensors)  # the first run is slower
    done, begin = 0, time.perf_counter()
    while (passed := time.perf_counter() - begin) < seconds:
        network(*tensors)
        done += batch
    return done / passed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seconds", type=float, default=10.0, help="for each batch size, twice")
    options = parser.parse_args()
    register_with_transformers()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = RasterForImageToImage.from_pretrained(options.checkpoint).eval()
    with torch.inference_mode():
        rates = {one: tiles_a_second(model, one, options.seconds) for one in options.batches}
        if not keep_memory():
            print("This C library takes no such setting: memory is not kept", file=sys.stderr)
        kept = {one: tiles_a_second(model, one, options.seconds) for one in options.batches}
    best = max(rates, key=lambda batch: rates[batch])
    told = {"tiles_a_second": rates[best], "batch": best, "kept": max(kept.values())}
    print(json.dumps({**told, "rates": rates, "kept_rates": kept}))


if __name__ == "__main__":
    main()
