"""The examples that train do so, for a few steps, on a folder that is made here."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import rasterio
import torch

from vllm_raster_model.pytorch import InstructedRasterForImageToImage

from .factories import make_raster

ROOT = Path(__file__).resolve().parents[1]
START = ROOT / "tests" / "checkpoints" / "instructed"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two images with a mask each for one target, one of them with a mask for another."""
    made = tmp_path / "masks_and_images"
    for name, seed in (("a", 0), ("b", 1)):
        content = make_raster(height=70, width=50, seed=seed, nodata=0)
        write(made / "images" / f"{name}.tif", content)
        with rasterio.MemoryFile(content) as memory, memory.open() as dataset:
            bright = (dataset.read(4) > 5000).astype(np.uint8)
        write(made / "masks" / "bright" / f"{name}.tif", make_raster(values=bright, dtype="uint8"))
    dark = make_raster(values=1 - bright, dtype="uint8")
    write(made / "masks" / "dark" / "b.tif", dark)
    wordings = {"bright": ["bright places", "what shines"], "dark": ["dark places"]}
    (made / "wordings.json").write_text(json.dumps(wordings))
    return made


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def train(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "examples" / "train_instructed.py", *arguments]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


def test_train_instructed_writes_a_checkpoint(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = train(folder, out, "--steps", "12", "--batch", "2", "--side", "48")
    assert done.returncode == 0, done.stderr
    assert "step 12 of 12, loss" in done.stdout
    start = InstructedRasterForImageToImage.from_pretrained(START).state_dict()
    model = InstructedRasterForImageToImage.from_pretrained(out)
    learnt = model.state_dict()
    assert learnt.keys() == start.keys()
    assert not torch.equal(learnt["head.weights.weight"], start["head.weights.weight"])
    assert model.config.contract.instructions is not None
    assert model.config.contract.instructions.wordings["dark"] == ("dark places",)
    assert {one.name for one in START.iterdir()} - {"README.md"} <= {
        one.name for one in out.iterdir()
    }


def test_train_instructed_says_what_is_missing(folder: Path, tmp_path: Path) -> None:
    (folder / "wordings.json").write_text('{"clouds": ["clouds"]}')
    done = train(folder, tmp_path / "out")
    assert done.returncode != 0
    assert "has no masks/TARGET/NAME.tif for any target" in done.stderr
