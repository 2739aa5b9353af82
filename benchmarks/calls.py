"""How long a network takes for a batch of windows, called alone."""

import argparse
import os
import time
from pathlib import Path

import torch
from torch import nn

LAND_COVER = Path(__file__).resolve().parents[1] / "tests" / "checkpoints" / "land_cover"


def add_threads(parser: argparse.ArgumentParser) -> None:
    """Adds an option for how many threads compute; all of the machine's cores by default."""
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))


def seconds(network: nn.Module, bands: int, side: int, batch: int = 1) -> float:
    """Seconds of a call; with one thread those of the processor, which others do not lengthen."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn((batch, bands, 1, side, side), generator=generator)
    dates = torch.tensor([2024.0, 200.0]).expand(batch, 1, 2)
    places = torch.tensor([47.0, 11.0]).expand(batch, 2)
    begin = clock()
    network(pixels, dates, places)
    return clock() - begin
