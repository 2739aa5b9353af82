"""TerraTorch's plugin for vLLM against this project, on the same weights and the same scene.

Each server is started as its documentation says, then both with all cores and one type of numbers.
Both run at a time and are asked in turn, so that a machine that changes its speed changes it for
both. TerraTorch is taken from an environment of its own (`--terratorch-python`), which
docs/against-terratorch.md says how to make. Prints a table, then a json object of its figures.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from contestants import (
    ALL_CORES,
    ALONE,
    MENDED,
    NO_CACHE,
    THEIR_FLAGS,
    Ask,
    Contestant,
    TerraTorch,
    VllmRaster,
)
from measured import PeakMemory, large_scene, processor_seconds
from responsiveness import Asker

from vllm_raster_io import LocalServer

HERE = Path(__file__).resolve().parent
ASKS = (Ask("overlapping"), Ask("edge_to_edge", 0))
WAYS = ("documented", "float32", "bfloat16")
"""Of starting the two: as documented, else with all cores and one type of numbers, which for
TerraTorch takes `mended/mended_windows.py`."""
PATIENCE = 900.0, 120.0
"""Seconds that a server may take to start, and to answer one tile."""
SLOW = 60.0
"""Seconds a tile from which on a server is asked for the small scene only."""
SETTLES = 5.0
"""Seconds between two requests: a server frees what the last one took, another process starts."""


class Running:
    """A contestant's server and what was measured of it."""

    def __init__(self, contestant: Contestant, server: LocalServer, ready: float) -> None:
        self.contestant, self.server = contestant, server
        self.figures: dict[str, float] = {"ready_s": ready, "answers": 1}
        self.maps: dict[str, np.ndarray] = {}
        self.slow = False
        self._memory = PeakMemory(server.group)

    def warm_up(self, scene: Path) -> None:
        """Has it map one tile, twice, for the first is slower."""
        for ask in self.contestant.asks * 2:
            begin = time.perf_counter()
            try:
                self._post(self.contestant.body(scene, ask), PATIENCE[1])
            except httpx.HTTPError as error:
                say(f"{self.contestant.name}: no answer after {time.perf_counter() - begin:.0f} s")
                say(f"{error}; see {self.server.log}")
                self.figures["answers"] = 0
                self.server.close()
                return
            took = time.perf_counter() - begin
            self.slow = took > SLOW
            if self.slow:
                return

    def measure(self, scenes: tuple[Path, Path], sides: tuple[int, int], ask: Ask) -> None:
        """Has it map the scene once; the best of several times counts."""
        scene, side = scenes[not self.slow], sides[not self.slow]
        body = self.contestant.body(scene, ask)
        asker = Asker(self.server.url)
        time.sleep(SETTLES)
        cpu, begin = self._cpu(), time.perf_counter()
        answer = self._post(body)
        took, cpu = time.perf_counter() - begin, self._cpu() - cpu
        waiting = asker.figures("health")
        reply = answer.json()
        tiles, pixels = self.contestant.tiles(reply, side, sides[0]), side * side / 1e6
        self._keep(ask, "scene_s", took, min)
        self._keep(ask, "tiles", tiles, max)
        self._keep(ask, "tiles_a_second", tiles / took, max)
        self._keep(ask, "megapixels_a_second", pixels / took, max)
        self._keep(ask, "cpu_s_per_tile", cpu / tiles, min)
        self._keep(ask, "health_max_ms", waiting["health_max_ms"], max)
        self._keep(ask, "answer_mb", len(answer.content) / 1e6, max)
        self.maps[ask.name] = self.contestant.ids(reply)

    def end(self) -> None:
        """Stops looking at its memory."""
        self._memory.end()
        self.figures["idle_gb"] = self._memory.idle / 1e9
        self.figures["peak_gb"] = self._memory.peak / 1e9

    def _keep(self, ask: Ask, name: str, value: float, better: Any) -> None:
        key = f"{ask.name}_{name}"
        self.figures[key] = better(self.figures.get(key, value), value)

    def _post(self, body: bytes, patience: float | None = None) -> httpx.Response:
        kind = {"content-type": "application/json"}
        url = f"{self.server.url}/pooling"
        return httpx.post(url, content=body, headers=kind, timeout=patience).raise_for_status()

    def _cpu(self) -> float:
        return sum(processor_seconds(self.server.group).values())


def start(contestant: Contestant, ends: contextlib.ExitStack) -> Running:
    """Starts a contestant's server, which ends when the stack does."""
    say(f"{contestant.name}: vllm serve FOLDER {' '.join(contestant.flags)}".rstrip())
    begin = time.perf_counter()
    server = LocalServer(
        contestant.folder,
        vllm=contestant.vllm,
        arguments=contestant.flags,
        environment=contestant.environment,
        startup=PATIENCE[0],
    )
    ends.enter_context(server)
    return Running(contestant, server, time.perf_counter() - begin)


