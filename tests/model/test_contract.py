"""The `raster` block: what it may say, what is refused and how."""

import re
from typing import Any

import pytest
from pydantic import ValidationError

from vllm_raster_model.contract import RasterContract
from vllm_raster_model.errors import ContractError

from .checkpoints import raster_block

CLASSES = [{"name": "water"}, {"name": "land"}]
VALUES = {"kind": "values", "classes": [], "bands": [{"name": "biomass", "unit": "Mg/ha"}]}


def test_defaults() -> None:
    contract = RasterContract.parse(
        {
            "version": 1,
            "input": {"bands": ["RED"]},
            "output": {"kind": "image", "bands": [{"name": "RED"}]},
        }
    )
    given = contract.input
    assert (given.scale, given.offset, given.mean, given.std) == (1, 0, (0,), (1,))
    assert (given.nodata_fill, given.frames, given.coordinates) == (0, 1, ())
    tile = contract.tile
    assert (tile.size, tile.multiple_of, tile.minimum, tile.overlap) == (512, 16, None, 0)
    assert (contract.output.upscale, contract.output.downscale) == (1, 1)
    assert contract.output.bands[0].unit is None


def test_keeps_what_it_reads() -> None:
    contract = RasterContract.parse(raster_block())
    assert contract.input.bands == ("GREEN", "NIR", "SWIR")
    assert contract.input.mean == (0.05, 0.25, 0.2)
    assert contract.input.coordinates == ("time", "location")
    assert [one.name for one in contract.output.classes] == ["water", "land"]


def test_cannot_be_changed() -> None:
    contract = RasterContract.parse(raster_block())
    with pytest.raises(ValidationError, match="frozen"):
        contract.tile.size = 64


@pytest.mark.parametrize(
    ("output", "channels", "width"),
    [
        ({}, 2, 2 * 8 * 8),
        ({"classes": [{"name": str(i)} for i in range(5)]}, 5, 5 * 8 * 8),
        ({**VALUES, "upscale": 4}, 1, 32 * 32),
        ({"downscale": 4}, 2, 2 * 2 * 2),
        ({"downscale": 8}, 2, 2),
    ],
)
def test_channels_and_cell_width(output: dict[str, Any], channels: int, width: int) -> None:
    contract = RasterContract.parse(raster_block(output=output))
    assert contract.output.channels == channels
    assert contract.cell_width == width


@pytest.mark.parametrize(("minimum", "cells"), [(None, 1), (8, 1), (16, 2), (32, 4)])
def test_minimum_cells(minimum: int | None, cells: int) -> None:
    assert RasterContract.parse(raster_block(tile={"minimum": minimum})).tile.minimum_cells == cells


