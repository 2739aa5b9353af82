"""How time and memory grow with the scene, with clients, with bands and with overlap.

Around a network that computes nothing, so that the service's own share is seen. Draws the curves
for the documentation, and gives the exponents of time and memory over the pixels of a scene from
2048 × 2048 on: 1 is a straight line.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import networks
import numpy as np
from matplotlib.figure import Figure
from measured import PeakMemory, mapped, write_scene

from vllm_raster_io import LocalServer

PLOT = Path(__file__).resolve().parents[1] / "docs" / "images" / "growth.png"
SIDES = (512, 1024, 2048, 4096, 8192, 10980)
LARGE, SMALL = 2048, 1024
CLIENTS = (1, 2, 4, 8, 16, 32, 64)
BANDS = (2, 6)
OVERLAPS = (0, 32, 64, 128, 192, 256)
Curve = dict[int, tuple[float, float]]
"""Seconds and GB by what is varied."""


class Asked:
    """A server that reads scenes of its own disk."""

    def __init__(self, server: LocalServer, bands: int) -> None:
        self._server = server
        self._bands = list(range(1, bands + 1))
        self.seconds(SMALL)

    def seconds(self, side: int, clients: int = 1, **options: Any) -> float:
        """How long so many clients wait who ask at the same time."""
        data = {"data": f"{side}.tif", "data_format": "path", "bands": self._bands, **options}
        begin = time.perf_counter()
        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(lambda _: mapped(self._server, data), range(clients)))
        return time.perf_counter() - begin

    def measure(self, side: int, clients: int = 1, **options: Any) -> tuple[float, float]:
        """Seconds, and the most memory in GB on top of what is held before."""
        memory = PeakMemory(self._server.group)
        seconds = self.seconds(side, clients, **options)
        memory.end()
        print(f"{side} {clients} {options}: {seconds:.2f} s", file=sys.stderr)
        return seconds, (memory.peak - memory.idle) / 1e9


def curves(folder: Path) -> dict[str, Curve]:
    """All that is measured."""
    for side in SIDES:
        write_scene(folder / f"{side}.tif", side)
    found: dict[str, Curve] = {"bands": {}}
    environment = {"VLLM_RASTER_READ_ROOTS": str(folder)}
    for bands in BANDS:
        checkpoint = folder / f"{bands} bands"
        networks.make(checkpoint, "benchmark_nothing", bands=networks.BANDS[:bands])
        with LocalServer(checkpoint, environment=environment) as server:
            asked = Asked(server, bands)
            found["bands"][bands] = asked.measure(LARGE)
            if bands == max(BANDS):
                found["clients"] = {one: asked.measure(SMALL, one) for one in CLIENTS}
                found["overlap"] = {one: asked.measure(LARGE, overlap=one) for one in OVERLAPS}
                found["side"] = {side: asked.measure(side) for side in SIDES}
    return found


def exponent(values: Mapping[float, float]) -> float:
    """The power of its argument by which something grows."""
    slope, _ = np.polyfit(np.log(list(values)), np.log(list(values.values())), 1)
    return float(slope)


def draw(found: dict[str, Curve], path: Path) -> None:
    """Four small pictures, with time on the left and memory on the right."""
    figure = Figure(figsize=(10, 7), layout="constrained")
    panels = {
        "side": ("million pixels of a scene", lambda side: side**2 / 1e6),
        "clients": (f"clients at once, {SMALL} × {SMALL} each", float),
        "bands": (f"bands, {LARGE} × {LARGE}", float),
        "overlap": (f"pixels of overlap, {LARGE} × {LARGE}", float),
    }
    for (name, (label, place)), axes in zip(
        panels.items(), figure.subplots(2, 2).flat, strict=True
    ):
        places = [place(one) for one in found[name]]
        seconds, memory = zip(*found[name].values(), strict=True)
        axes.plot(places, seconds, "o-", color="#2060c0", label="seconds")
        axes.set(xlabel=label, ylim=(0, None))
        axes.set_ylabel("seconds", color="#2060c0")
        other = axes.twinx()
        other.plot(places, memory, "s--", color="#c06020")
        other.set(ylim=(0, max(*memory, 0.1) * 1.1))
        other.set_ylabel("GB on top of the idle server", color="#c06020")
    figure.savefig(path, dpi=70)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", type=Path, default=PLOT, help="where to draw the curves")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, networks.installed():
        found = curves(Path(name).resolve())
    draw(found, options.plot)
    large = {side**2: one for side, one in found["side"].items() if side >= LARGE}
    figures = {
        "time_exponent": exponent({pixels: one[0] for pixels, one in large.items()}),
        "memory_exponent": exponent({pixels: max(one[1], 1e-3) for pixels, one in large.items()}),
        "clients_exponent": exponent({one: told[0] for one, told in found["clients"].items()}),
    }
    for kind, curve in found.items():
        for place, (seconds, memory) in curve.items():
            figures |= {f"{kind}_{place}_s": seconds, f"{kind}_{place}_gb": memory}
    print(json.dumps({key: round(value, 3) for key, value in figures.items()}))


if __name__ == "__main__":
    main()
