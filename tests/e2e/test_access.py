"""A server that is set up to read, write and fetch files, and one that is set up wrongly."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import rasterio

from vllm_raster_io import LocalServer, ServiceError

from ..factories import make_raster
from .conftest import CHECKPOINT, SCENES
from .hanging_up import HEAD

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

SECONDS = 12
TOKEN = "the-secret-token"


class Host(SimpleHTTPRequestHandler):
    """Gives out files of a folder; one of them never ends."""

    def do_GET(self) -> None:
        if not self.path.startswith("/slow"):
            super().do_GET()
            return
        self.send_response(200)
        self.end_headers()
        with suppress(ConnectionError):
            for _ in range(200):
                self.wfile.write(b"x")
                time.sleep(0.2)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scenes that the server may read."""
    folder = tmp_path_factory.mktemp("scenes")
    for name, path in SCENES.items():
        (folder / f"{name}.tif").write_bytes(path.read_bytes())
    large = make_raster(values=np.full((4, 8000, 8000), 1000, np.uint16), compress="deflate")
    (folder / "large.tif").write_bytes(large)
    (folder / "passwd.tif").symlink_to("/etc/passwd")
    return folder


@pytest.fixture(scope="module")
def maps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server may write."""
    return tmp_path_factory.mktemp("maps")


@pytest.fixture(scope="module")
def host(folder: Path) -> Iterator[str]:
    handler = partial(Host, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def open_server(folder: Path, maps: Path, host: str) -> Iterator[LocalServer]:
    config = maps.parent / "raster.toml"
    config.write_text(f'read_roots = ["{folder}"]\nmax_seconds = 3\nallow_http = true\n')
    environment = {
        "VLLM_RASTER_CONFIG": str(config),
        "VLLM_RASTER_WRITE_ROOTS": str(maps),
        "VLLM_RASTER_ALLOWED_PRIVATE_HOSTS": host,
        "VLLM_RASTER_MAX_SECONDS": str(SECONDS),
    }
    with LocalServer(CHECKPOINT, environment=environment) as running:
        yield running


def post(server: LocalServer, **data: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/pooling", json={"data": data}, timeout=120)


def answer(server: LocalServer, **data: Any) -> dict[str, Any]:
    response = post(server, **data)
    assert response.status_code == 200, response.text[:500]
    return dict(response.json()["data"])


def reason(server: LocalServer, **data: Any) -> str:
    response = post(server, **data)
    assert response.status_code == 400, response.text[:500]
    return str(response.json()["error"]["message"])


def test_from_a_path_and_from_a_url(open_server: LocalServer, folder: Path, host: str) -> None:
    named = answer(open_server, data=f"{folder}/town.tif", data_format="path")
    fetched = answer(open_server, data=f"http://{host}/town.tif?{TOKEN}", data_format="url")
    assert named["data"] == fetched["data"]
    assert TOKEN not in str(fetched)


def test_to_a_path(open_server: LocalServer, maps: Path) -> None:
    body = {"data": "town.tif", "data_format": "path", "out_data_format": "path"}
    for out_path, written in (("town.tif", maps / "town.tif"), (f"{maps}/a.tif", maps / "a.tif")):
        told = answer(open_server, **body, out_path=out_path)
        assert (told["data_format"], told["data"]) == ("path", out_path)
        with rasterio.open(written) as dataset:
            assert dataset.shape == (152, 155)
    told = answer(open_server, **body, out_path=str(maps))
    assert Path(told["data"]).parent == maps
    assert Path(told["data"]).exists()
    assert "is there already" in reason(open_server, **body, out_path="town.tif")
    answer(open_server, **body, out_path="town.tif", overwrite=True)
    assert not list(maps.glob(".*"))


def test_refusals(open_server: LocalServer, folder: Path, host: str) -> None:
    paths = ["/etc/passwd", "/none", "passwd.tif", "none.tif", f"{folder}/../x", "a\0", ""]
    assert len({reason(open_server, data=one, data_format="path") for one in paths}) == 1
    for url in (
        f"{open_server.url}/health",
        "http://169.254.169.254/latest/meta-data/",
        "https://example.org/a.tif",
        f"http://me:{TOKEN}@{host}/town.tif",
        "file:///etc/passwd",
    ):
        message = reason(open_server, data=url, data_format="url")
        assert message.startswith("`data`: the URL ")
        assert TOKEN not in message
    assert "status 404" in reason(open_server, data=f"http://{host}/none", data_format="url")
    log = open_server.log.read_text()
    assert TOKEN not in log


@pytest.mark.alone
def test_slow_requests_end(open_server: LocalServer, host: str) -> None:
    """While a host is slow, and while the engine works; both leave the server as it was."""
    for data in (
        {"data": f"http://{host}/slow", "data_format": "url"},
        {"data": "large.tif", "data_format": "path"},
    ):
        started = time.monotonic()
        assert f"longer than the {SECONDS} s" in reason(open_server, **data)
        assert time.monotonic() - started < SECONDS + 2
        started = time.monotonic()
        answer(open_server, data="town.tif", data_format="path")
        assert time.monotonic() - started < 5


@pytest.mark.alone
def test_a_body_that_does_not_come_ends_the_request(open_server: LocalServer) -> None:
    with socket.create_connection((open_server.host, open_server.port), 60) as connection:
        head = HEAD.format(host="x", length=100_000).encode()
        connection.sendall(head + b'{"data": {"data": "')
        started = time.monotonic()
        answer = connection.recv(65536).decode()
        while "\r\n\r\n{" not in answer:
            answer += connection.recv(65536).decode()
        assert time.monotonic() - started < SECONDS + 2
    assert answer.startswith("HTTP/1.1 400")
    assert f"did not come within the {SECONDS} s" in answer


@pytest.mark.alone
def test_health_while_a_host_is_slow(open_server: LocalServer, host: str) -> None:
    url = f"http://{host}/slow"
    threads = [
        threading.Thread(
            target=reason, args=(open_server,), kwargs={"data": url, "data_format": "url"}
        )
        for _ in range(12)
    ]
    for thread in threads:
        thread.start()
    waits = []
    with httpx.Client(timeout=10) as client:
        while any(one.is_alive() for one in threads):
            started = time.monotonic()
            assert client.get(f"{open_server.url}/health").status_code == 200
            waits.append(time.monotonic() - started)
            time.sleep(0.05)
    assert max(waits) < 0.25  # seconds; the host takes more than ten
    answer(open_server, data="town.tif", data_format="path")


def test_wrong_settings_stop_the_start() -> None:
    with pytest.raises(ServiceError) as caught:
        LocalServer(CHECKPOINT, environment={"VLLM_RASTER_READ_ROOTS": "/none"}).start()
    assert "VLLM_RASTER_READ_ROOTS='/none': should be a folder that exists" in str(caught.value)
