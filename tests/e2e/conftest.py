"""One server for all end-to-end tests, and the scenes that they send."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from vllm_raster_io import LocalServer, RasterClient

TESTS = Path(__file__).resolve().parents[1]
CHECKPOINT = TESTS / "checkpoints" / "land_cover"
SCENES = {
    "forest_fields": TESTS / "data" / "sentinel2_forest_fields_4band.tif",
    "town": TESTS / "data" / "sentinel2_town_4band.tif",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("engine")


@pytest.fixture(scope="session")
def server() -> Iterator[LocalServer]:
    """Plain `vllm serve`, with no argument but host and port."""
    with LocalServer(CHECKPOINT) as running:
        yield running


@pytest.fixture
def client(server: LocalServer) -> Iterator[RasterClient]:
    with RasterClient(server.url, timeout=300) as one:
        yield one


@pytest.fixture(scope="session")
def checkpoint_without_plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint, but its configuration names no IO processor."""
    folder = tmp_path_factory.mktemp("checkpoint") / "land_cover"
    folder.mkdir()
    for file in CHECKPOINT.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    del config["io_processor_plugin"]
    (folder / "config.json").write_text(json.dumps(config))
    return folder
