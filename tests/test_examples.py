"""The example that trains does so, for a few steps, on a folder that is made here."""

import importlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import torch
from transformers import AutoTokenizer

from vllm_raster_model.contract import InputContract
from vllm_raster_model.processor import RasterProcessor
from vllm_raster_model.pytorch import InstructedRasterForImageToImage
from vllm_raster_model.tokenizer import with_words

from .factories import make_raster

ROOT = Path(__file__).resolve().parents[1]
START = ROOT / "tests" / "checkpoints" / "instructed"
BANDS = InputContract(bands=("BLUE", "GREEN", "RED", "NIR"))

sys.path.insert(0, str(ROOT / "examples"))
mask_folder = importlib.import_module("mask_folder")
train_instructed = importlib.import_module("train_instructed")


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


@pytest.fixture
def train(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Runs the example in this process; gives what it printed."""

    def run(*arguments: str | Path) -> str:
        monkeypatch.setattr(sys, "argv", ["train_instructed.py", *map(str, arguments)])
        train_instructed.main()
        return capsys.readouterr().out

    return run


def test_train_instructed_writes_a_checkpoint(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = ROOT / "examples" / "train_instructed.py"
    command = [sys.executable, script, folder, out, "--steps", "12", "--batch", "2", "--side", "48"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    losses = re.findall(
        r"^step (\d+) of 12, loss (\S+) \(mean of (\d+) steps\)$", done.stdout, re.M
    )
    assert [(one, steps) for one, _, steps in losses] == [("10", "10"), ("12", "12")]
    assert "New words: shines, what\n" in done.stdout
    start = InstructedRasterForImageToImage.from_pretrained(START).state_dict()
    model = InstructedRasterForImageToImage.from_pretrained(out)
    learnt = model.state_dict()
    assert learnt.keys() == start.keys()
    table = "language_model.embed_tokens.weight"
    assert learnt[table].shape[0] == start[table].shape[0] + 2
    assert not torch.equal(learnt["head.weights.weight"], start["head.weights.weight"])
    assert model.config.contract.instructions is not None
    assert model.config.contract.instructions.wordings["dark"] == ("dark places",)
    assert {one.name for one in START.iterdir()} - {"README.md"} <= {
        one.name for one in out.iterdir()
    }
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert len(tokenizer) == model.config.text_config.vocab_size == 71
    assert tokenizer.unk_token_id not in tokenizer("what shines")["input_ids"]


def put(folder: Path, where: str, values: Any, **file: Any) -> None:
    content = make_raster(values=np.asarray(values), **{"dtype": "uint8", **file})
    write(folder / where, content)


def drop(folder: Path, where: str) -> None:
    place = folder / where
    shutil.rmtree(place) if place.is_dir() else place.unlink()


def words(folder: Path, text: Any) -> None:
    (folder / "wordings.json").write_text(text if isinstance(text, str) else json.dumps(text))


BINARY = np.arange(70 * 50).reshape(70, 50) % 2
WRONG: dict[str, tuple[Callable[[Path], None], str]] = {
    "no wordings": (lambda f: drop(f, "wordings.json"), r"wordings\.json is missing: it says how"),
    "no json": (lambda f: words(f, "{bright: "), r"wordings\.json is not json: "),
    "no target": (lambda f: words(f, {}), r"wordings\.json must hold a list of wordings for each"),
    "no list": (lambda f: words(f, ["x"]), r"wordings\.json must hold a list of wordings for each"),
    "one word": (lambda f: words(f, {"dark": "x"}), r"must have a list of wordings for 'dark', as"),
    "no words": (lambda f: words(f, {"dark": []}), r"must have a list of wordings for 'dark', as"),
    "blank": (lambda f: words(f, {"dark": [" "]}), r"json has for 'dark' ' ', which no client may"),
    "number": (lambda f: words(f, {"dark": [7]}), r"json has for 'dark' '7', which no client may"),
    "image": (lambda f: words(f, {"dark": ["a <image>"]}), r"'a <image>': <image> and <row> stand"),
    "other target": (
        lambda f: words(f, {"snow": ["ice"]}),
        r"masks/snow has no GeoTIFF .* 'snow'$",
    ),
    "no image": (
        lambda f: drop(f, "images/b.tif"),
        r"b\.tif has no image: .*images/b\.tif is miss",
    ),
    "bands": (
        lambda f: put(f, "images/b.tif", np.ones((3, 70, 50))),
        r"images/b\.tif has 3 bands, but the checkpoint takes 4: BLUE, GREEN, RED, NIR, in this",
    ),
    "bands of a mask": (
        lambda f: put(f, "masks/dark/b.tif", np.ones((2, 70, 50))),
        r"masks/dark/b\.tif has 2 bands, a mask has one$",
    ),
    "size": (
        lambda f: put(f, "masks/dark/b.tif", np.ones((70, 51))),
        r"dark/b\.tif has 70 × 51 pixels, its image .*images/b\.tif 70 × 50: they must be of one",
    ),
    "place": (
        lambda f: put(f, "masks/dark/b.tif", BINARY, crs="EPSG:32633"),
        r"masks/dark/b\.tif lies elsewhere than its image .*images/b\.tif$",
    ),
    "no raster": (lambda f: write(f / "images" / "b.tif", b"x"), r"images/b\.tif cannot be read: "),
    "255": (
        lambda f: put(f, "masks/dark/b.tif", BINARY * 255),
        r"dark/b\.tif has values from 0 to 255, but a mask may have 0 to 1.*say --mask-scale 255$",
    ),
    "negative": (
        lambda f: put(f, "masks/dark/b.tif", BINARY * -0.5, dtype="float32"),
        r"masks/dark/b\.tif has values from -0\.5 to 0, but a mask may have 0 to 1",
    ),
}


@pytest.mark.parametrize(("break_it", "message"), WRONG.values(), ids=WRONG)
def test_folders_that_are_refused(
    folder: Path, break_it: Callable[[Path], None], message: str
) -> None:
    break_it(folder)
    with pytest.raises(SystemExit, match=message) as caught:
        mask_folder.MaskFolder(folder, BANDS, side=16, length=1)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--start", "."],
            r"^config\.json is missing: --start must be the folder of a checkpoint$",
        ),
        (["--start", str(START.with_name("land_cover"))], r"has the model_type 'raster', which is"),
        (["--side", "129"], r"^--side may be 128 for this checkpoint, got 129$"),
        (["--steps", "0"], r"argument --steps: must be a whole number from 1, got '0'"),
        (["--mask-scale", "0"], r"--mask-scale must be above 0, got 0"),
        (
            ["--rate", "1e30", "--side", "16"],
            r"The loss is nan at step \d+, nothing is written: try",
        ),
    ],
)
def test_arguments_that_are_refused(
    folder: Path,
    tmp_path: Path,
    train: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    with pytest.raises(SystemExit) as caught:
        train(folder, tmp_path / "out", *arguments)
    told = caught.value.code if isinstance(caught.value.code, str) else capsys.readouterr().err
    assert re.search(message, told), told
    assert not (tmp_path / "out").exists()


def test_the_same_words_for_two_targets(
    folder: Path, tmp_path: Path, train: Callable[..., str]
) -> None:
    words(folder, {"bright": ["find snow"], "dark": ["trees", "Find  SNOW"]})
    with pytest.raises(SystemExit, match="'Find  SNOW', for 'dark', has the tokens of a wording"):
        train(folder, tmp_path / "out")


def test_what_is_not_used_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(folder, "images/c.TIFF", np.ones((4, 70, 50)))
    put(folder, "masks/snow/a.tif", BINARY)
    put(folder, "masks/dark/b.tif", BINARY * 0 + 9, nodata=9)
    mask_folder.MaskFolder(folder, BANDS, side=16, length=1)
    assert capsys.readouterr().out.splitlines() == [
        f"{folder / 'masks' / 'snow'} is not used: wordings.json has no target of this name",
        f"{folder / 'images' / 'c.TIFF'} is not used: it has no mask",
        f"{folder / 'masks' / 'dark' / 'b.tif'} says nothing: all of it is nodata or NaN",
    ]


def only(folder: Path, values: Any, scale: float = 1, **file: Any) -> Any:
    """An example whose mask is the only one of the folder."""
    words(folder, {"dark": ["dark places"]})
    put(folder, "masks/dark/b.tif", values, **file)
    return mask_folder.MaskFolder(folder, BANDS, side=70, length=1, scale=scale)[0]


@pytest.mark.parametrize("nodata", [None, 0, 1, 255])
def test_both_answers_are_learnt_whatever_nodata_is(folder: Path, nodata: int | None) -> None:
    values = np.arange(70 * 50).reshape(70, 50) % (3 if nodata == 255 else 2)
    values[values == 2] = 255
    one = only(folder, values, nodata=nodata)
    valid = torch.from_numpy(one.item["valid"])
    assert torch.equal(one.known, valid & torch.from_numpy(values != 255))
    assert {*one.wanted[one.known].tolist()} == {0, 1}


@pytest.mark.parametrize("nodata", [None, 0, 200])
def test_masks_of_another_scale(folder: Path, nodata: int | None) -> None:
    values = np.arange(70 * 50).reshape(70, 50) % 51
    one = only(folder, values, scale=50, nodata=nodata)
    np.testing.assert_allclose(one.wanted, values / 50, rtol=1e-6)
    assert torch.equal(one.known, torch.from_numpy(one.item["valid"]))


def test_what_is_unknown_is_left_out(folder: Path) -> None:
    image = np.random.default_rng(0).uniform(1, 2, (4, 70, 50))
    image[2, 3], image[1, 4] = np.nan, np.inf
    put(folder, "images/b.tif", image, dtype="float32")
    values = BINARY.astype(float)
    values[:, 7] = np.nan
    one = only(folder, values, dtype="float32")
    expected = np.ones((70, 50), bool)
    expected[3:5] = False
    assert np.array_equal(one.item["valid"], expected)
    expected[:, 7] = False
    assert np.array_equal(one.known, expected)
    assert torch.isfinite(one.wanted).all()
    mask = BINARY == 0
    assert np.array_equal(only(folder, BINARY, mask=mask).known[5:], mask[5:])


def test_an_alpha_band_is_no_band(folder: Path) -> None:
    image = np.random.default_rng(0).integers(1, 9, (5, 70, 50))
    # GDAL has it behind red, green and blue.
    image[3] = 255
    image[3, 0] = 0
    put(folder, "images/b.tif", image, photometric="RGB", ALPHA="YES")
    one = only(folder, BINARY)
    assert np.array_equal(one.item["pixel_values"][:, 0], image[[0, 1, 2, 4]])
    assert np.array_equal(one.known, image[3] > 0)


def test_several_dates_stand_one_behind_the_other(folder: Path) -> None:
    image = np.arange(6)[:, None, None] * np.ones((1, 70, 50))
    put(folder, "images/b.tif", image)
    words(folder, {"dark": ["dark places"]})
    taken = InputContract(bands=("A", "B", "C"), frames=2)
    (one,) = [mask_folder.MaskFolder(folder, taken, side=70, length=1)[0]]
    found = one.item["pixel_values"]
    assert found.shape == (3, 2, 70, 50)
    assert found[:, :, 0, 0].tolist() == [[0, 3], [1, 4], [2, 5]]
    put(folder, "images/b.tif", image[:3])
    with pytest.raises(SystemExit, match=r"takes 6: A, B, C on each of 2 dates, in this order"):
        mask_folder.MaskFolder(folder, taken, side=70, length=1)


def test_train_instructed_learns_nothing_where_there_is_no_answer(
    folder: Path, tmp_path: Path, train: Callable[..., str]
) -> None:
    """An image without a valid pixel, a mask of NaN and of nodata: no loss is NaN for them."""
    write(folder / "images" / "b.tif", make_raster(values=np.zeros((4, 70, 50)), nodata=0))
    put(folder, "masks/dark/b.tif", np.full((1, 70, 50), np.nan), dtype="float32")
    put(folder, "masks/bright/b.tif", np.full((1, 70, 50), 255), nodata=255)
    train(folder, tmp_path / "out", "--steps", "10", "--batch", "1", "--side", "16")
    learnt = InstructedRasterForImageToImage.from_pretrained(tmp_path / "out").state_dict()
    assert all(one.isfinite().all() for one in learnt.values())


def test_new_words_are_learnt_and_told_apart(
    folder: Path, tmp_path: Path, train: Callable[..., str]
) -> None:
    """Two targets that only new words tell apart: what is asked for is where they say."""
    words(folder, {"bright": ["find glitter"], "dark": ["find gloom"], "snow": ["snow"]})
    for name in ("bright", "dark"):
        drop(folder, f"masks/{name}")
        for image in "ab":
            mask = BINARY * 0 + (name == "bright")
            put(folder, f"masks/{name}/{image}.tif", mask)
    put(folder, "masks/snow/a.tif", BINARY)
    out = tmp_path / "out"
    printed = train(folder, out, "--steps", "60", "--batch", "4", "--side", "16", "--rate", "3e-3")
    assert "New words: glitter, gloom, snow\n" in printed
    tokenizer = AutoTokenizer.from_pretrained(START)
    expected = with_words(tokenizer, ["glitter gloom snow"]).get_vocab()
    assert AutoTokenizer.from_pretrained(out).get_vocab() == expected
    found = [mapped(out, f"find {one}") for one in ("glitter", "gloom")]
    assert found[0] > 0.8
    assert found[1] < 0.2


@torch.inference_mode()
def mapped(checkpoint: Path, said: str) -> float:
    """The mean of the map of some scene."""
    processor = RasterProcessor.from_pretrained(checkpoint)
    model = InstructedRasterForImageToImage.from_pretrained(checkpoint).eval()
    pixels = np.random.default_rng(1).integers(100, 4000, (4, 32, 32)).astype(np.uint16)
    (found,) = model(**processor(images={"pixel_values": pixels}, text=f"{said}<image>"))
    return float(found.mean())


def test_wordings_of_a_target_replace_those_that_were_there(
    folder: Path, tmp_path: Path, train: Callable[..., str]
) -> None:
    (folder / "masks" / "dark").rename(folder / "masks" / "trees")
    words(folder, {"trees": ["the trees"]})
    out = tmp_path / "out"
    printed = train(folder, out, "--steps", "1", "--batch", "1", "--side", "16")
    assert "The wordings of 'trees' replace those that the checkpoint names\n" in printed
    known = json.loads((out / "config.json").read_text())["raster"]["instructions"]["wordings"]
    before = json.loads((START / "config.json").read_text())["raster"]["instructions"]["wordings"]
    assert known == {**before, "trees": ["the trees"]}


def patches(seed: int, rows: int, columns: int) -> Any:
    """Three bands of patches of 16 pixels, each of one value."""
    values = np.random.default_rng(seed).integers(0, 4000, (3, rows, columns))
    return values.astype(np.uint16).repeat(16, axis=1).repeat(16, axis=2)


def test_a_checkpoint_of_ones_own(folder: Path, tmp_path: Path, train: Callable[..., str]) -> None:
    """What the page writes takes other bands, another tile and template, and can be taught."""
    page = (ROOT / "docs" / "instructions.md").read_text().split("## A checkpoint of your own")[1]
    (program, *_) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=120)
    for name in "ab":
        image = patches(ord(name), 5, 4)[:, :70, :50]
        put(folder, f"images/{name}.tif", image, dtype="uint16")
        put(folder, f"masks/bright/{name}.tif", image[1] > 2000)
    words(folder, {"bright": ["what shines"]})
    out, start = tmp_path / "out", tmp_path / "start"
    given = ["--start", start, "--steps", "100", "--batch", "4", "--side", "48", "--rate", "5e-3"]
    printed = train(folder, out, *given)
    losses = [float(one) for one in re.findall(r", loss (\S+) ", printed)]
    assert losses[-1] < 0.8 * losses[0], losses
    model = InstructedRasterForImageToImage.from_pretrained(out).eval()
    assert model.config.contract.instructions.template == "map {instruction}<image>"
    assert model.config.contract.instructions.wordings["bright"] == ("what shines",)
    processor = RasterProcessor.from_pretrained(out)
    pixels = patches(0, 12, 12)
    text = "map what shines<image>"
    assert processor.tokenizer.unk_token_id not in processor.tokenizer(text)["input_ids"]
    with torch.inference_mode():
        (found,) = model(**processor(images={"pixel_values": pixels}, text=text))
    assert np.mean((found[0].numpy() > 0.5) == (pixels[1] > 2000)) > 0.8


def test_a_template_s_words_are_added(
    folder: Path, tmp_path: Path, train: Callable[..., str]
) -> None:
    start = Path(shutil.copytree(START, tmp_path / "start"))
    config = json.loads((start / "config.json").read_text())
    config["raster"]["instructions"]["template"] = "<bos>Please paint {instruction}: <image> now"
    (start / "config.json").write_text(json.dumps(config))
    out = tmp_path / "out"
    printed = train(folder, out, "--start", start, "--steps", "1", "--batch", "1", "--side", "16")
    assert "New words: :, now, paint, please, shines, what\n" in printed
