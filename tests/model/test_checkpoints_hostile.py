"""Broken files, and files that mean harm: refused in one line, and nothing of them is run."""

import enum
import json
import os
import pickle
import sys
import types
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from vllm_raster_model.checkpoints import Options, read_checkpoint
from vllm_raster_model.checkpoints.documents import read_json, read_yaml
from vllm_raster_model.checkpoints.sources import find_source
from vllm_raster_model.checkpoints.tensors import read_tensors
from vllm_raster_model.checkpoints.writing import write_checkpoint
from vllm_raster_model.errors import RasterModelError, SourceError, WeightsError

from .foreign import FIXTURES, NORMALISED, make_run, maps, random_weights, save_lightning, write

FLOODS = FIXTURES / "floods_upernet"


class Runs:
    """Pickled, it is a call of `os.system`."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {self.trace}",)


def test_a_pickle_that_runs_something(tmp_path: Path) -> None:
    trace, path = tmp_path / "trace", tmp_path / "a.ckpt"
    torch.save({"state_dict": {"a": torch.zeros(1)}, "callbacks": Runs(trace)}, path)
    with pytest.raises(
        WeightsError, match=r"names what is no weight and is not run \(posix.system"
    ):
        read_tensors(path)
    assert not trace.exists()


def test_a_pickle_of_the_old_kind_that_runs_something(tmp_path: Path) -> None:
    trace, path = tmp_path / "trace", tmp_path / "a.pt"
    state = {"state_dict": {"a": torch.zeros(1)}, "callbacks": Runs(trace)}
    torch.save(state, path, _use_new_zipfile_serialization=False)
    with pytest.raises(WeightsError):
        read_tensors(path)
    path.write_bytes(pickle.dumps(Runs(trace)))
    with pytest.raises(WeightsError):
        read_tensors(path)
    assert not trace.exists()


@pytest.fixture
def stranger() -> Iterator[types.ModuleType]:
    """A package as TerraTorch's, that would tell if something of it were used."""
    module = types.ModuleType("terratorch.datasets.utils")
    source = (
        "import enum\n"
        "class HLSBands(enum.Enum):\n"
        "    BLUE = 'BLUE'\n"
        "class Head:\n"
        "    def __init__(self): self.name = 'aux'\n"
        "    def __setstate__(self, state): raise SystemExit('run')\n"
    )
    exec(source, module.__dict__)
    for name in ("terratorch", "terratorch.datasets"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules[module.__name__] = module
    yield module
    for name in ("terratorch", "terratorch.datasets", module.__name__):
        del sys.modules[name]


def test_bookkeeping_beside_the_weights_is_not_used(
    tmp_path: Path, stranger: types.ModuleType
) -> None:
    # As Lightning stores a training's settings: enumerations, data classes, paths.
    expected = make_run(tmp_path)
    stored = random_weights(expected.config)
    beside = {
        "hyper_parameters": {
            "bands": [stranger.HLSBands.BLUE],
            "aux_heads": [stranger.Head()],
            "root": Path("/data"),
        },
        "callbacks": {"ModelCheckpoint": {"best_model_score": torch.tensor(0.5)}},
    }
    save_lightning(tmp_path / "epoch=0.ckpt", stored, **beside)
    window = {"pixel_values": torch.ones(1, 6, 32, 32)}
    torch.testing.assert_close(maps(read_checkpoint(tmp_path), window), maps(expected, window))


class Colour(enum.Enum):
    RED = 1


def test_a_class_of_nobody(tmp_path: Path) -> None:
    save_lightning(tmp_path / "a.ckpt", {"a": torch.zeros(1)}, hyper_parameters=Colour.RED)
    with pytest.raises(WeightsError, match=r"Colour.*save its state_dict alone"):
        read_tensors(tmp_path / "a.ckpt")


def test_a_weight_that_is_none(tmp_path: Path) -> None:
    torch.save({"state_dict": {"a": "text"}}, tmp_path / "a.pt")
    with pytest.raises(WeightsError, match="must hold weights by name, got str for 'a'"):
        read_tensors(tmp_path / "a.pt")
    torch.save([torch.zeros(1)], tmp_path / "b.pt")
    with pytest.raises(WeightsError, match="holds no weights by name, but list"):
        read_tensors(tmp_path / "b.pt")


@pytest.mark.parametrize("part", [0, 1, 100, 0.5, 0.99])
def test_a_truncated_file(part: float, tmp_path: Path) -> None:
    whole = (FLOODS / "weights.pt").read_bytes()
    count = part if isinstance(part, int) else int(len(whole) * part)
    (tmp_path / "weights.pt").write_bytes(whole[:count])
    with pytest.raises(WeightsError, match=r"weights.pt"):
        read_tensors(tmp_path / "weights.pt")


@pytest.mark.parametrize("count", [0, 4, 8, 100, 5000])
def test_truncated_safetensors(count: int, tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes((FLOODS / "case.safetensors").read_bytes()[:count])
    with pytest.raises(WeightsError, match=r"a.safetensors (cannot be read|is broken)"):
        read_tensors(tmp_path / "a.safetensors")


def test_a_header_that_claims_too_much(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"\xff" * 7 + b"\x7f{}")
    with pytest.raises(WeightsError, match="is broken: a header of"):
        read_tensors(tmp_path / "a.safetensors")


def test_a_packed_file(tmp_path: Path) -> None:
    # A few bytes that would become many.
    with (
        zipfile.ZipFile(FLOODS / "weights.pt") as old,
        zipfile.ZipFile(tmp_path / "a.pt", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for one in old.infolist():
            new.writestr(one.filename, old.read(one))
    with pytest.raises(WeightsError, match="is not as PyTorch writes it"):
        read_tensors(tmp_path / "a.pt")


def test_a_weight_larger_than_its_numbers(tmp_path: Path) -> None:
    # One number, told to be there 10^12 times: compared before anything is made of it.
    checkpoint = make_run(tmp_path)
    stored = random_weights(checkpoint.config)
    stored["model.encoder.norm.bias"] = torch.zeros(1).expand(10**6, 10**6)
    save_lightning(tmp_path / "epoch=0.ckpt", stored)
    with pytest.raises(WeightsError, match=r"encoder.norm.bias \(1000000, 1000000\) instead of"):
        list(read_checkpoint(tmp_path).weights())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not json"),
        ("{", "is not json"),
        ("[1, 2]", "must hold keys and values, got list"),
        ("null", "must hold keys and values, got NoneType"),
        ("[" * 100_000, "is not json"),
        ('{"a": 1}', "is none of a TerraTorch folder"),
        ('{"pretrained_cfg": 7}', "is none of a TerraTorch folder"),
        ('{"pretrained_cfg": {"model": 7}}', "model must hold keys and values, got 7"),
        ('{"pretrained_cfg": {"model": {"init_args": []}}}', "init_args must hold keys and values"),
        ('{"pretrained_cfg": {"model": {"class_path": 5}}}', "class_path must be a text, got 5"),
        ('{"pretrained_cfg": {"model": {}}}', "The task None is not supported"),
        ('{"raster": 5}', "raster"),
        ('{"raster": {}, "vision_config": 5}', "vision_config must be a json object, got 5"),
        ('{"architecture": "prithvi_eo_v9"}', "'prithvi_eo_v9' is not supported"),
    ],
)
def test_broken_json(text: str, message: str, tmp_path: Path) -> None:
    from vllm_raster_model.checkpoints.inspection import inspect_checkpoint

    write(tmp_path / "config.json", text)
    weights = {"encoder.patch_embed.proj.weight": torch.zeros(4, 6, 1, 2, 2)}
    save_lightning(tmp_path / "weights.pt", weights)
    with pytest.raises(RasterModelError, match=message) as caught:
        inspect_checkpoint(tmp_path, NORMALISED)
    assert "\n" not in " ".join(str(caught.value).split())


def test_statistics_that_are_no_numbers(tmp_path: Path) -> None:
    whole = json.loads((FLOODS / "config.json").read_text())
    init = {"means": [float("nan")] * 6, "stds": [1.0] * 6, "no_data_replace": 0}
    name = "GenericNonGeoSegmentationDataModule"
    whole["pretrained_cfg"]["data"] = {"class_path": name, "init_args": init}
    write(tmp_path / "config.json", json.dumps(whole))
    save_lightning(tmp_path / "weights.pt", {"a": torch.zeros(1)})
    with pytest.raises(RasterModelError, match=r"means must be finite numbers"):
        read_checkpoint(tmp_path)
    init["means"], init["stds"] = [0.0] * 6, [0.0] * 6
    write(tmp_path / "config.json", json.dumps(whole))
    with pytest.raises(RasterModelError, match="greater than 0"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "model: !!python/object/apply:os.system ['true']",
        "model: !!python/name:os.system",
        "model: [",
        "- a",
        "model: *nothing",
        "\x00",
    ],
)
def test_broken_yaml(text: str, tmp_path: Path) -> None:
    write(tmp_path / "config.yaml", text)
    with pytest.raises(SourceError, match=r"config.yaml (is not yaml|must hold)"):
        read_yaml(tmp_path / "config.yaml")


def test_many_laughs(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 30)]
    lines += [
        "model: {class_path: x.SemanticSegmentationTask, init_args: {model_args: {necks: *a29}}}"
    ]
    write(tmp_path / "config.yaml", "\n".join(lines))
    save_lightning(tmp_path / "a.ckpt", {"a": torch.zeros(1)})
    with pytest.raises(RasterModelError) as caught:
        read_checkpoint(tmp_path)
    assert len(str(caught.value)) < 1000


