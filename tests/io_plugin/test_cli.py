"""What the command line shows of a map."""

import base64
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from vllm_raster_io import MapResult, RasterAnswer
from vllm_raster_io.cli import app, summary

from ..factories import make_raster

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

EFFECTIVE = {
    "indices": [0],
    "bands": ["RED"],
    "bands_by": "order",
    "tile_size": 64,
    "overlap": 0,
    "blending": "linear",
    "windows": 1,
    "coordinates": [],
}


def shown(**fields: Any) -> str:
    common = {"data": "", "width": 40, "height": 30, "invalid_pixels": 7, "crs": "EPSG:32633"}
    answer = RasterAnswer.model_validate(
        {**common, "effective": EFFECTIVE, "product": fields["kind"], **fields}
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


class Server(BaseHTTPRequestHandler):
    """Answers each request with the same map of values, and a note."""

    asked: dict[str, Any]

    def do_POST(self) -> None:
        type(self).asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        values = np.full((30, 40), 1234.5, dtype=np.float32)
        answer = {
            "data": base64.b64encode(make_raster(values=values, dtype="float32")).decode(),
            "kind": "values",
            "product": "values",
            "width": 40,
            "height": 30,
            "dtype": "float32",
            "nodata": "nan",
            "invalid_pixels": 0,
            "crs": None,
            "effective": {**EFFECTIVE, "notes": ["It does not know '[/red] snow'"]},
        }
        body = json.dumps({"data": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Server) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def run(url: str, folder: Path, *arguments: str) -> Any:
    scene = folder / "scene.tif"
    scene.write_bytes(make_raster(bands=1, height=30, width=40))
    command = ["map", str(scene), str(folder / "map.tif"), "--url", url, *arguments]
    return CliRunner().invoke(app, command, env={"COLUMNS": "400"})


def test_values_have_a_preview(url: str, tmp_path: Path) -> None:
    done = run(url, tmp_path, "--preview", str(tmp_path / "map.png"), "--prompt", "")
    assert done.exit_code == 0, done.output
    assert Server.asked["data"]["prompt"] == ""
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    # Lines are as long as the terminal; a folder's name may be longer.
    told = done.output.replace("\n", "").replace(" ", "")
    last = ["It does not know '[/red] snow'"]
    last += [f"Wrote {tmp_path / one}" for one in ("map.tif", "map.png")]
    assert told.endswith("".join(last).replace(" ", ""))


def test_what_is_written_is_told_before_a_preview_fails(url: str, tmp_path: Path) -> None:
    (tmp_path / "map.png").mkdir()
    done = run(url, tmp_path, "--preview", str(tmp_path / "map.png"))
    assert done.exit_code == 1
    assert f"Wrote {tmp_path / 'map.tif'}" in done.output.replace("\n", "")
    assert "Is a directory" in done.output
    assert (tmp_path / "map.tif").exists()
