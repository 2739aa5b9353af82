"""What the service costs: processor time a tile, of all its processes, around a network of nothing.

A tile has 512 × 512 pixels in six bands of uint16, 3 MiB. The scene is read from the server's
disk, uncompressed, and the map of class ids is written there; the same posted as base64, and with
windows that overlap, is measured beside it. Where the time goes is found out in runs of their own,
for looking costs, too.
"""

import argparse
import base64
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import networks
import stages
from measured import mapped, processor_seconds, write_scene

from vllm_raster_io import LocalServer

TILE = 512
OVERLAP = 64


class Asked:
    """A server, and the same scene asked for in several ways."""

    def __init__(self, server: LocalServer, folder: Path) -> None:
        self.server = server
        encoded = base64.b64encode((folder / "scene.tif").read_bytes()).decode()
        path = {"data": "scene.tif", "data_format": "path", "overwrite": True}
        path |= {"out_data_format": "path", "out_path": "map.tif"}
        self.bodies = {
            name: json.dumps({"data": data}).encode()
            for name, data in {
                "path": path,
                "posted": {"data": encoded},
                "overlap": {**path, "overlap": OVERLAP},
            }.items()
        }

    def map(self, how: str) -> int:
        """Maps the scene; gives the number of its tiles."""
        return mapped(self.server, self.bodies[how])

    def milliseconds(self, how: str, times: int) -> dict[str, float]:
        """Processor time a tile of each process, the smallest of some requests."""
        self.map(how)
        best: dict[str, float] = {}
        for _ in range(times):
            before = processor_seconds(self.server.group)
            tiles = self.map(how)
            after = processor_seconds(self.server.group)
            used = {one: 1000 * (after[one] - before[one]) / tiles for one in after}
            if not best or sum(used.values()) < sum(best.values()):
                best = used
        return best


@contextmanager
def asked(checkpoint: Path, folder: Path, **environment: str) -> Iterator[Asked]:
    """A server that may read and write in a folder."""
    roots = {f"VLLM_RASTER_{one}_ROOTS": str(folder) for one in ("READ", "WRITE")}
    with LocalServer(checkpoint, environment={**roots, **environment}) as server:
        yield Asked(server, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=4096, help="rows and columns of the scene")
    parser.add_argument("--times", type=int, default=10, help="requests of each kind")
    options = parser.parse_args()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name, networks.installed():
        folder, checkpoint = Path(name).resolve(), Path(name).resolve() / "checkpoint"
        write_scene(folder / "scene.tif", options.side)
        networks.make(checkpoint, "benchmark_nothing", tile=TILE)
        with asked(checkpoint, folder) as one:
            for how in one.bodies:
                used = one.milliseconds(how, options.times)
                print(f"{how}: {used}", file=sys.stderr)
                figures[f"{how}_ms"] = sum(used.values())
                if how == "path":
                    figures |= {f"of_it_{process}_ms": ms for process, ms in used.items()}
        told = folder / "stages"
        told.mkdir()
        with asked(checkpoint, folder, **{stages.FOLDER: str(told)}) as one:
            one.map("path")
            before, tiles = stages.seconds(told), 0
            for _ in range(options.times):
                tiles += one.map("path")
            after = stages.seconds(told)
        for stage in sorted(after):
            figures[f"stage_{stage}_ms"] = 1000 * (after[stage] - before[stage]) / tiles
    figures = {"overhead_cpu_ms_per_tile": figures["path_ms"], **figures}
    print(json.dumps({key: round(value, 2) for key, value in figures.items()}))


if __name__ == "__main__":
    main()
