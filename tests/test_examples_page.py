"""What the page of examples says to type works, in the order in which it stands there."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio

from vllm_raster_io import LocalServer
from vllm_raster_io.jobs import Job
from vllm_raster_io.requests import RasterRequest

from .factories import make_raster
from .io_plugin.networks import PixelNetwork
from .io_plugin.scenes import make_contract

pytestmark = [
    pytest.mark.engine,
    pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning"),
]

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "examples.md").read_text()
BLOCKS = re.findall(r"^```(bash|python)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SERVER, DATES, HOST = "127.0.0.1:8000", "127.0.0.1:8003", "127.0.0.1:9000"
TOLD = "127.0.0.1:8001"
"""A server of another checkpoint, which test_readme.py has."""
TOOLS = ("curl", "jq", "gdalinfo", "gdalwarp", "gdal_translate")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        return


class ThreeDates(BaseHTTPRequestHandler):
    """Answers as a server of a checkpoint of three dates, with a made-up network."""

    contract = make_contract(frames=3, coordinates=("time",))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        network = PixelNetwork(self.contract)
        with Job(RasterRequest.parse(body["data"]), self.contract) as job:
            answer = job.answer([network(item) for item in job.items()], None)
        content = json.dumps({"data": answer.model_dump()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        return


def serving(handler: Any) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    yield from serving(partial(Quiet, directory=str(ROOT / "tests" / "data")))


@pytest.fixture(scope="module")
def dates() -> Iterator[str]:
    yield from serving(ThreeDates)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place from which the page's paths lead where they should, and `out` is fresh."""
    place = tmp_path_factory.mktemp("examples")
    (place / "tests").symlink_to(ROOT / "tests")
    (place / "out").mkdir()
    (place / ".venv" / "bin").mkdir(parents=True)
    (place / ".venv" / "bin" / "rio").symlink_to(Path(sys.executable).with_name("rio"))
    for i, name in enumerate(("march", "june", "september")):
        (place / f"{name}.tif").write_bytes(make_raster(seed=i))
    return place


@pytest.fixture(scope="module")
def server(folder: Path, host: str) -> Iterator[LocalServer]:
    """The one that the page's first command starts."""
    command = BLOCKS[0][1].replace("$PWD", str(folder.resolve())).replace(HOST, host)
    words = shlex.split(command.replace("\\\n", " "))
    start = words.index(".venv/bin/vllm")
    environment = dict(one.split("=", 1) for one in words[:start])
    _, serve, checkpoint, *arguments = words[start:]
    assert (serve, arguments[:4]) == ("serve", ["--host", "127.0.0.1", "--port", "8000"])
    # Links are resolved when the server starts: the data are those of the repository.
    environment["VLLM_RASTER_READ_ROOTS"] = str((folder / "tests" / "data").resolve())
    with LocalServer(ROOT / checkpoint, arguments=arguments[4:], environment=environment) as one:
        # The command line asks port 8000 unless told otherwise.
        script = folder / ".venv" / "bin" / "vllm-raster"
        program = Path(sys.executable).with_name("vllm-raster")
        script.write_text(
            f'#!/bin/sh\ncase "$*" in *--url*) exec {program} "$@";; esac\n'
            f'exec {program} "$@" --url {one.url}\n'
        )
        script.chmod(0o755)
        yield one


def title(number: int) -> str:
    return f"{number} {BLOCKS[number][1].splitlines()[0][:40]}"


@pytest.mark.parametrize("number", range(1, len(BLOCKS)), ids=title)
def test_block(number: int, folder: Path, server: LocalServer, host: str, dates: str) -> None:
    language, text = BLOCKS[number]
    if TOLD in text:
        pytest.skip("in test_readme.py, which has that server")
    used = re.findall(rf"\b({'|'.join(TOOLS)})\b", text)
    if missing := [one for one in used if language == "bash" and shutil.which(one) is None]:
        pytest.skip(f"{missing[0]} is not on this machine")
    for theirs, ours in ((SERVER, f"{server.host}:{server.port}"), (DATES, dates), (HOST, host)):
        text = text.replace(theirs, ours)
    command = (
        ["bash", "-e", "-o", "pipefail", "-c"] if language == "bash" else [sys.executable, "-c"]
    )
    done = subprocess.run(
        [*command, text],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert done.returncode == 0, done.stderr + done.stdout
    check = CHECKS.get(number)
    if check is not None:
        assert check in done.stdout


def number_of(words: str) -> int:
    """The only block in which these words stand."""
    (number,) = (i for i, (_, text) in enumerate(BLOCKS) if words in text)
    return number


CHECKS = {
    number_of("jq .data.effective.file_bands"): '"NIR_NARROW"',
    number_of("effective.bands_by"): "indices",
    number_of("resolution: [20, 20]"): '"resolution": [',
    number_of("np.isnan(probabilities[0])"): "(5, 152, 155) 1.0",
    number_of('"out_path": "by_curl.tif"'): "by_curl.tif",
    number_of('out_path="by_python.tif"'): "by_python.tif",
    number_of("result.answer.effective.dates"): "['2023-03-01', '2023-06-15', '2023-09-30']",
    number_of(".data.effective.dates_by"): '"request"',
    number_of("polygons: length"): '"polygons":',
}
"""What a block prints, among other things."""


def pixels(path: Path) -> np.ndarray:
    with rasterio.open(path) as dataset:
        return dataset.read()


def test_examples_of_one_thing_give_one_map(folder: Path, server: LocalServer) -> None:
    """After all of them."""
    out = folder / "out"
    first = pixels(out / "by_name.tif")
    for name in ("by_number", "by_common_name", "by_index"):
        if (out / f"{name}.tif").exists():
            np.testing.assert_array_equal(pixels(out / f"{name}.tif"), first)
    town = pixels(out / "classes.tif")
    for name in ("from_four_files", "from_the_server", "on_the_server", "by_curl", "by_python",
                 "from_a_url", "at_once", "at_night"):  # fmt: skip
        if (out / f"{name}.tif").exists():
            np.testing.assert_array_equal(pixels(out / f"{name}.tif"), town, err_msg=name)
    assert pixels(out / "window.tif").shape[1:] == (80, 100)
    # Its corners are no corners of pixels, and it takes all that it touches.
    assert pixels(out / "bbox.tif").shape[1:] == (81, 101)
    assert len(list(out.glob("*_confidence.tif"))) == 1
    assert pixels(out / "probabilities.tif").shape == (5, 152, 155)
