"""The command `vllm-raster-model`."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from typer.testing import CliRunner, Result

from vllm_raster_model.cli import app

from .foreign import FIXTURES, make_run, write

FLOODS = FIXTURES / "floods_upernet"
OURS = Path(__file__).resolve().parents[1] / "checkpoints"
SAID = ["--mean", "0", "--std", "1", "--scale", "1", "--nodata-fill", "0"]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments])


def block(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "config.json").read_text())["raster"]
    return found


def test_notes_are_held_back_only_while_it_runs(tmp_path: Path) -> None:
    before = logging.getLogger("vllm.raster.model").level
    run("convert", FLOODS, tmp_path / "out", *SAID)
    run("inspect", tmp_path / "none")
    assert logging.getLogger("vllm.raster.model").level == before


def test_convert(tmp_path: Path) -> None:
    done = run("convert", FLOODS, tmp_path / "out", *SAID)
    assert done.exit_code == 0, done.output
    assert "449,492 parameters" in done.output
    assert "Left out 1: the code of positions, which is computed" in done.output
    assert {one.name for one in (tmp_path / "out").iterdir()} == {
        *("README.md", "config.json", "model.safetensors", "processor_config.json"),
        *("tokenizer.json", "tokenizer_config.json"),
    }
    with safe_open(tmp_path / "out" / "model.safetensors", framework="pt") as stored:
        assert stored.metadata() == {"format": "pt"}
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| NIR_NARROW | 0 | 1 |" in card
    assert "vllm serve out" in card
    assert "It states no licence" in card


@pytest.mark.parametrize(
    "mean",
    [
        ["--mean", "1", "2", "3", "4", "5", "-6"],
        ["--mean", "1,2,3,4,5,-6"],
        ["--mean", "1 2 3 4 5 -6"],
        [*("--mean", "1", "--mean", "2", "--mean", "3"), *("--mean", "4", "--mean", "5,-6")],
        ["--mean=1,2,3,4,5,-6"],
    ],
)
def test_several_values_in_every_form(mean: list[str], tmp_path: Path) -> None:
    others = ["--std", "1", "--scale", "1", "--nodata-fill", "0"]
    done = run("convert", FLOODS, tmp_path / "out", *mean, *others, "--classes", "dry", "wet")
    assert done.exit_code == 0, done.output
    whole = block(tmp_path / "out")
    assert whole["input"]["mean"] == [1, 2, 3, 4, 5, -6]
    assert [one["name"] for one in whole["output"]["classes"]] == ["dry", "wet"]


@pytest.mark.parametrize("names", [["dry land", "open water"], ["dry land,open water"]])
def test_names_with_spaces(names: list[str], tmp_path: Path) -> None:
    done = run("convert", FLOODS, tmp_path / "out", *SAID, "--classes", *names)
    assert done.exit_code == 0, done.output
    whole: Any = block(tmp_path / "out")
    assert [one["name"] for one in whole["output"]["classes"]] == ["dry land", "open water"]


def test_options_between_the_paths(tmp_path: Path) -> None:
    done = run("convert", *SAID[:2], FLOODS, *SAID[2:4], tmp_path / "out", *SAID[4:])
    assert done.exit_code == 0, done.output
    whole: Any = block(tmp_path / "out")
    assert (whole["input"]["mean"], whole["input"]["std"]) == ([0], [1])


def test_what_is_missing_is_said_in_one_line(tmp_path: Path) -> None:
    done = run("convert", FLOODS, tmp_path / "out")
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert line.endswith("give --mean, --std, --scale, --nodata-fill")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["convert", "nowhere", "out"], 1, "There is nothing at nowhere"),
        (["convert", FLOODS, "out", *SAID, "--bands", "a,b"], 1, "--bands must be the network's 6"),
        (["convert", FLOODS, "out", *SAID, "--classes", "9"], 1, "--classes must be the network's"),
        (["convert", FLOODS, "out", "--mean", "0", "--std", "0", *SAID[4:]], 1, "greater than 0"),
        (["convert", FLOODS, "out", *SAID, "--scale", "0"], 1, "scale must not be 0"),
        (["convert", FLOODS, "out", *SAID, "--overlap", "64"], 1, "overlap must be less than"),
        (["convert", FLOODS, "out", *SAID, "--mean", "x"], 1, "--mean must be numbers"),
        (["convert", FLOODS, "out", *SAID, "--mean", "1", "2"], 1, "--mean needs 1 number or one"),
        (["convert", FLOODS, "out", *SAID, "--mean", "1,2"], 1, "6 bands, got 3: 0, 1, 2"),
        (["convert", FLOODS, "out", *SAID, "--unit", "m"], 1, "--unit is for a regression"),
        (["convert", FLOODS], 2, "Missing argument"),
        (["convert", FLOODS, "out", "--scale", "x"], 2, "Invalid value"),
        (["convert", FLOODS, "out", "--tile", "0"], 2, "Invalid value"),
        (["convert", FLOODS, "out", "--unheard"], 2, "No such option"),
        (["inspect", "nowhere"], 1, "There is nothing at nowhere"),
    ],
)
def test_exit_codes(
    arguments: list[object], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*arguments)
    assert done.exit_code == code
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.output
    if code == 1:
        assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_force(tmp_path: Path) -> None:
    assert run("convert", FLOODS, tmp_path / "out", *SAID).exit_code == 0
    again = run("convert", FLOODS, tmp_path / "out", *SAID, "--tile", "128")
    assert again.exit_code == 1
    assert "--force" in again.stderr
    assert (
        run("convert", FLOODS, tmp_path / "out", *SAID, "--tile", "128", "--force").exit_code == 0
    )
    assert block(tmp_path / "out")["tile"]["size"] == 128


def test_a_run_with_a_licence(tmp_path: Path) -> None:
    make_run(tmp_path / "run", class_names=["dry", "open water", "cloud"])
    write(tmp_path / "run" / "README.md", "---\nlicense: apache-2.0\n---\n# Floods\n")
    done = run("convert", tmp_path / "run" / "epoch=0.ckpt", tmp_path / "out")
    assert done.exit_code == 0, done.output
    card = (tmp_path / "out" / "README.md").read_text()
    assert "license: apache-2.0" in card
    assert "| SWIR_2 | 0.11912 | 0.0765994 |" in card
    assert "- 1 open water" in card


def test_inspect_a_source_that_says_too_little() -> None:
    done = run("inspect", FLOODS)
    assert done.exit_code == 0, done.output
    assert "TerraTorch folder for vLLM" in done.output
    assert "449,492" in done.output
    assert "To convert it, give --mean, --std, --scale, --nodata-fill" in done.output


def test_inspect_as_json(tmp_path: Path) -> None:
    make_run(tmp_path)
    report = json.loads(run("inspect", tmp_path, "--json").output)
    assert report["what"] == "TerraTorch training run"
    assert report["missing_options"] == []
    assert report["raster"]["input"]["scale"] == 0.0001
    assert report["network"]["model_type"] == "prithvi_dense"
    assert report["parameters"] > 10_000


@pytest.mark.parametrize(
    ("name", "said"),
    [("land_cover", "dense vegetation"), ("instructed", "with a language model")],
)
def test_inspect_ours(name: str, said: str) -> None:
    done = run("inspect", OURS / name)
    assert done.exit_code == 0, done.output
    assert said in done.output
    assert json.loads(run("inspect", OURS / name, "--json").output)["parameters"] > 200_000


def test_inspect_what_was_converted(tmp_path: Path) -> None:
    assert run("convert", FLOODS, tmp_path / "out", *SAID).exit_code == 0
    before, after = (
        json.loads(run("inspect", place, "--json").output) for place in (FLOODS, tmp_path / "out")
    )
    assert before["parameters"] == after["parameters"] == 449_492
    assert after["raster"]["input"]["bands"] == before["raster"]["input"]["bands"]
    assert after["raster"]["tile"] == before["raster"]["tile"]
    assert before["notes"] == []


def test_help() -> None:
    done = run("convert", "--help")
    assert done.exit_code == 0
    for option in ("bands", "mean", "std", "scale", "offset", "nodata-fill", "tile", "classes"):
        assert f"--{option}" in done.output
