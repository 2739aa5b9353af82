"""The examples that train do so, for a few steps, on a folder that is made here."""

import json
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

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


def test_train_instructed_learns_nothing_where_there_is_no_answer(
    folder: Path, tmp_path: Path
) -> None:
    """An image without a valid pixel, a mask of NaN and of nodata: no loss is NaN for them."""
    write(folder / "images" / "b.tif", make_raster(values=np.zeros((4, 70, 50)), nodata=0))
    nothing = np.full((1, 70, 50), np.nan)
    write(folder / "masks" / "dark" / "b.tif", make_raster(values=nothing, dtype="float32"))
    unknown = np.full((1, 70, 50), 255)
    mask = make_raster(values=unknown, dtype="uint8", nodata=255)
    write(folder / "masks" / "bright" / "b.tif", mask)
    done = train(folder, tmp_path / "out", "--steps", "10", "--batch", "1", "--side", "16")
    assert done.returncode == 0, done.stderr
    learnt = InstructedRasterForImageToImage.from_pretrained(tmp_path / "out").state_dict()
    assert all(one.isfinite().all() for one in learnt.values())


@pytest.mark.parametrize("nodata", [None, 0, 1, 255])
def test_both_answers_are_learnt_whatever_nodata_is(folder: Path, nodata: int | None) -> None:
    values = np.arange(70 * 50).reshape(70, 50) % (3 if nodata == 255 else 2)
    values[values == 2] = 255
    for mask in folder.glob("masks/*/*.tif"):
        write(mask, make_raster(values=values, dtype="uint8", nodata=nodata))
    one = example().MaskFolder(folder, side=70, length=1)[0]
    valid = torch.from_numpy(one.item["valid"])
    assert torch.equal(one.known, valid & torch.from_numpy(values != 255))
    assert {*one.wanted[one.known].tolist()} == {0, 1}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.full((70, 50), 255), r"values such as 255, expected 0 to 1"),
        (np.ones((70, 51)), r"has the size \(70, 51\), its image \(70, 50\)"),
    ],
)
def test_masks_that_are_refused(folder: Path, values: np.ndarray, message: str) -> None:
    for mask in folder.glob("masks/*/*.tif"):
        write(mask, make_raster(values=values, dtype="uint8"))
    with pytest.raises(SystemExit, match=message):
        example().MaskFolder(folder, side=70, length=1)[0]


@pytest.mark.parametrize(
    ("wordings", "message"),
    [
        ({"bright": ["snow"], "dark": ["ice"]}, "'ice', for 'dark', has the tokens of a wording"),
        ({"bright": ["snow"], "dark": []}, r"has no wording for \['dark'\]"),
    ],
)
def test_wordings_that_are_refused(
    folder: Path, tmp_path: Path, wordings: dict[str, list[str]], message: str
) -> None:
    """Two targets whose words the tokenizer does not know would be one."""
    (folder / "wordings.json").write_text(json.dumps(wordings))
    done = train(folder, tmp_path / "out")
    assert done.returncode != 0
    assert re.search(message, done.stderr)


def test_words_that_are_not_known_are_told(folder: Path, tmp_path: Path) -> None:
    done = train(folder, tmp_path / "out", "--steps", "1", "--batch", "1", "--side", "16")
    assert "'what shines', for 'bright', has words that the checkpoint does not" in done.stdout
    assert "'dark places'" not in done.stdout


def example() -> ModuleType:
    spec = spec_from_file_location("train_instructed", ROOT / "examples" / "train_instructed.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    # Its dataclass looks for its own module.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
