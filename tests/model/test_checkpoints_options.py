"""Options: several numbers and names in any form."""

import pytest

from vllm_raster_model.checkpoints import Options
from vllm_raster_model.errors import ContractError


@pytest.mark.parametrize(
    "texts", [["1,-2,3.5"], ["1 -2 3.5"], ["1", "-2", "3.5"], ["1, -2", "3.5"], ["1,-2,", "3.5"]]
)
def test_numbers(texts: list[str]) -> None:
    assert Options.parse(mean=texts).mean == (1.0, -2.0, 3.5)


@pytest.mark.parametrize("texts", [["RED,NIR"], ["RED NIR"], ["RED", "NIR"], [" RED , NIR "]])
def test_bands(texts: list[str]) -> None:
    assert Options.named("bands", texts, 2) == ("RED", "NIR")


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["dry,open water"], ("dry", "open water")),
        (["dry", "open water"], ("dry", "open water")),
        (["dry water"], ("dry", "water")),
        (["dry land", "open water"], ("dry land", "open water")),
        (["dry land,open water"], ("dry land", "open water")),
        (["2"], ("class 0", "class 1")),
    ],
)
def test_classes(texts: list[str], names: tuple[str, ...]) -> None:
    assert Options.named("classes", texts, 2) == names


def test_a_name_with_spaces_is_one_where_one_is_needed() -> None:
    assert Options.named("bands", ["COASTAL AEROSOL"], 1) == ("COASTAL AEROSOL",)


@pytest.mark.parametrize(
    ("option", "texts", "message"),
    [
        ("bands", ["RED"], r"--bands must be the network's 2, got 1: \['RED'\]"),
        ("bands", ["a,b,c"], "got 3"),
        ("classes", ["3"], "--classes must be the network's 2, got 3"),
        ("classes", [","], "got 0"),
        ("classes", ["a b c"], r"got 3: \['a', 'b', 'c'\]"),
        ("classes", ["a b", "c", "d"], r"got 3: \['a b', 'c', 'd'\] .*--classes 'a b,c d'"),
    ],
)
def test_numbers_that_do_not_fit(option: str, texts: list[str], message: str) -> None:
    with pytest.raises(ContractError, match=message):
        Options.named(option, texts, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mean": ["a"]}, r"--mean must be numbers, got \['a'\]"),
        ({"std": ["nan"]}, "--std must be finite"),
        ({"scale": float("inf")}, "--scale must be finite"),
        ({"nodata_fill": float("nan")}, "--nodata-fill must be finite"),
        ({"task": "magic"}, "--task must be features or reconstruction, got 'magic'"),
        ({"coordinates": ["time,space"]}, r"--coordinates may have time and location"),
    ],
)
def test_refusals(options: dict[str, object], message: str) -> None:
    with pytest.raises(ContractError, match=message):
        Options.parse(**options)


def test_no_coordinates() -> None:
    assert Options.parse(coordinates=["none"]).coordinates == ()
    assert Options.parse(coordinates=["time location"]).coordinates == ("time", "location")
    assert Options.parse().coordinates is None
