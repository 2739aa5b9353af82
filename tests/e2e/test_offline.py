"""Without a server: the same map as with one, and what a batch must not change."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import rasterio

from vllm_raster_io import RasterClient

from .conftest import CHECKPOINT, SCENES, TESTS
from .scripts import run

pytestmark = [
    pytest.mark.wheels,
    pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning"),
]

EXAMPLES = TESTS.parent / "examples"


def online(client: RasterClient, name: str) -> np.ndarray:
    with rasterio.open(io.BytesIO(client.map(SCENES[name]).data)) as dataset:
        return dataset.read(1)


def assert_same_map(path: Path, wanted: np.ndarray) -> None:
    with rasterio.open(path) as dataset:
        differing = np.count_nonzero(dataset.read(1) != wanted)
    assert differing <= wanted.size / 10_000, f"{differing} pixels differ"


def test_offline_gives_the_same_map(client: RasterClient, tmp_path: Path) -> None:
    out = tmp_path / "town.tif"
    printed = run(EXAMPLES / "offline.py", SCENES["town"], out, "--checkpoint", str(CHECKPOINT))
    assert '"crs": "EPSG:32643"' in printed
    assert_same_map(out, online(client, "town"))


def test_asynchronous_engine_gives_the_same_maps(
    client: RasterClient, tmp_path: Path, checkpoint_without_plugin: Path
) -> None:
    # The configuration names no IO processor: the engine's argument does.
    run(
        EXAMPLES / "async_engine.py",
        "--checkpoint",
        checkpoint_without_plugin,
        tmp_path,
        *SCENES.values(),
    )
    for name, path in SCENES.items():
        assert_same_map(tmp_path / f"{path.stem}.tif", online(client, name))


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    out = tmp_path_factory.mktemp("batches") / "differences.json"
    run(TESTS / "e2e" / "engine_batches.py", CHECKPOINT, out)
    return json.loads(out.read_text())


def test_a_batch_changes_no_score(batches: dict[str, float]) -> None:
    assert batches["alone_and_in_batch"] <= 1e-4


def test_sharing_a_prompt_changes_no_score(batches: dict[str, float]) -> None:
    assert batches["shared_and_alone"] <= 1e-4


def test_engine_and_plain_pytorch_agree(batches: dict[str, float]) -> None:
    assert batches["engine_and_pytorch"] <= 1e-4


def test_each_window_keeps_its_place(batches: dict[str, float]) -> None:
    # If all had the first one's place, as TerraTorch's wrapper has it, this would be 0.
    assert batches["two_places"] >= 1e-4


def test_text_without_an_image_token(batches: dict[str, float]) -> None:
    assert batches["token_ids_and_text"] <= 1e-4
