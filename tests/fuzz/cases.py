"""Cases: what a client may send, each made from a seed and its number alone."""

import base64
import random
from dataclasses import dataclass
from typing import Any

from vllm_raster_io.requests import RasterRequest

from .bombs import bombs, heavy_requests
from .mutations import spoiled
from .seeds import seeds

_TEXTS = ("", "x", "\0", "../../etc/passwd", "/etc/passwd", "é" * 100, "file:///etc/passwd",
          "https://example.org/a.tif", "/vsicurl?url=http://127.0.0.1/", "2024-06-01", "nan",
          "none", "EPSG:4326", "EPSG:32632", "EPSG:9999999", "BLUE", "B02", "map.tif", "null",
          "\ud800", "2024-02-30", "9999-12-31T23:59:59+14:00", "<image>", "-1",
          "1e999")  # fmt: skip
_NUMBERS = (0, 1, -1, 2, 3, 4, 16, 32, 64, 100, 255, 256, 65535, 65536, 2**31, 2**63, 2**64, 10**30,
            0.0, 0.5, -0.5, 1.5, 10.0, 30.0, 1e-9, 1e-300, 1e300, float("nan"), float("inf"),
            float("-inf"), True, False)  # fmt: skip

DATES, ONE_BAND = 2, 3
"""Numbers of the checkpoints that take one band: at three dates, and at one."""


@dataclass(frozen=True)
class Case:
    """One request.

    Attributes:
        kind: How it was made.
        request: The `data` of the body.
        checkpoint: Number of the checkpoint that it is for.
    """

    kind: str
    request: Any
    checkpoint: int = 0


def case(seed: int, number: int) -> Case:
    """The case of a number."""
    chance = random.Random(f"{seed} {number}")
    kind, request = _made(chance)
    checkpoint = chance.choice((0, 1, DATES, *[ONE_BAND] * 6))
    if kind.startswith("several") and chance.random() < 0.8:
        checkpoint = DATES
    # The first band is one that every file has, so that pixels are read.
    if checkpoint in (ONE_BAND, DATES) and isinstance(request, dict) and chance.random() < 0.9:
        request = {"indices": [0], **request}
    return Case(kind, request, checkpoint)


def _made(chance: random.Random) -> tuple[str, Any]:
    share = chance.random()
    if share < 0.02:
        name = chance.choice(list(bombs()))
        return (f"bomb: {name}", {"data": _text(bombs()[name])})
    if share < 0.025:
        name = chance.choice(list(heavy_requests()))
        return (f"heavy: {name}", heavy_requests()[name])
    name = chance.choice(list(seeds()))
    content = seeds()[name]
    if share < 0.7:
        return (f"file: {name}", {"data": _text(spoiled(content, chance))})
    if share < 0.75:
        return (f"several files: {name}", {"data": _several(content, chance)})
    if share < 0.8:
        return (f"base64: {name}", {"data": _spoiled_text(_text(content), chance)})
    if share < 0.85:
        content = spoiled(content, chance)
        return (f"file and request: {name}", _asked({"data": _text(content)}, chance))
    request = _asked({"data": _text(content)}, chance)
    return (f"request: {name}", request if chance.random() < 0.97 else anything(chance))


def anything(chance: random.Random, depth: int = 0) -> Any:
    """A value of json, or nearly."""
    kind = chance.randrange(7 if depth < 3 else 4)
    if kind == 0:
        return None
    if kind == 1:
        return chance.choice(_NUMBERS)
    if kind in (2, 3):
        return chance.choice((*_TEXTS, *_words()))
    if kind == 4:
        names = (*RasterRequest.model_fields, "x", "")
        return {
            chance.choice(names): anything(chance, depth + 1) for _ in range(chance.randrange(4))
        }
    if kind == 5:  # what many fields take
        return [chance.choice(_NUMBERS) for _ in range(chance.choice((1, 2, 3, 4)))]
    return [anything(chance, depth + 1) for _ in range(chance.randrange(5))]


def _asked(request: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """A request with some fields, of which most get a value that may be."""
    names = [one for one in RasterRequest.model_fields if one != "data"]
    for _ in range(chance.choice((1, 1, 2, 3, 5))):
        name = chance.choice(names)
        likely = _likely(name)
        request[name] = chance.choice(likely) if chance.random() < 0.7 else anything(chance)
    if chance.random() < 0.1:
        request[chance.choice(("x", "Data", "", "data_formats", "é"))] = anything(chance)
    return request


def _likely(name: str) -> list[Any]:
    """Values that a field may take."""
    words = _words_of(RasterRequest.model_json_schema()["properties"][name])
    known: dict[str, list[Any]] = {
        "indices": [[0, 1, 2, 3], [0], [2, 1, 0], [0, 0, 0, 0], [3, 2, 1, 0]],
        "bands": [["NIR", "RED", "GREEN", "BLUE"], [1, 2, 3, 4], ["B02", 2, 3, 4], [1]],
        "dates": ["2024-06-01", ["2024-06-01"] * 3],
        "location": [[48.0, 11.0], [90, 180]],
        "window": [[0, 0, 10, 10], [5, 5, 1, 1], [0, 0, 48, 32], [40, 20, 8, 12]],
        "bbox": [[600_010, 5_299_800, 600_200, 5_299_900], [10.3, 47.89, 10.31, 47.9]],
        "bbox_crs": ["EPSG:4326", "EPSG:32632"],
        "out_path": ["map.tif"],
        "prompt": ["water"],
    }
    numbers: list[Any] = [0.0001, 1, 0, 10, 20.5, 64, 128, 512, [1, 2], [0.5, 0.5, 2, 1], True]
    return known.get(name, []) or words or numbers


def _words() -> list[str]:
    return _words_of(RasterRequest.model_json_schema())


def _words_of(schema: Any) -> list[str]:
    """All texts that are the only ones a field takes."""
    if isinstance(schema, dict):
        here = [*schema.get("enum", []), *([schema["const"]] if "const" in schema else [])]
        return [*map(str, here), *[one for value in schema.values() for one in _words_of(value)]]
    return [one for part in schema for one in _words_of(part)] if isinstance(schema, list) else []


def _several(content: bytes, chance: random.Random) -> list[Any]:
    files = [
        _text(chance.choice((content, content, spoiled(content, chance), other)))
        for other in chance.choices(list(seeds().values()), k=chance.choice((1, 2, 3, 3, 4)))
    ]
    return files if chance.random() < 0.9 else [*files, chance.choice((None, 7, "", []))]


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _spoiled_text(text: str, chance: random.Random) -> str:
    at = chance.randrange(len(text))
    return chance.choice(
        (
            text[:at],
            text[:at] + chance.choice("\0 \n\r=-_!é\ud800\U0001f600") + text[at:],
            text[at:],
            text + "=" * chance.randrange(5),
            text.replace("A", "-"),
            f"data:image/tiff;base64,{text}",
            f"data:{chance.choice(_TEXTS)},{text}",
            text.encode("utf-16-le").decode("latin-1"),
            text * 2,
            "\n".join(text[i : i + 76] for i in range(0, len(text), 76)),
        )
    )
