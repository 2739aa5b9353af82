"""Tiles a second of `vllm serve CHECKPOINT` as it is, over those of the best settings by hand.

For a light network (some 20 ms a tile) and a heavy one (a Prithvi, some 800 ms). The servers of
all settings of a network are up together, and map the same scene in turn, round after round, for
machines change their speed; of each the best round counts. Idle servers take no time.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import networks
import prithvi
from measured import mapped, processor_seconds, write_scene

from vllm_raster_io import LocalServer

TILE = 512
CORES = ",".join(map(str, sorted(os.sched_getaffinity(0))))


@dataclass(frozen=True)
class Setting:
    """What somebody might set by hand."""

    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


WORKER = ("--distributed-executor-backend", "mp")
BOUND = {"VLLM_CPU_OMP_THREADS_BIND": CORES}
FEW = {
    "default": Setting(),
    "long_spins": Setting(environment={"GOMP_SPINCOUNT": "300000"}),
    "worker_process": Setting(WORKER, BOUND | {"GOMP_SPINCOUNT": "300000"}),
}
"""The last is what vLLM's own documents advise: a core for each thread, and a process for them."""
MORE = {
    "no_spins": Setting(environment={"OMP_WAIT_POLICY": "passive"}),
    "spins_10000": Setting(environment={"GOMP_SPINCOUNT": "10000"}),
    "worker_process_sleeping": Setting(WORKER, BOUND | {"GOMP_SPINCOUNT": "1000"}),
    "reserved_core": Setting(environment={"VLLM_CPU_NUM_OF_RESERVED_CPU": "1"}),
    "two_renderers": Setting(("--renderer-num-workers", "2", "--mm-processor-cache-gb", "0")),
    "small_budget": Setting(("--max-num-batched-tokens", "2048")),
    "large_budget": Setting(("--max-num-batched-tokens", "16384")),
    "bfloat16": Setting(environment={"VLLM_RASTER_COMPUTE_DTYPE": "bfloat16"}),
    "float32": Setting(environment={"VLLM_RASTER_COMPUTE_DTYPE": "float32"}),
}


class Contender:
    """A server with a setting, and how fast it was."""

    def __init__(self, checkpoint: Path, scenes: Path, setting: Setting) -> None:
        environment = {"VLLM_RASTER_READ_ROOTS": str(scenes.resolve()), **setting.environment}
        self.server = LocalServer(checkpoint, arguments=setting.arguments, environment=environment)
        self.rates: list[float] = []
        self.milliseconds: list[float] = []

    def map(self) -> None:
        """Maps the scene once."""
        data = {"data": "scene.tif", "data_format": "path", "overlap": 0}
        used, begin = processor_seconds(self.server.group), time.perf_counter()
        tiles = mapped(self.server, data)
        took = time.perf_counter() - begin
        spent = sum(processor_seconds(self.server.group).values()) - sum(used.values())
        self.rates.append(tiles / took)
        self.milliseconds.append(1000 * spent / tiles)


def compare(
    checkpoint: Path, side: int, settings: dict[str, Setting], rounds: int
) -> dict[str, Contender]:
    """Has each setting map a scene so many times, after once to warm up."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
        write_scene(Path(folder) / "scene.tif", side, "deflate")
        contenders = {}
        for name, setting in settings.items():
            one = Contender(checkpoint, Path(folder), setting)
            servers.enter_context(one.server)
            one.map()
            one.rates.clear()
            one.milliseconds.clear()
            contenders[name] = one
            print(f"{checkpoint.name}: {name} is ready", file=sys.stderr, flush=True)
        order = list(contenders.values())
        for _ in range(rounds):
            for one in order:
                time.sleep(SETTLES)
                one.map()
            order = [*order[1:], order[0]]
    return contenders


def figures_of(kind: str, contenders: dict[str, Contender]) -> dict[str, float]:
    """Rates, the processors' time, and the default's rate over the best one's."""
    best = max(contenders, key=lambda name: max(contenders[name].rates))
    print(f"{kind}: the best is {best}", file=sys.stderr)
    figures = {f"{kind}_ratio": max(contenders["default"].rates) / max(contenders[best].rates)}
    for name, one in contenders.items():
        figures[f"{kind}_{name}_tiles_a_second"] = max(one.rates)
        figures[f"{kind}_{name}_cpu_ms_per_tile"] = min(one.milliseconds)
    return figures


def heavy(folder: Path) -> Path:
    """A Prithvi, converted."""
    prithvi.make(folder / "terratorch", "tiny", TILE)
    prithvi.convert(folder / "terratorch", folder / "heavy")
    return folder / "heavy"


def light(folder: Path) -> Path:
    """A few convolutions."""
    checkpoint = folder / "light"
    networks.make(checkpoint, "benchmark_light", tile=TILE)
    return checkpoint


SETTLES = 1.0
"""Seconds between two requests: for a while after one, some servers still keep a core busy."""
KINDS = {"light": (light, 8 * TILE), "heavy": (heavy, 2 * TILE)}
"""How each checkpoint is made, and the side of its scene in pixels."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted(KINDS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--all", action="store_true", help="all settings: some five minutes")
    parser.add_argument("--settings", nargs="+", choices=sorted(FEW | MORE), help="these only")
    options = parser.parse_args()
    settings = FEW | MORE if options.all or options.settings else FEW
    if options.settings:
        settings = {name: settings[name] for name in ["default", *options.settings]}
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name, networks.installed():
        for kind in (options.only,) if options.only else KINDS:
            make, side = KINDS[kind]
            contenders = compare(make(Path(name)), side, settings, options.rounds)
            figures |= figures_of(kind, contenders)
    ratios = [value for key, value in figures.items() if key.endswith("_ratio")]
    figures = {"out_of_the_box_ratio": min(ratios), **figures}
    print(json.dumps({key: round(value, 3) for key, value in figures.items()}))


if __name__ == "__main__":
    main()
