"""What the command line shows of a map."""

from typing import Any

import pytest
from rich.console import Console

from vllm_raster_io import MapResult, RasterAnswer
from vllm_raster_io.cli import summary


def shown(**fields: Any) -> str:
    effective = {
        "indices": [0],
        "bands": ["RED"],
        "bands_by": "order",
        "tile_size": 64,
        "overlap": 0,
        "blending": "linear",
        "windows": 1,
        "coordinates": [],
    }
    common = {"data": "", "width": 40, "height": 30, "invalid_pixels": 7, "crs": "EPSG:32633"}
    answer = RasterAnswer.model_validate(
        {**common, "effective": effective, "product": fields["kind"], **fields}
    )
    console = Console(width=80)
    with console.capture() as capture:
        console.print(summary(MapResult(b"", answer)))
    return capture.get()


def test_classes_are_counted() -> None:
    wood = {"id": 0, "name": "wood", "color": "#00a651", "pixels": 1193}
    text = shown(kind="classes", dtype="uint8", nodata=255, classes=[wood])
    assert "wood" in text
    assert "1,193" in text
    assert "valid" not in text


@pytest.mark.parametrize("kind", ["values", "image"])
def test_other_maps_have_no_classes(kind: str) -> None:
    text = shown(kind=kind, dtype="float32", nodata="nan")
    assert "class" not in text
    assert kind in text
    assert "1,193" in text


def test_title_stands_in_one_line() -> None:
    text = shown(kind="values", dtype="float32", nodata="nan")
    assert "40 × 30 pixels, EPSG:32633" in text.splitlines()[0]
