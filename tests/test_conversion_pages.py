"""What the pages on conversion say to type works."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import rasterio
import torch
from safetensors.torch import load_file

from vllm_raster_io import LocalServer
from vllm_raster_model.networks import TorchLayers, build_network

ROOT = Path(__file__).resolve().parents[1]
# As an installed command is.
COMMAND = f"#!{sys.executable}\nfrom vllm_raster_model.cli import app\n\napp()\n"
PYTHON = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
ADDRESS = "127.0.0.1:8002"


def commands(page: str, start: str) -> list[str]:
    """The commands of a page that start so, each of one line or several."""
    text = (ROOT / "docs" / page).read_text()
    blocks = re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    assert all(one.startswith(".venv/bin/") for one in lines)
    return [one for one in lines if one.startswith(f".venv/bin/{start} ")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place from which the pages' paths lead where they should, and `out` is fresh."""
    place = tmp_path_factory.mktemp("pages")
    for name in ("tests", "examples"):
        (place / name).symlink_to(ROOT / name)
    programs = place / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "vllm-raster").symlink_to(Path(sys.executable).with_name("vllm-raster"))
    # A link to Python would not find the packages that are beside it.
    for program, text in (("vllm-raster-model", COMMAND), ("python", PYTHON)):
        (programs / program).write_text(text)
        (programs / program).chmod(0o755)
    (place / "out").mkdir()
    torch.save(tiny_prithvi(), place / "Prithvi_EO_V2_tiny_TL.pt")
    return place


def tiny_prithvi() -> dict[str, torch.Tensor]:
    """A bare encoder of the published shape, with random weights."""
    from tests.model.checkpoints import make_config

    config = make_config(
        {
            "model_type": "prithvi_dense",
            "embed_dim": 192,
            "depth": 12,
            "num_heads": 3,
            "necks": [{"name": "SelectIndices", "indices": [-1]}, {"name": "ReshapeTokensToImage"}],
            "decoder": {"name": "IdentityDecoder"},
        },
        input={"bands": list("abcdef"), "mean": [0.0], "std": [1.0]},
        tile={"size": 64, "multiple_of": 16},
    )
    network = build_network(config.vision_config, config.contract, TorchLayers(), channels=192)
    return network.state_dict()


def run(folder: Path, command: str) -> str:
    done = subprocess.run(
        ["bash", "-e", "-c", command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_conversion_as_the_page_on_terratorch_says(folder: Path) -> None:
    printed = [run(folder, one) for one in commands("terratorch.md", "vllm-raster-model")]
    assert len(printed) == 4
    assert "449,492 parameters" in printed[0]
    assert "IdentityDecoder" in printed[2]
    (compared,) = [run(folder, one) for one in commands("terratorch.md", "python")]
    assert float(compared.split()[2]) < 1e-4
    assert "100.00% of the pixels have the same class" in compared
    features = load_file(folder / "out" / "features" / "model.safetensors")
    assert features["predictor.network.encoder.cls_token"].shape == (1, 1, 192)


def test_conversion_as_the_page_on_checkpoints_says(folder: Path) -> None:
    printed = [run(folder, one) for one in commands("checkpoints.md", "vllm-raster-model")]
    assert "Wrote out/landcover" in printed[0]
    assert "dense vegetation" in printed[1]


@pytest.mark.engine
def test_what_was_converted_is_served(folder: Path) -> None:
    if not (folder / "out" / "floods").exists():
        run(folder, commands("terratorch.md", "vllm-raster-model")[0])
    (serve,) = commands("terratorch.md", "vllm")
    (ask,) = commands("terratorch.md", "vllm-raster")
    assert serve.split()[1:] == ["serve", "out/floods", "--host", "127.0.0.1", "--port", "8002"]
    with LocalServer(folder / "out" / "floods") as server:
        run(folder, ask.replace(ADDRESS, f"{server.host}:{server.port}"))
    with rasterio.open(folder / "out" / "floods.tif") as answer:
        assert (answer.width, answer.height, answer.crs.to_epsg()) == (300, 200, 32719)
        assert set(answer.read(1).ravel().tolist()) <= {0, 1}
