"""A folder as TerraTorch publishes it, served as it is, with the flags its documentation names."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import rasterio

from vllm_raster_io import LocalServer, RasterClient, ServiceError

from ..factories import make_raster
from .conftest import CHECKPOINT, SCENES, TESTS
from .scripts import run

FLAGS = ["--skip-tokenizer-init", "--io-processor-plugin", "raster"]
STORED = TESTS / "fixtures" / "terratorch" / "floods_upernet"
DATA = {
    "class_path": "terratorch.datamodules.Sen1Floods11NonGeoDataModule",
    "init_args": {
        "constant_scale": 0.0001,
        "no_data_replace": 0.0,
        "bands": ["BLUE", "GREEN", "RED", "NIR_NARROW", "SWIR_1", "SWIR_2"],
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stored one, which says nothing of the data, and what it was trained on."""
    folder = tmp_path_factory.mktemp("floods")
    for file in STORED.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    config["pretrained_cfg"]["data"] = DATA
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def unconverted(folder: Path) -> Iterator[LocalServer]:
    with LocalServer(folder, arguments=FLAGS) as running:
        yield running


def test_answers_a_scene(unconverted: LocalServer) -> None:
    scene = make_raster(bands=6, height=100, width=90, nodata=0)
    with RasterClient(unconverted.url, timeout=300) as client:
        result = client.map(scene)
    assert [one.name for one in result.answer.classes] == ["class 0", "class 1"]
    with rasterio.open(io.BytesIO(result.data)) as dataset, rasterio.MemoryFile(scene) as memory:
        found = dataset.read(1)
        with memory.open() as sent:
            assert (dataset.crs, dataset.transform) == (sent.crs, sent.transform)
    assert found.shape == (100, 90)
    assert set(np.unique(found)) <= {0, 1, 255}


def test_says_what_serves(unconverted: LocalServer) -> None:
    log = unconverted.log.read_text()
    assert "RasterForImageToImage stands in for vLLM's wrapper around TerraTorch" in log
    assert "Traceback" not in log


@pytest.mark.parametrize("name", ["floods_upernet", "landcover_identity"])
def test_gives_what_terratorch_gives(name: str, tmp_path: Path) -> None:
    out = tmp_path / "difference.json"
    run(TESTS / "e2e" / "engine_unconverted.py", STORED.parent / name, out)
    found = json.loads(out.read_text())
    assert found["maps"] > 1
    assert found["largest_difference"] <= 1e-4


def test_the_page_names_these_flags() -> None:
    page = (TESTS.parent / "docs" / "checkpoints.md").read_text()
    assert f".venv/bin/vllm serve FOLDER {' '.join(FLAGS)}\n```" in page


def test_what_it_does_not_say_is_asked_for() -> None:
    with pytest.raises(ServiceError, match=r"Missing: raster\.input\.mean, raster\.input\.std"):
        LocalServer(STORED, arguments=FLAGS).start()


def test_one_of_ours_needs_no_tokenizer_either(client: RasterClient) -> None:
    with (
        LocalServer(CHECKPOINT, arguments=FLAGS) as running,
        RasterClient(running.url, timeout=300) as without,
    ):
        assert without.map(SCENES["town"]).data == client.map(SCENES["town"]).data