def contest(
    pair: list[Contestant], scenes: tuple[Path, Path], sides: tuple[int, int], rounds: int
) -> list[Running]:
    """Starts both, asks them in turn, ends both."""
    with contextlib.ExitStack() as ends:
        running = [start(one, ends) for one in pair]
        for one in running:
            one.warm_up(scenes[0])
        for number in range(rounds):
            for one in running:
                if not one.figures["answers"] or (one.slow and number):
                    continue
                for ask in one.contestant.asks:
                    say(f"{one.contestant.name}: {ask.name}, round {number + 1} of {rounds}")
                    one.measure(scenes, sides, ask)
        for one in running:
            one.end()
    return running


def agreement(theirs: np.ndarray, ours: np.ndarray) -> dict[str, float]:
    """Shares of the pixels that ours has a class for."""
    side = min(len(theirs), len(ours))  # a slow server is asked for the scene's first tile only
    theirs, ours = theirs[:side, :side], ours[:side, :side]
    known = ours != 255
    return {
        "equal_pixels": float((theirs == ours)[known].mean()),
        "second_class_theirs": float((theirs == 1)[known].mean()),
        "second_class_ours": float((ours == 1)[known].mean()),
    }


def table(runs: list[Running]) -> str:
    """A row a figure, a column a server."""
    names = dict.fromkeys(name for one in runs for name in one.figures)
    head = ["", *(one.contestant.name for one in runs)]
    rows = [[name, *(_cell(one.figures.get(name)) for one in runs)] for name in names]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def contestants(
    folder: Path, options: argparse.Namespace, scene: Path
) -> dict[str, list[Contestant]]:
    """Makes the weights; gives the pair for each way of starting the servers."""
    source, checkpoint = folder / "terratorch", folder / "checkpoint"
    made = [str(one) for one in (source, checkpoint, scene)]
    sizes = ["--size", options.size, "--tile", str(options.tile)]
    # Apart from this process, which torch would make slow to start another that asks for /health.
    command = [sys.executable, str(HERE / "balance.py"), *made, *sizes]
    subprocess.run(command, check=True, stdout=sys.stderr)
    theirs = Path(options.terratorch_python).absolute().with_name("vllm")
    ours = Path(options.python).absolute().with_name("vllm")
    flags = THEIR_FLAGS
    if options.memory_share is not None:
        flags += ("--gpu-memory-utilization", str(options.memory_share))
    ways: dict[str, list[Contestant]] = {
        "documented": [
            TerraTorch("terratorch", source, theirs, ASKS[1:], flags, ALONE),
            VllmRaster("vllm_raster", checkpoint, ours, ASKS),
        ]
    }
    for dtype in WAYS[1:]:
        tuned = (*flags, "--dtype", dtype, *NO_CACHE)
        more = ALL_CORES | {"VLLM_RASTER_COMPUTE_DTYPE": dtype}
        ways[dtype] = [
            TerraTorch(f"terratorch_{dtype}", source, theirs, ASKS[1:], tuned, MENDED | ALL_CORES),
            VllmRaster(f"vllm_raster_{dtype}", checkpoint, ours, ASKS, (), more),
        ]
    return ways


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--terratorch-python", required=True, help="python of the environment with TerraTorch"
    )
    parser.add_argument("--python", default=sys.executable, help="python of this project's")
    parser.add_argument("--size", choices=("300m", "tiny"), default="tiny")
    parser.add_argument("--side", type=int, default=2048, help="rows and columns of the scene")
    parser.add_argument("--tile", type=int, default=512, help="side of a tile in pixels")
    parser.add_argument(
        "--memory-share",
        type=float,
        help="of the memory, that TerraTorch's server asks for where less than 92 %% are free",
    )
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="of starting them")
    parser.add_argument("--rounds", type=int, default=2, help="how often each is asked")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scenes = Path(name) / "small.tif", Path(name) / "large.tif"
        sides = options.tile, options.side
        for path, side in zip(scenes, sides, strict=True):
            path.write_bytes(large_scene(side))
        pairs = contestants(Path(name), options, scenes[0])
        figures: dict[str, float] = {}
        runs = []
        for way in options.ways:
            theirs, ours = contest(pairs[way], scenes, sides, options.rounds)
            if theirs.maps and ours.maps:
                found = agreement(theirs.maps["edge_to_edge"], ours.maps["edge_to_edge"])
                figures |= {f"{way}_{key}": one for key, one in found.items()}
            runs += [theirs, ours]
            say(table([theirs, ours]))
        for one in runs:
            figures |= {f"{one.contestant.name}_{key}": v for key, v in one.figures.items()}
    print(table(runs))
    print(json.dumps({name: round(value, 4) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
