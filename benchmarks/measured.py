"""What several benchmarks measure with: large scenes, requests, what a server's processes take."""

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import rasterio
from rasterio.io import MemoryFile
from rasterio.windows import Window

from vllm_raster_io import LocalServer

HERE = Path(__file__).resolve().parent
SCENE = HERE.parent / "tests" / "data" / "six_bands" / "sentinel2_dry_valley_6band.tif"
_BLOCK = 512


def write_scene(path: Path | str, side: int, compress: str = "none", source: Path = SCENE) -> int:
    """Writes a real scene, that of a dry valley, repeated to so many rows and columns.

    Returns:
        Bytes of its pixels: uint16, that scene's in six bands.
    """
    with rasterio.open(source) as dataset:
        pixels, profile = dataset.read(), dataset.profile
    profile.update(width=side, height=side, tiled=True, compress=compress, bigtiff="if_safer")
    profile.update(blockxsize=_BLOCK, blockysize=_BLOCK)
    with rasterio.open(path, "w", **profile) as target:
        for row in range(0, side, _BLOCK):
            rows = np.arange(row, min(row + _BLOCK, side)) % pixels.shape[1]
            strip = pixels[:, rows][..., np.arange(side) % pixels.shape[2]]
            target.write(strip, window=Window(0, row, side, len(rows)))
    return side * side * len(pixels) * pixels.itemsize


def large_scene(side: int, compress: str = "deflate", source: Path = SCENE) -> bytes:
    """The same as a file in memory."""
    with MemoryFile() as memory:
        write_scene(memory.name, side, compress, source)
        return memory.read()


def mapped(server: LocalServer, asked: Mapping[str, Any] | bytes) -> int:
    """Has a server map a scene; gives the number of windows.

    Args:
        server: A running one.
        asked: A request's `data`, or its whole body.
    """
    body = asked if isinstance(asked, bytes) else json.dumps({"data": asked}).encode()
    kind = {"content-type": "application/json"}
    response = httpx.post(f"{server.url}/pooling", content=body, headers=kind, timeout=3600)
    response.raise_for_status()
    return int(response.json()["data"]["effective"]["windows"])


def processes_of(group: int) -> list[psutil.Process]:
    """A server's first process and all that came of it."""
    first = psutil.Process(group)
    return [first, *first.children(recursive=True)]


def processor_seconds(group: int) -> dict[str, float]:
    """What each of a server's processes has used of the processors so far, by its name."""
    seconds: dict[str, float] = {}
    for one in processes_of(group):
        times, name = one.cpu_times(), " ".join(one.cmdline()[:1]) or one.name()
        name = name.removeprefix("VLLM::").split("/")[-1]
        seconds[name] = seconds.get(name, 0.0) + times.user + times.system
    return seconds


class PeakMemory:
    """The most memory that a server's processes held together, looked at ten times a second.

    Memory that processes share counts once (PSS).
    """

    def __init__(self, group: int) -> None:
        self._processes = processes_of(group)
        self.idle = self.peak = self._now()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stops looking."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.1):
            self.peak = max(self.peak, self._now())

    def _now(self) -> int:
        total = 0
        for one in self._processes:
            try:
                total += one.memory_full_info().pss
            except psutil.Error:
                continue
        return total
