"""The options of the command line's `map`, beside the files."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

Number = TypeVar("Number", int, float)

_ENDINGS: dict[str, str | None] = {
    **dict.fromkeys((".tif", ".tiff")),
    **{".png": "png", ".webp": "webp", ".jpg": "jpeg", ".jpeg": "jpeg", ".npy": "npy"},
}


def _listed(help_text: str, panel: str) -> Any:
    return typer.Option(help=help_text, rich_help_panel=panel)


_INPUT, _PART, _WINDOWS, _OUTPUT = "The scene", "A part of it", "How it is mapped", "The map"

Bands = Annotated[
    str | None,
    _listed("Bands of the file in the checkpoint's order, by name or from 1: B02,B03,4", _INPUT),
]
Indices = Annotated[
    str | None, _listed("The same by number, but from 0, as TerraTorch has them: 2,1,0,3", _INPUT)
]
Scale = Annotated[
    str | None, _listed("What one count stands for, one number or one a band: 0.0001", _INPUT)
]
Offset = Annotated[str | None, _listed("Added after the scale, likewise.", _INPUT)]
Nodata = Annotated[
    str | None, _listed("Value of invalid pixels in place of the file's; or none.", _INPUT)
]
Dates = Annotated[
    list[str] | None,
    _listed(
        "When it was taken, as 2024-02-29; one for each date of the checkpoint. Without it the "
        "server reads the files' tags.",
        _INPUT,
    ),
]
Location = Annotated[
    str | None,
    _listed("Latitude,longitude in degrees, where the file does not tell: -23.5,14", _INPUT),
]
Prompt = Annotated[
    str | None, _listed("What to map, where the checkpoint has a language model.", _INPUT)
]
PixelWindow = Annotated[str | None, _listed("First column, first row, columns, rows.", _PART)]
Bbox = Annotated[str | None, _listed("West,south,east,north.", _PART)]
BboxCrs = Annotated[
    str | None, _listed("Reference system of --bbox, if not the scene's: EPSG:4326", _PART)
]
Resolution = Annotated[
    str | None,
    _listed("Size of the pixels that the network sees, in the scene's unit; or x,y.", _WINDOWS),
]
TileSize = Annotated[int | None, _listed("Largest side of a window in pixels.", _WINDOWS)]
Overlap = Annotated[int | None, _listed("Least overlap of windows in pixels.", _WINDOWS)]
Blending = Annotated[str | None, _listed("none, linear, cosine or gaussian.", _WINDOWS)]
Augmenting = Annotated[
    str | None, _listed("flips or flips_rotations: the mean of 4 or 8 views.", _WINDOWS)
]
Priority = Annotated[
    int | None, _listed("Smaller comes first, if the server has priorities.", _WINDOWS)
]
Model = Annotated[str | None, _listed("Name of the model or of a LoRA adapter of it.", _WINDOWS)]
Kind = Annotated[
    str | None, _listed("classes, probabilities or logits; values; or image.", _OUTPUT)
]
DataType = Annotated[
    str | None, _listed("float32 or uint8, of probabilities and confidence.", _OUTPUT)
]
ConfidenceFile = Annotated[
    str | None,
    _listed(
        "File to write: the probability of each pixel's class. server: where the map is there.",
        _OUTPUT,
    ),
]
Overwrite = Annotated[
    bool, _listed("Replace a file that is there already, on the server.", _OUTPUT)
]
FileFormat = Annotated[
    str | None,
    _listed("geotiff, cog, png, webp, jpeg or npy; by default as the file's name ends.", _OUTPUT),
]
Compressing = Annotated[str | None, _listed("none, deflate, lzw or zstd.", _OUTPUT)]
Quality = Annotated[int | None, _listed("From 1 to 100, of jpeg and webp.", _OUTPUT)]


def format_of(out: str) -> str | None:
    """The format that a file's name asks for; None for the server's own, if it asks for none.

    Raises:
        BadParameter: It asks for one that no map is written in.
    """
    ending = "" if out.endswith("/") else Path(out).suffix.lower()
    if ending and ending not in _ENDINGS:
        raise typer.BadParameter(
            f"No map is written as {ending}: let the file's name end in one of "
            f"{', '.join(_ENDINGS)}, or say which --format it has"
        )
    return _ENDINGS.get(ending)


def numbers(text: str | None, kind: Callable[[str], Number]) -> list[Number] | None:
    """The numbers of a text with commas.

    Raises:
        BadParameter: It is none.
    """
    if text is None:
        return None
    try:
        return [kind(one) for one in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"must be numbers and commas, got {text!r}") from None


def one_or_more(text: str | None) -> float | list[float] | None:
    """One number, or several."""
    found = numbers(text, float)
    return found[0] if found is not None and len(found) == 1 else found


def names_or_numbers(text: str | None) -> list[str | int] | None:
    """Names, and what is a number as such."""
    if text is None:
        return None
    parts = [one.strip() for one in text.split(",")]
    return [int(one) if one.isdecimal() else one for one in parts]


def nodata_of(text: str | None) -> Any:
    """A number, or a word for the server to judge."""
    if text is None:
        return None
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        return value if value == value else "nan"
    return text
