"""How long `/health` takes while the server maps a large scene, and how fast the scene goes.

The scene is the real one of forest and fields, repeated. Whoever asks for `/health` is a process
of its own, so that sending the scene does not hold it up.
"""

import argparse
import base64
import json
import multiprocessing
import time
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path

import httpx
import numpy as np
import rasterio
from rasterio.io import MemoryFile
from rasterio.transform import from_origin

from vllm_raster_io import LocalServer, RasterClient
from vllm_raster_io.rasters import accept_missing_reference

ROOT = Path(__file__).resolve().parents[1]
CHECKPOINT = ROOT / "tests" / "checkpoints" / "land_cover"
SCENE = ROOT / "tests" / "data" / "sentinel2_forest_fields_4band.tif"
PAUSE = 0.02


def large_scene(side: int) -> bytes:
    with rasterio.open(SCENE) as dataset:
        pixels = dataset.read()
    repeats = -(-side // pixels.shape[1])
    large = np.tile(pixels, (1, repeats, repeats))[:, :side, :side]
    with MemoryFile() as memory:
        with memory.open(
            driver="GTiff",
            count=4,
            height=side,
            width=side,
            dtype="uint16",
            compress="deflate",
            tiled=True,
            crs="EPSG:32633",
            transform=from_origin(5e5, 5e6, 10, 10),
        ) as target:
            target.write(large)
        return memory.read()


def ask_for_health(url: str, ended: Event, answer: Connection) -> None:
    seconds = []
    with httpx.Client() as client:
        while not ended.is_set():
            begin = time.perf_counter()
            client.get(f"{url}/health", timeout=60)
            seconds.append(time.perf_counter() - begin)
            time.sleep(PAUSE)
    answer.send(seconds)


def measure(server: LocalServer, side: int) -> dict[str, float]:
    # Made before, for a client is another machine's work.
    content = base64.b64encode(large_scene(side))
    body = b'{"data": {"data": "' + content + b'"}}'
    # A process of its own from the start: a fork would share this one's memory, and wait for it.
    processes = multiprocessing.get_context("spawn")
    (here, there), ended = processes.Pipe(duplex=False), processes.Event()
    asker = processes.Process(target=ask_for_health, args=(server.url, ended, there))
    with RasterClient(server.url) as client:
        client.map(SCENE)
    asker.start()
    time.sleep(1)
    begin = time.perf_counter()
    kind = {"content-type": "application/json"}
    response = httpx.post(f"{server.url}/pooling", content=body, headers=kind, timeout=None)
    took = time.perf_counter() - begin
    ended.set()
    seconds = here.recv()
    asker.join()
    milliseconds = 1000 * np.array(seconds)
    return {
        "health_max_ms": float(milliseconds.max()),
        "health_p99_ms": float(np.percentile(milliseconds, 99)),
        "health_median_ms": float(np.median(milliseconds)),
        "scene_s": took,
        "windows": response.json()["data"]["effective"]["windows"],
        "body_mb": len(body) / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=4000, help="rows and columns of the scene")
    options = parser.parse_args()
    accept_missing_reference()
    begin = time.perf_counter()
    with LocalServer(CHECKPOINT) as server:
        figures = {"ready_s": time.perf_counter() - begin, **measure(server, options.side)}
    print(json.dumps({name: round(value, 1) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
