"""What the rule for windows computed together loses against the best batch of each network.

Networks are called alone, without a server, but by one thread and with memory that is kept, as a
server's threads call them. The table, on stderr, has windows a second by batch size, as a part of
the best; `batching_rule_over_best` is the worst of what the rule reaches.
"""

import argparse
import json
import sys

import networks
import prithvi
import torch
from calls import LAND_COVER, add_threads, seconds
from torch import nn

from vllm_raster_model.allocation import keep_memory
from vllm_raster_model.contract import RasterContract
from vllm_raster_model.predictor import windows_at_once
from vllm_raster_model.pytorch import RasterForImageToImage
from vllm_raster_model.registration import register_with_transformers

BATCHES = (1, 2, 4, 8, 16)
SIDES = (128, 256, 512)
LONGEST = 1.5
"""Seconds that a call may take: what would take longer is not tried, but a single window."""


def light() -> nn.Module:
    """A few convolutions, for six bands and two classes."""
    torch.manual_seed(0)
    contract = RasterContract.parse(networks.raster())
    return networks.Light(networks.LightConfig(), contract, None, "", None)


def rates(network: nn.Module, bands: int, side: int, budget: float) -> dict[int, float]:
    """Windows a second by batch size, each the best of some rounds."""
    seconds(network, bands, side, 1)  # the first call is slower
    one = seconds(network, bands, side, 1)
    tried = [batch for batch in BATCHES if batch == 1 or batch * one < LONGEST]
    rounds = max(2, min(30, int(budget / (one * sum(tried)))))
    best = dict.fromkeys(tried, 0.0)
    for _ in range(rounds):  # in turn, for machines change their speed
        for batch in tried:
            took = seconds(network, bands, side, batch)
            best[batch] = max(best[batch], batch / took)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_threads(parser)
    parser.set_defaults(threads=1)
    parser.add_argument("--seconds", type=float, default=5.0, help="a network and size")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_memory()
    register_with_transformers()
    land_cover = RasterForImageToImage.from_pretrained(LAND_COVER).eval().predictor.network
    asked = {
        "light": (light(), len(networks.BANDS)),
        "land_cover": (land_cover, 4),
        "prithvi_tiny": (prithvi.random_network("tiny", max(SIDES)), len(prithvi.BANDS)),
    }
    figures: dict[str, float] = {}
    for name, (network, bands) in asked.items():
        for side in SIDES:
            with torch.inference_mode():
                found = rates(network, bands, side, options.seconds)
            best = max(found, key=lambda batch: found[batch])
            # Where the rule's own batch took too long to be tried, the next smaller one was.
            ours = max(one for one in found if one <= windows_at_once(side**2))
            parts = {batch: round(rate / found[best], 2) for batch, rate in found.items()}
            print(f"{name} {side}²: rule {ours}, best {best}, {parts}", file=sys.stderr, flush=True)
            figures[f"batching_{name}_{side}"] = found[ours] / found[best]
            figures[f"batching_{name}_{side}_best"] = best
    worst = min(value for name, value in figures.items() if not name.endswith("_best"))
    figures = {"batching_rule_over_best": worst, **figures}
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
