"""Tiles a second through `POST /pooling` over those of the same network in a bare loop.

The bare loop runs before and after the server, and the mean of the two counts, for machines
change their speed. The scene is the real one of a dry valley, repeated.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import prithvi
import psutil
import rasterio
from rasterio.io import MemoryFile

from vllm_raster_io import LocalServer, RasterClient

HERE = Path(__file__).resolve().parent
SCENE = HERE.parent / "tests" / "data" / "six_bands" / "sentinel2_dry_valley_6band.tif"


def large_scene(side: int) -> bytes:
    """The scene, repeated to so many rows and columns."""
    with rasterio.open(SCENE) as dataset:
        pixels, profile = dataset.read(), dataset.profile
    rows, columns = (-(-side // length) for length in pixels.shape[1:])
    large = np.tile(pixels, (1, rows, columns))[:, :side, :side]
    profile.update(width=side, height=side, compress="deflate", tiled=True)
    profile.update(blockxsize=256, blockysize=256)
    with MemoryFile() as memory:
        with memory.open(**profile) as target:
            target.write(large)
        return memory.read()


class PeakMemory:
    """The most memory that a server's processes held together, looked at twice a second.

    Memory that processes share counts once (PSS).
    """

    def __init__(self, group: int) -> None:
        self._processes = [psutil.Process(group), *psutil.Process(group).children(recursive=True)]
        self.idle = self.peak = self._now()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stops looking."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            self.peak = max(self.peak, self._now())

    def _now(self) -> int:
        total = 0
        for one in self._processes:
            try:
                total += one.memory_full_info().pss
            except psutil.Error:
                continue
        return total


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