REFUSED = [
    ("input", {"bands": []}, "input.bands: .* at least 1"),
    ("input", {"bands": "RGB"}, "input.bands: .* tuple .*got 'RGB'"),
    ("input", {"bands": ["a", "b", "a"]}, "input: .*differ from one another, got .*'a', 'b', 'a'"),
    ("input", {"mean": [1, 2]}, "input: .*mean needs 1 number or one for each of the 3 .* got 2"),
    ("input", {"std": [1] * 4}, "input: .*std needs 1 number or one for each of the 3 .* got 4"),
    ("input", {"std": [1, 0, 1]}, r"input.std.1: .*greater than 0 \(got 0\)"),
    ("input", {"std": [-1]}, r"input.std.0: .*greater than 0 \(got -1\)"),
    ("input", {"scale": float("nan")}, r"input.scale: .*finite number \(got nan\)"),
    ("input", {"mean": [float("inf")]}, r"input.mean.0: .*finite number \(got inf\)"),
    ("input", {"scale": "0.1"}, r"input.scale: .*number \(got '0.1'\)"),
    ("input", {"offset": True}, r"input.offset: .*number \(got True\)"),
    ("input", {"scale": 0}, "input: .*scale must not be 0"),
    ("input", {"mean": [[1, 2], 3, 4], "frames": 2}, "input: .*mean .* lists for all bands or for"),
    ("input", {"std": [[1, 2]] * 3, "frames": 3}, "input: .*std needs one number .* 3 frames in"),
    ("input", {"std": [[1], [0], [1]]}, r"input.std.1.0: .*greater than 0 \(got 0\)"),
    ("input", {"mean": [["0"]] * 3}, r"input.mean.0.0: .*number \(got '0'\)"),
    ("input", {"frames": 0}, r"input.frames: .*greater than or equal to 1 \(got 0\)"),
    ("input", {"frames": "2"}, r"input.frames: .*integer \(got '2'\)"),
    ("input", {"frames": True}, r"input.frames: .*integer \(got True\)"),
    ("input", {"coordinates": ["height"]}, "input.coordinates.0: .*'time' or 'location'.*'height'"),
    ("input", {"means": [0]}, r"input.means: .*not permitted \(got \[0\]\)"),
    ("tile", {"size": 30}, "tile: .*size must be a multiple of multiple_of=8, got 30"),
    ("tile", {"size": 0}, r"tile.size: .*greater than or equal to 1 \(got 0\)"),
    ("tile", {"minimum": 12}, "tile: .*minimum must be a multiple of multiple_of=8, got 12"),
    ("tile", {"minimum": 40}, "tile: .*minimum must not exceed size=32, got 40"),
    ("tile", {"overlap": -1}, r"tile.overlap: .*greater than or equal to 0 \(got -1\)"),
    ("tile", {"overlap": 32}, "tile: .*overlap must be less than size=32, got 32"),
    ("tile", {"multiple": 8}, r"tile.multiple: .*not permitted \(got 8\)"),
    ("output", {"kind": "mask"}, "output.kind: .*'classes', 'values' or 'image'.*got 'mask'"),
    ("output", {"classes": []}, "output: .*kind='classes' needs 'classes' and no 'bands'"),
    ("output", {"classes": [{"name": "x"}] * 2}, "output: .*differ from one another.*'x', 'x'"),
    ("output", {"bands": [{"name": "x"}]}, "output: .*needs 'classes' and no 'bands'"),
    ("output", {"kind": "values"}, "output: .*kind='values' needs 'bands' and no 'classes'"),
    ("output", {**VALUES, "bands": []}, "output: .*kind='values' needs 'bands' and no 'classes'"),
    ("output", {"upscale": 0}, r"output.upscale: .*greater than or equal to 1 \(got 0\)"),
    ("output", {"downscale": 0}, r"output.downscale: .*greater than or equal to 1 \(got 0\)"),
    ("output", {"downscale": 3}, "raster: .*multiple of output.downscale=3, got 8"),
    ("output", {"upscale": 2, "downscale": 2}, "output: .*upscale=2 and downscale=2 cannot both"),
    ("output", {"upscale": 1.5}, r"output.upscale: .*integer.* \(got 1.5\)"),
    (
        "output",
        {"classes": [{"name": "x", "color": "blue"}]},
        "output.classes.0.color: .*pattern.*got 'blue'",
    ),
    ("output", {"classes": [{"colour": "#000000"}]}, "output.classes.0.name: .*required"),
]


@pytest.mark.parametrize(("part", "changes", "message"), REFUSED)
def test_refuses(part: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ContractError, match="raster block") as caught:
        RasterContract.parse(raster_block(**{part: changes}))
    assert re.search(message, str(caught.value)), caught.value


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_refuses_another_version(version: object) -> None:
    message = rf"version: .*should be 1 \(got {version!r}\)"
    with pytest.raises(ContractError, match=message):
        RasterContract.parse({**raster_block(), "version": version})


@pytest.mark.parametrize("part", ["version", "input", "output"])
def test_refuses_what_lacks_a_part(part: str) -> None:
    block = raster_block()
    del block[part]
    with pytest.raises(ContractError, match=f"{part}: Field required"):
        RasterContract.parse(block)


def test_names_all_that_is_wrong_at_once() -> None:
    block = raster_block(input={"frames": 0}, tile={"sise": 8}) | {"extra": 1}
    with pytest.raises(ContractError, match=r"input\.frames: .*; tile\.sise: .*; extra: "):
        RasterContract.parse(block)


@pytest.mark.parametrize("block", [None, [], "raster"])
def test_refuses_what_is_no_block(block: object) -> None:
    with pytest.raises(ContractError, match=rf"raster: .*dictionary.*got {re.escape(repr(block))}"):
        RasterContract.parse(block)
