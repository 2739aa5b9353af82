"""Tiles a second through `POST /pooling` over those of the same network in a bare loop.

For a heavy network (a Prithvi, some 800 ms a tile) and a light one (some 20 ms), each on one large
scene and on eight at once. The bare loop runs before and after the server, and the faster one
counts. What keeps the server's memory from one layer to the next would make it faster, too, a
light network up to twice as fast: over such a loop is the ratio that ends in `_over_kept`. The
server reads the scenes from its own disk, as a service of many scenes would: a client on the same
cores would count as the server's. Both have computed for a while before they are timed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import networks
import prithvi
from measured import PeakMemory, mapped, write_scene

from vllm_raster_io import LocalServer

HERE = Path(__file__).resolve().parent
TILE = 512
AT_ONCE = 8
SAME = {"VLLM_RASTER_COMPUTE_DTYPE": "float32"}
"""The bare loop computes in float32, so the server must."""


class Served:
    """A server of a checkpoint, started without any flag, that reads scenes from a folder."""

    def __init__(self, checkpoint: Path, scenes: Path) -> None:
        begin = time.perf_counter()
        environment = {"VLLM_RASTER_READ_ROOTS": str(scenes.resolve()), **SAME}
        self.server = LocalServer(checkpoint, environment=environment).start()
        self.ready = time.perf_counter() - begin

    def map(self, name: str) -> int:
        """Maps a scene; gives the number of its tiles."""
        return mapped(self.server, {"data": name, "data_format": "path"})

    def rate(self, name: str, at_once: int = 1) -> float:
        """Tiles a second, with the same scene asked for by so many clients."""
        begin = time.perf_counter()
        with ThreadPoolExecutor(at_once) as pool:
            tiles = sum(pool.map(self.map, [name] * at_once))
        return tiles / (time.perf_counter() - begin)


def bare(checkpoint: Path, seconds: float) -> dict[str, Any]:
    """What `bare.py` prints."""
    command = [sys.executable, str(HERE / "bare.py"), str(checkpoint), "--seconds", str(seconds)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return dict(json.loads(printed.splitlines()[-1]))


def compared(checkpoint: Path, side: int, small: int, seconds: float) -> dict[str, float]:
    """Both ways to compute, for a scene of `side` pixels and eight of `small`."""
    with tempfile.TemporaryDirectory() as folder:
        scenes = Path(folder)
        for name, length in (("large", side), ("small", small)):
            write_scene(scenes / f"{name}.tif", length)
        os.sync()  # or the disk is written to while they are read
        before = bare(checkpoint, seconds)
        one = Served(checkpoint, scenes)
        with one.server:
            # To look at memory takes time of the processors, so it is done meanwhile.
            memory = PeakMemory(one.server.group)
            one.rate("small.tif", AT_ONCE)
            memory.end()
            rates = {
                "large_scene": one.rate("large.tif"),
                "eight_scenes": one.rate("small.tif", AT_ONCE),
            }
        after = bare(checkpoint, seconds)
    best, kept = (max(before[one], after[one]) for one in ("tiles_a_second", "kept"))
    return {
        "ready_s": one.ready,
        "idle_gb": memory.idle / 1e9,
        "peak_gb": memory.peak / 1e9,
        "bare_batch": before["batch"],
        "bare_before": before["tiles_a_second"],
        "bare_after": after["tiles_a_second"],
        "bare_ms": 1000 / best,
        "bare_kept": kept,
        **{f"served_{name}": rate for name, rate in rates.items()},
        **{name: rate / best for name, rate in rates.items()},
        **{f"{name}_over_kept": rate / kept for name, rate in rates.items()},
    }


def heavy(folder: Path, size: str, seconds: float) -> dict[str, float]:
    """A Prithvi, converted."""
    source, checkpoint = folder / "terratorch", folder / "heavy"
    prithvi.make(source, size, TILE)
    begin = time.perf_counter()
    prithvi.convert(source, checkpoint)
    converted = time.perf_counter() - begin
    figures = compared(checkpoint, 4 * TILE, TILE, seconds)
    return {"convert_s": converted, **figures}


def light(folder: Path, seconds: float) -> dict[str, float]:
    """A few convolutions."""
    checkpoint = folder / "light"
    networks.make(checkpoint, "benchmark_light", tile=TILE)
    return compared(checkpoint, 12 * TILE, 4 * TILE, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("heavy", "light"))
    parser.add_argument("--size", choices=sorted(prithvi.SIZES), default="tiny")
    parser.add_argument("--seconds", type=float, default=2.5, help="a batch size of the bare loop")
    options = parser.parse_args()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name, networks.installed():
        for kind in (options.only,) if options.only else ("heavy", "light"):
            folder = Path(name)
            if kind == "heavy":
                found = heavy(folder, options.size, options.seconds)
            else:
                found = light(folder, options.seconds)
            figures[f"serving_efficiency_{kind}"] = min(found["large_scene"], found["eight_scenes"])
            figures |= {f"{kind}_{key}": value for key, value in found.items()}
    print(json.dumps({key: round(value, 3) for key, value in figures.items()}))


if __name__ == "__main__":
    main()
