"""How long `/health` takes while the server maps a large scene, and how fast the scene goes.

The scene is the real one of forest and fields, repeated. Whoever asks for `/health` is a process
of its own, so that sending the scene does not hold it up. Beside it a server that does nothing
but answer is asked in the same way: what keeps that one waiting too is the machine, not the
serving of maps.
"""

import argparse
import asyncio
import base64
import json
import multiprocessing
import time
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path

import httpx
import numpy as np
from measured import large_scene

from vllm_raster_io import LocalServer, RasterClient
from vllm_raster_io.datasets import accept_missing_reference

ROOT = Path(__file__).resolve().parents[1]
CHECKPOINT = ROOT / "tests" / "checkpoints" / "land_cover"
SCENE = ROOT / "tests" / "data" / "sentinel2_forest_fields_4band.tif"
PAUSE = 0.02


async def answer_at_once(port: Connection) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def serve_nothing(port: Connection) -> None:
    asyncio.run(answer_at_once(port))


def ask_for_health(url: str, ended: Event, answer: Connection) -> None:
    seconds = []
    with httpx.Client() as client:
        while not ended.is_set():
            begin = time.perf_counter()
            client.get(f"{url}/health", timeout=60)
            seconds.append(time.perf_counter() - begin)
            time.sleep(PAUSE)
    answer.send(seconds)


class Asker:
    """Asks a server for `/health` again and again, from a process of its own."""

    def __init__(self, url: str) -> None:
        # Spawned: a fork would share this process's memory, and wait for it.
        processes = multiprocessing.get_context("spawn")
        self._here, there = processes.Pipe(duplex=False)
        self._ended = processes.Event()
        arguments = (url, self._ended, there)
        self._process = processes.Process(target=ask_for_health, args=arguments, daemon=True)
        self._process.start()

    def figures(self, name: str) -> dict[str, float]:
        """Ends it and gives its waiting times in milliseconds."""
        self._ended.set()
        milliseconds = 1000 * np.array(self._here.recv())
        self._process.join()
        return {
            f"{name}_max_ms": float(milliseconds.max()),
            f"{name}_p99_ms": float(np.percentile(milliseconds, 99)),
            f"{name}_median_ms": float(np.median(milliseconds)),
        }


def measure(server: LocalServer, idle_url: str, side: int) -> dict[str, float]:
    # Made before, for a client is another machine's work.
    content = base64.b64encode(large_scene(side, source=SCENE))
    body = b'{"data": {"data": "' + content + b'"}}'
    with RasterClient(server.url) as client:
        client.map(SCENE)
    askers = {"health": Asker(server.url), "idle_server": Asker(idle_url)}
    time.sleep(2)
    begin = time.perf_counter()
    kind = {"content-type": "application/json"}
    response = httpx.post(f"{server.url}/pooling", content=body, headers=kind, timeout=None)
    figures = {"scene_s": time.perf_counter() - begin, "body_mb": len(body) / 1e6}
    for name, asker in askers.items():
        figures |= asker.figures(name)
    return {"windows": response.json()["data"]["effective"]["windows"], **figures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=4000, help="rows and columns of the scene")
    options = parser.parse_args()
    accept_missing_reference()
    processes = multiprocessing.get_context("spawn")
    here, there = processes.Pipe(duplex=False)
    idle = processes.Process(target=serve_nothing, args=(there,), daemon=True)
    idle.start()
    idle_url = f"http://127.0.0.1:{here.recv()}"
    begin = time.perf_counter()
    with LocalServer(CHECKPOINT) as server:
        ready = time.perf_counter() - begin
        figures = {"ready_s": ready, **measure(server, idle_url, options.side)}
    idle.terminate()
    print(json.dumps({name: round(value, 1) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
