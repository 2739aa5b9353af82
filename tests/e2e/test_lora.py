"""Adapters (LoRA) through the engine: each request gets its own answer, also in one batch."""

import base64
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pytest
import rasterio
import torch

from vllm_raster_io import LocalServer, RasterClient, ServiceError
from vllm_raster_model.processor import RasterProcessor
from vllm_raster_model.pytorch import InstructedRasterForImageToImage

from ..adapters import TARGETS, merge, save_adapter, write_adapter
from ..factories import make_raster
from ..model.instructed import make_instructed, save_instructed
from .conftest import TESTS
from .scripts import run

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

CHECKPOINT = TESTS / "checkpoints" / "instructed"
PAGE = (TESTS.parent / "docs" / "instructions.md").read_text()
# One reaches all that can be reached, one is of another rank and leaves most of it alone.
ADAPTERS: dict[str, dict[str, Any]] = {
    "orchards": {"targets": TARGETS, "seed": 1},
    "sand": {"targets": ("k_proj", "up_proj"), "rank": 7, "spread": 0.4, "seed": 2},
}
# A window that needs no blending.
SCENE = make_raster(height=96, width=128, crs=None, seed=5)

Values = npt.NDArray[np.float32]


def write_adapters(checkpoint: Path, folder: Path) -> list[Path]:
    """Of each adapter the folder, and that of the checkpoint that it is merged into."""
    made = []
    for name, how in ADAPTERS.items():
        model = InstructedRasterForImageToImage.from_pretrained(checkpoint)
        adapter = write_adapter(folder / name, model, **how)
        merged = Path(shutil.copytree(checkpoint, folder / f"{name}_merged"))
        merge(model, adapter).save_pretrained(merged)
        made += [adapter, merged]
    return made


def values_of(content: bytes) -> Values:
    with rasterio.open(io.BytesIO(content)) as dataset:
        return dataset.read(1)


def in_pytorch(checkpoint: Path, words: str) -> Values:
    with rasterio.open(io.BytesIO(SCENE)) as dataset:
        item = {"pixel_values": dataset.read()}
    processor = RasterProcessor.from_pretrained(checkpoint)
    model = InstructedRasterForImageToImage.from_pretrained(checkpoint).eval()
    with torch.inference_mode():
        (found,) = model(**processor(images=item, text=f"{words}<image>"))
    return found[0].numpy()


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_adapters(CHECKPOINT, tmp_path_factory.mktemp("adapters"))


@pytest.mark.parametrize(
    ("kind", "budget", "at_once"),
    [("llama", 4096, 2), ("llama", 50, 2), ("llama", 50, 1), ("qwen3", 4096, 2)],
)
def test_engine_and_merged_weights_agree(
    kind: str, budget: int, at_once: int, adapters: list[Path], tmp_path: Path
) -> None:
    checkpoint, scene = CHECKPOINT, tmp_path / "scene.tif"
    scene.write_bytes(SCENE)
    given: list[Path] = [*adapters, scene]
    if kind == "qwen3":
        checkpoint = tmp_path / "qwen3"
        save_instructed(checkpoint, make_instructed("qwen3"))
        given = write_adapters(checkpoint, tmp_path)
    out = tmp_path / "figures.json"
    run(TESTS / "e2e" / "engine_lora.py", checkpoint, out, str(budget), str(at_once), *given)
    figures = json.loads(out.read_text())
    scenes = figures.pop("scenes", [])
    assert figures.pop("adapters_differ") > 0.01
    assert figures.pop("adapters_in_a_step") == at_once + 1
    assert all(one <= 1e-4 for one in figures.values()), figures
    for answer, merged in zip(scenes, [CHECKPOINT, *adapters[1::2]] if scenes else [], strict=True):
        found = values_of(base64.b64decode(answer))
        np.testing.assert_allclose(found, in_pytorch(merged, "water"), atol=1e-4)


