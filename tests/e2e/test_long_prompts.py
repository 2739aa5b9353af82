"""Windows of a fast network: more of them share a prompt than of one that is not known to be."""

import importlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from rasterio.io import MemoryFile

from vllm_raster_io import LocalServer, RasterClient

from ..factories import make_raster
from .conftest import TESTS
from .inside import finished

TILE, WINDOWS = 512, 32
USUAL, MOST = 4, 16


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """A network whose scores are its first two bands."""
    folder = tmp_path_factory.mktemp("nothing") / "checkpoint"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TESTS.parent / "benchmarks"))
        networks: Any = importlib.import_module("networks")
        with networks.installed():
            networks.make(folder, "benchmark_nothing", tile=TILE)
            with LocalServer(folder) as running:
                yield running


def scene(rows: int, columns: int, seed: int) -> tuple[bytes, np.ndarray]:
    """A scene of so many windows, and its map: whether the second band is the greater one."""
    shape = (6, rows * TILE, columns * TILE)
    pixels = np.random.default_rng(seed).integers(0, 10_000, shape, dtype=np.uint16)
    made = make_raster(values=pixels, tiled=True, blockxsize=TILE, blockysize=TILE)
    return made, pixels[1] > pixels[0]


def assert_mapped(client: RasterClient, content: bytes, expected: np.ndarray) -> None:
    with MemoryFile(client.map(content).data) as memory, memory.open() as dataset:
        np.testing.assert_array_equal(dataset.read(1), expected)


def test_the_prompts_of_a_scene_get_longer(server: LocalServer) -> None:
    content, expected = scene(4, 8, seed=0)
    prompts = []
    with RasterClient(server.url, timeout=300) as client:
        for _ in range(3):
            before = finished(server)
            assert_mapped(client, content, expected)
            prompts.append(finished(server) - before)
    assert prompts[0] == WINDOWS / USUAL
    # By how fast this machine is; other tests may run beside it.
    assert WINDOWS / MOST <= prompts[-1] < WINDOWS / USUAL


def test_long_and_short_ones_at_once(server: LocalServer) -> None:
    """No one waits for ever, and each has its own map."""
    sizes = [(4, 8), (1, 1), (4, 4), (1, 5), (2, 2), (3, 1), (4, 8), (1, 1)]
    scenes = [scene(*size, seed) for seed, size in enumerate(sizes)]
    with RasterClient(server.url, timeout=300) as client, ThreadPoolExecutor(len(sizes)) as pool:
        for _ in range(2):
            list(pool.map(lambda one: assert_mapped(client, *one), scenes))
