"""What several benchmarks measure with: a large scene, and what a server's processes take."""

import threading
from pathlib import Path

import numpy as np
import psutil
import rasterio
from rasterio.io import MemoryFile

HERE = Path(__file__).resolve().parent
SCENE = HERE.parent / "tests" / "data" / "six_bands" / "sentinel2_dry_valley_6band.tif"


def large_scene(side: int, compress: str = "deflate") -> bytes:
    """The real scene of a dry valley, uint16 in six bands, repeated to so many rows and columns."""
    with rasterio.open(SCENE) as dataset:
        pixels, profile = dataset.read(), dataset.profile
    rows, columns = (-(-side // length) for length in pixels.shape[1:])
    large = np.tile(pixels, (1, rows, columns))[:, :side, :side]
    profile.update(width=side, height=side, compress=compress, tiled=True)
    profile.update(blockxsize=256, blockysize=256)
    with MemoryFile() as memory:
        with memory.open(**profile) as target:
            target.write(large)
        return memory.read()


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