def test_a_huge_configuration(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(2**34)
    with pytest.raises(SourceError, match="is no configuration: 17,179,869,184 bytes"):
        read_json(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere", "There is nothing at"),
        ("empty", "There is no file of weights in"),
        ("file.txt", "is neither a configuration nor a file of weights"),
        ("only_config", "There is no file of weights in"),
        ("broken_link", "There is nothing at"),
        ("folder.pt", "There is no file of weights in"),
    ],
)
def test_places(place: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "folder.pt").mkdir()
    write(tmp_path / "file.txt", "x")
    write(tmp_path / "only_config" / "config.json", (FLOODS / "config.json").read_text())
    (tmp_path / "broken_link").symlink_to(tmp_path / "gone")
    with pytest.raises(SourceError, match=message):
        find_source(tmp_path / place)


def test_weights_named_that_are_not_there() -> None:
    options = Options(mean=(0.0,), std=(1.0,), scale=1.0, nodata_fill=0.0, weights=Path("gone.pt"))
    with pytest.raises(WeightsError, match=r"There is no file gone\.pt"):
        list(read_checkpoint(FLOODS, options).weights())


def test_a_checkpoint_of_this_package(tmp_path: Path) -> None:
    write_checkpoint(read_checkpoint(FLOODS, NORMALISED), tmp_path / "out")
    with pytest.raises(SourceError, match="a checkpoint of this package already"):
        read_checkpoint(tmp_path / "out")


