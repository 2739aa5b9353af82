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
    (difference,) = [run(folder, one) for one in commands("terratorch.md", "python")]
    assert float(difference.split()[2]) < 1e-4
    assert "100.00% of the pixels have the same class" in difference
    features = load_file(folder / "out" / "features" / "model.safetensors")
    assert features["predictor.network.encoder.cls_token"].shape == (1, 1, 192)


LANDCOVER = "tests/fixtures/terratorch/landcover_identity"
FLOODS = "tests/fixtures/terratorch/floods_upernet"
SAID = "--mean 0 --std 1 --scale 1 --nodata-fill 0"


def compared(folder: Path, arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "examples/compare_with_terratorch.py", *arguments.split()],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_comparing_a_network_that_is_told_less(folder: Path) -> None:
    convert = f".venv/bin/vllm-raster-model convert {FLOODS} out/untold {SAID}"
    run(folder, f"{convert} --coordinates none")
    less = compared(folder, f"out/untold {FLOODS}/case.safetensors")
    assert less.returncode == 1
    assert (
        "the case has location_coords, the checkpoint is not told the location: convert with "
        "--coordinates time,location" in less.stdout
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (f"nowhere {LANDCOVER}/case.safetensors", "nowhere is no checkpoint: "),
        (f"{LANDCOVER} {LANDCOVER}/case.safetensors", f"{LANDCOVER} is not converted: "),
        ("tests/checkpoints/land_cover nowhere", "nowhere cannot be read as safetensors: "),
        (
            f"tests/checkpoints/land_cover {LANDCOVER}/case.safetensors",
            "The case is of another network: it has 6 bands and 1 dates, the checkpoint takes",
        ),
        (
            "tests/checkpoints/land_cover tests/checkpoints/land_cover/model.safetensors",
            "model.safetensors has no expected and no pixel_values",
        ),
    ],
)
def test_comparing_what_cannot_be_compared(folder: Path, arguments: str, said: str) -> None:
    done = compared(folder, arguments)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


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
