"""Whether a server gives everything back: what it holds before and after many requests.

python -m tests.e2e.leaks --count 1000
"""

import argparse
import base64
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from vllm_raster_io import LocalServer

from ..factories import make_raster
from .hanging_up import body_of, hang_up
from .inside import SERVED, held

CHECKPOINT = Path(__file__).resolve().parents[1] / "checkpoints" / "land_cover"
MOST_MB = 20
"""By how much the server's processes together may grow."""
_COUNTED = {
    # What is given back goes to the machine at once, so that what is counted is what is held.
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "MALLOC_ARENA_MAX": "2",
    # torch's store of what it made for each size of a batch, which else grows for thousands.
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "32",
}
_AT_ONCE = 4
_IDLE, _READINGS = 4.0, 3

Ask = Callable[[random.Random], None]


class Leaks:
    """Requests of every kind that come to nothing, and what is left of them.

    Args:
        server: Serves the land cover checkpoint, with `SERVED` and `settings`.
        folder: What the server may read and write.
        host: Of which it may fetch.
    """

    def __init__(self, server: LocalServer, folder: Path, host: str) -> None:
        self._server, self._folder, self._host = server, folder, host
        scene = make_raster(height=300, width=400, compress="deflate", seed=1)
        (folder / "scene.tif").write_bytes(scene)
        damaged = make_raster(height=300, width=400)[:-200_000]
        (folder / "damaged.tif").write_bytes(damaged)
        (folder / "map.tif").write_bytes(b"here already")
        self._scene, self._damaged = (base64.b64encode(one).decode() for one in (scene, damaged))
        self._large = base64.b64encode(make_raster(height=400, width=500)).decode()

    def measure(self, count: int) -> dict[str, dict[str, Any]]:
        """What is held at first and after so many requests of each kind.

        At first comes after as many, for a server takes memory until it has met batches of all
        sizes.
        """
        kinds = {"cancelled": self.cancelled, "failed": self.failed, "refused": self.refused}
        for kind in kinds.values():
            self._many(kind, count, 0)
        told = {"at first": self.held()}
        for name, kind in kinds.items():
            self._many(kind, count, 1)
            told[name] = self.held()
        return told

    def held(self) -> dict[str, Any]:
        """What the server's processes hold, once they have given back what they do not need."""
        readings = []
        with httpx.Client(timeout=60) as client:
            for _ in range(_READINGS):
                time.sleep(_IDLE)
                told = client.get(f"{self._server.url}/inside").json()
                readings.append(held(self._server, told))
        return min(readings, key=lambda one: one["memory_mb"])

    def cancelled(self, chance: random.Random) -> None:
        """A client hangs up, while it sends or at any time after."""
        sent = chance.choice((0.0, 0.5, 0.99, 1.0, 1.0, 1.0, 1.0))
        body = body_of(chance.choice((self._scene, self._large)))
        seconds = chance.choice((0.0, 0.02, 0.1, 0.3, 0.6))
        abruptly = chance.random() < 0.5
        hang_up(self._server.url, body, lambda: time.sleep(seconds), sent=sent, abruptly=abruptly)

    def failed(self, chance: random.Random) -> None:
        """What is found out only when the work has begun."""
        name = chance.choice(("damaged", "fetched", "missing", "taken", "read"))
        by_path, by_url = {"data_format": "path"}, {"data_format": "url"}
        url = f"http://{self._host}"
        self._refused(
            {
                "damaged": {"data": self._damaged},
                "fetched": {"data": f"{url}/damaged.tif", **by_url},
                "missing": {"data": f"{url}/none.tif", **by_url},
                "taken": {"data": self._scene, "out_data_format": "path", "out_path": "map.tif"},
                "read": {"data": "damaged.tif", **by_path},
            }[name]
        )

    def refused(self, chance: random.Random) -> None:
        """What is wrong from the start."""
        self._refused(
            chance.choice(
                (
                    {"data": "!" * 200_000},
                    {"data": self._large[:-3]},
                    {"data": base64.b64encode(bytes(100_000)).decode()},
                    {"data": self._scene, "x": 1},
                    {"data": [self._large, self._large]},
                    {"data": self._large, "indices": [0, 1, 2, 9]},
                    {"data": self._scene, "prompt": "water"},
                    {"data": "../../etc/passwd", "data_format": "path"},
                    {"data": "https://example.org/a.tif", "data_format": "url"},
                    {"data": "scene.tif", "data_format": "path", "indices": [0]},
                )
            )
        )

    def _refused(self, data: Any) -> None:
        response = httpx.post(f"{self._server.url}/pooling", json={"data": data}, timeout=120)
        assert response.status_code == 400, response.text[:500]

    def _many(self, kind: Ask, count: int, seed: int) -> None:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(kind, (random.Random(f"{seed} {i}") for i in range(count))):
                pass

    def left_behind(self) -> list[str]:
        """Files that should not be there."""
        return sorted({one.name for one in self._folder.iterdir()} - set(_FILES))


_FILES = ("scene.tif", "damaged.tif", "map.tif", "raster.toml")


class _Host(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def leaking(**more: Any) -> Iterator[Leaks]:
    """A server that may read, write and fetch, with requests for it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        host = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Host, directory=str(folder)))
        threading.Thread(target=host.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{host.server_address[1]}"
        environment = {
            **SERVED["environment"],
            **_COUNTED,
            "VLLM_RASTER_READ_ROOTS": str(folder),
            "VLLM_RASTER_WRITE_ROOTS": str(folder),
            "VLLM_RASTER_ALLOWED_PRIVATE_HOSTS": address,
            "VLLM_RASTER_ALLOW_HTTP": "true",
            **more,
        }
        try:
            with LocalServer(
                CHECKPOINT, arguments=SERVED["arguments"], environment=environment
            ) as server:
                yield Leaks(server, folder, address)
        finally:
            host.shutdown()
            host.server_close()


def grown(told: dict[str, dict[str, Any]]) -> dict[str, int]:
    """What more is held in the end than at first."""
    first, *_, last = told.values()
    return {name: last[name] - first[name] for name in first if name != "of_each"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="requests of each kind")
    options = parser.parse_args()
    with leaking() as leaks:
        started = time.monotonic()
        told = leaks.measure(options.count)
        for name, one in told.items():
            print(f"{name}: {json.dumps(one)}")
        more, left = grown(told), leaks.left_behind()
        print(f"more after {time.monotonic() - started:.0f} s: {json.dumps(more)}, files {left}")
    memory = more.pop("memory_mb")
    sys.exit(1 if memory > MOST_MB or any(more.values()) or left else 0)


if __name__ == "__main__":
    main()