def test_nothing_is_left_where_writing_fails(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    checkpoint = make_run(tmp_path / "source")
    stored = random_weights(checkpoint.config)
    del stored["model.encoder.norm.bias"]
    save_lightning(tmp_path / "source" / "epoch=0.ckpt", stored)
    with pytest.raises(WeightsError, match=r"Missing: encoder\.norm\.bias"):
        write_checkpoint(checkpoint, tmp_path / "out")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["source"]


def test_what_is_not_replaced(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(FLOODS, NORMALISED)
    out = tmp_path / "out"
    write_checkpoint(checkpoint, out)
    with pytest.raises(SourceError, match=r"--force puts this in its place"):
        write_checkpoint(checkpoint, out)
    write(tmp_path / "mine" / "letter.txt", "dear")
    (tmp_path / "link").symlink_to(out)
    for place in ("mine", "link", "mine/letter.txt"):
        with pytest.raises(SourceError, match="it is not replaced"):
            write_checkpoint(checkpoint, tmp_path / place, force=True)
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"
    (out / "left.txt").write_text("over")
    write_checkpoint(checkpoint, out, force=True)
    assert not (out / "left.txt").exists()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link", "mine", "out"]


def test_the_source_is_not_replaced(tmp_path: Path) -> None:
    write_checkpoint(read_checkpoint(FLOODS, NORMALISED), tmp_path / "out")
    make_run(tmp_path / "out" / "run")
    checkpoint = read_checkpoint(tmp_path / "out" / "run")
    with pytest.raises(SourceError, match="holds what is read"):
        write_checkpoint(checkpoint, tmp_path / "out", force=True)


def test_a_licence_is_only_quoted(tmp_path: Path) -> None:
    from vllm_raster_model.checkpoints.cards import model_card

    make_run(tmp_path)
    write(tmp_path / "README.md", '---\nlicense: "mit\\n---\\n# x"\n---\n')
    card = model_card(read_checkpoint(tmp_path), "a `name` <b>", 1)
    head = yaml.safe_load(card.split("---")[1])
    assert head["pipeline_tag"] == "image-segmentation"
    assert "license" not in head
    assert card.count("\n---\n") == 1
    assert "<b>" not in card
