"""The most memory that a server takes for one large scene, over what it is allowed.

Allowed is what it holds when idle, and 2.5 times the scene's own bytes. The network computes
nothing, and what is measured is all processes of the server together. The scene comes in the body
of the request, not compressed, and once more from the server's own disk.
"""

import argparse
import base64
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import networks
from measured import PeakMemory, write_scene

from vllm_raster_io import LocalServer

SIDE = 10_980
"""Rows and columns of a Sentinel-2 tile at 10 m."""
ALLOWED = 2.5
_PIECE = 3 << 20
_SETTLED = 8.0


def body(path: Path) -> Iterator[bytes]:
    """A request with a file in base64, a piece at a time."""
    yield b'{"data": {"data": "'
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield base64.b64encode(piece)
    yield b'"}}'


def by_path(path: Path) -> Iterator[bytes]:
    """A request that names a file."""
    yield json.dumps({"data": {"data": path.name, "data_format": "path"}}).encode()


def measure(server: LocalServer, content: Iterator[bytes]) -> tuple[PeakMemory, float, int]:
    """The memory for a request, how long it took, and how many windows it had."""
    time.sleep(_SETTLED)
    memory, begin = PeakMemory(server.group), time.perf_counter()
    kind = {"content-type": "application/json"}
    response = httpx.post(f"{server.url}/pooling", content=content, headers=kind, timeout=None)
    took = time.perf_counter() - begin
    memory.end()
    response.raise_for_status()
    windows = int(response.json()["data"]["effective"]["windows"])
    print(f"{windows} windows in {took:.1f} s, {memory.peak / 1e9:.2f} GB", file=sys.stderr)
    return memory, took, windows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=SIDE, help="rows and columns of the scene")
    parser.add_argument("--tile", type=int, default=512, help="side of a window in pixels")
    parser.add_argument("--overlap", type=int, default=64, help="pixels that two windows share")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, networks.installed():
        folder = Path(name).resolve()
        checkpoint, scene, first = folder / "nothing", folder / "scene.tif", folder / "first.tif"
        networks.make(checkpoint, "benchmark_nothing", tile=options.tile, overlap=options.overlap)
        write_scene(first, 2 * options.tile)
        size = write_scene(scene, options.side)
        environment = {"VLLM_RASTER_READ_ROOTS": str(folder)}
        with LocalServer(checkpoint, environment=environment) as server:
            measure(server, body(first))
            sent, took, windows = measure(server, body(scene))
            read, _, _ = measure(server, by_path(scene))
    allowed = sent.idle + ALLOWED * size
    figures = {
        "memory_over_formula": sent.peak / allowed,
        "memory_scene_gb": size / 1e9,
        "memory_idle_gb": sent.idle / 1e9,
        "memory_allowed_gb": allowed / 1e9,
        "memory_peak_gb": sent.peak / 1e9,
        "memory_by_path_idle_gb": read.idle / 1e9,
        "memory_by_path_peak_gb": read.peak / 1e9,
        "memory_windows": windows,
        "memory_scene_s": took,
    }
    print(json.dumps({key: round(value, 3) for key, value in figures.items()}))


if __name__ == "__main__":
    main()