@pytest.fixture(scope="module")
def folder(adapters: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place from which the page's paths lead where they should."""
    place = tmp_path_factory.mktemp("page")
    (place / "tests").symlink_to(TESTS)
    (place / ".venv" / "bin").mkdir(parents=True)
    (place / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (place / "out").mkdir()
    for adapter in adapters[::2]:
        (place / "out" / adapter.name).symlink_to(adapter)
    return place


def commands() -> tuple[str, str]:
    """The page's command that starts a server, and the one that asks it."""
    section = PAGE.split("## Adapters (LoRA)")[1]
    serve, ask = re.findall(r"^```bash\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return serve.replace("\\\n", ""), ask


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[LocalServer]:
    program, serve, checkpoint, *arguments = commands()[0].split()
    assert (program, serve) == (".venv/bin/vllm", "serve")
    *flags, modules = arguments[4:]
    assert flags == ["--enable-lora", "--lora-modules"]
    name, path = modules.split("=")
    loaded = [f"{name}={folder / path}", f"sand={folder / 'out' / 'sand'}"]
    with LocalServer(
        folder / checkpoint, arguments=[*flags, *loaded, "--max-loras", "2"]
    ) as running:
        yield running


def ask(server: LocalServer, model: str | None, words: str) -> Values:
    data = {"data": base64.b64encode(SCENE).decode(), "prompt": words}
    body = {"data": data} | ({} if model is None else {"model": model})
    response = httpx.post(f"{server.url}/pooling", json=body, timeout=300)
    assert response.status_code == 200, response.text
    return values_of(base64.b64decode(response.json()["data"]["data"]))


def test_requests_at_once_get_their_own_answers(server: LocalServer, adapters: list[Path]) -> None:
    names: list[str | None] = [None, "orchards", "sand"]
    words = ["find the trees", "where is water"]
    checkpoints = dict(zip(names, [CHECKPOINT, *adapters[1::2]], strict=True))
    right = {(one, said): in_pytorch(checkpoints[one], said) for one in names for said in words}
    asked = [*right] * 3
    with ThreadPoolExecutor(len(asked)) as pool:
        found = list(pool.map(lambda one: ask(server, *one), asked))
    for one, values in zip(asked, found, strict=True):
        np.testing.assert_allclose(values, right[one], atol=1e-4, err_msg=str(one))
    changes = [np.abs(right[one, said] - right[None, said]).max() for one, said in right if one]
    assert min(changes) > 0.05


def test_the_page_asks_for_an_adapter(server: LocalServer, folder: Path) -> None:
    command = commands()[1].replace("127.0.0.1:8001", f"{server.host}:{server.port}")
    subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", command],
        cwd=folder,
        check=True,
        timeout=120,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    found = values_of((folder / "out" / "orchards.tif").read_bytes())
    with RasterClient(server.url, timeout=300) as client:
        town = TESTS / "data" / "sentinel2_town_4band.tif"
        without = values_of(client.map(town, prompt="find the trees").data)
    assert found.shape == without.shape
    assert np.nanmax(np.abs(found - without)) > 0.1


def test_an_unknown_adapter_is_refused(server: LocalServer) -> None:
    body = {"model": "ice", "data": {"data": "", "prompt": "water"}}
    response = httpx.post(f"{server.url}/pooling", json=body, timeout=60)
    assert response.status_code == 404
    assert "`ice` does not exist" in response.json()["error"]["message"]


def test_no_start_with_an_adapter_of_the_vision_encoder(tmp_path: Path) -> None:
    module = "predictor.network.encoder.blocks.0.attn.qkv"
    save_adapter(
        tmp_path / "vision",
        {
            f"base_model.model.{module}.lora_A.weight": torch.ones(4, 64),
            f"base_model.model.{module}.lora_B.weight": torch.ones(192, 4),
        },
    )
    arguments = ["--enable-lora", "--lora-modules", f"vision={tmp_path / 'vision'}"]
    starting = LocalServer(CHECKPOINT, arguments=arguments)
    with pytest.raises(
        ServiceError, match=rf"weights for '{module}', a part of the vision encoder"
    ):
        starting.start()
