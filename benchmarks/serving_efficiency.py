"""Tiles a second through `POST /pooling` over those of the same network in a bare loop.

The bare loop runs before and after the server, and the mean of the two counts, for machines
change their speed. The scene is the real one of a dry valley, repeated.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import prithvi
from measured import PeakMemory, large_scene

from vllm_raster_io import LocalServer, RasterClient

HERE = Path(__file__).resolve().parent


def bare(checkpoint: Path, seconds: float) -> dict[str, Any]:
    """What `bare.py` prints."""
    command = [sys.executable, str(HERE / "bare.py"), str(checkpoint), "--seconds", str(seconds)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return dict(json.loads(printed.splitlines()[-1]))


def served(checkpoint: Path, side: int) -> dict[str, float]:
    """Maps a large scene with `vllm serve`, started without any flag."""
    scene = large_scene(side)
    begin = time.perf_counter()
    with LocalServer(checkpoint) as server, RasterClient(server.url) as client:
        ready = time.perf_counter() - begin
        client.map(large_scene(64))
        memory = PeakMemory(server.group)
        begin = time.perf_counter()
        answer = client.map(scene).answer
        took = time.perf_counter() - begin
        memory.end()
    tiles = answer.effective.windows
    return {
        "ready_s": ready,
        "scene_s": took,
        "tiles": tiles,
        "tiles_a_second": tiles / took,
        "idle_gb": memory.idle / 1e9,
        "peak_gb": memory.peak / 1e9,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=sorted(prithvi.SIZES), default="tiny")
    parser.add_argument("--side", type=int, default=2048, help="rows and columns of the scene")
    parser.add_argument("--tile", type=int, default=512, help="side of a tile in pixels")
    parser.add_argument("--seconds", type=float, default=15.0, help="a batch size of the bare loop")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source, checkpoint = Path(folder) / "terratorch", Path(folder) / "checkpoint"
        prithvi.make(source, options.size, options.tile)
        begin = time.perf_counter()
        command = [Path(sys.executable).with_name("vllm-raster-model"), "convert"]
        subprocess.run([*command, source, checkpoint], check=True, stdout=sys.stderr)
        converted = time.perf_counter() - begin
        before = bare(checkpoint, options.seconds)
        figures = served(checkpoint, options.side)
        after = bare(checkpoint, options.seconds)
    rates = [one["tiles_a_second"] for one in (before, after)]
    figures |= {
        "convert_s": converted,
        "bare_before": rates[0],
        "bare_after": rates[1],
        "bare_batch": before["batch"],
        "serving_efficiency": figures["tiles_a_second"] / (sum(rates) / 2),
    }
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
