"""Requests that are wrong, odd, or many at once."""

import base64
import io
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
import rasterio

from vllm_raster_io import LocalServer, MapResult, RasterClient, ServiceError

from ..checkpoints.land_cover_labels import CLASS_NAMES
from ..factories import make_raster
from .conftest import SCENES

pytestmark = [
    pytest.mark.wheels,
    pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning"),
]

# One pixel of each class: blue, green, red and near infrared in counts.
SPECTRA = {
    "dense vegetation": (300, 500, 300, 3500),
    "sparse vegetation or grass": (700, 900, 1200, 2500),
    "bare ground": (900, 1200, 1700, 2100),
    "built or bright": (2200, 2400, 2500, 2700),
    "dark": (300, 300, 250, 200),
}
SIZES = [(64, 64), (64, 96), (96, 64), (17, 130)]


def constant_scene(class_name: str, size: tuple[int, int]) -> bytes:
    spectrum = np.array(SPECTRA[class_name], dtype=np.uint16)
    return make_raster(values=np.broadcast_to(spectrum[:, None, None], (4, *size)))


def ids_of(result: MapResult) -> np.ndarray:
    with rasterio.open(io.BytesIO(result.data)) as dataset:
        return dataset.read(1)


def town() -> str:
    return base64.b64encode(SCENES["town"].read_bytes()).decode()


def post(server: LocalServer, data: Any, **headers: str) -> httpx.Response:
    return httpx.post(f"{server.url}/pooling", json={"data": data}, headers=headers, timeout=120)


def test_each_of_many_gets_its_own(client: RasterClient) -> None:
    names = list(SPECTRA)
    wanted = [(names[i % len(names)], SIZES[i % len(SIZES)]) for i in range(20)]
    with ThreadPoolExecutor(20) as pool:
        results = list(pool.map(lambda one: client.map(constant_scene(*one)), wanted))
    for (name, size), result in zip(wanted, results, strict=True):
        ids = ids_of(result)
        assert ids.shape == size
        assert np.bincount(ids.ravel()).argmax() == CLASS_NAMES.index(name)


def test_alone_and_among_others(client: RasterClient) -> None:
    alone = {name: ids_of(client.map(path)) for name, path in SCENES.items()}
    others = [constant_scene(name, size) for name, size in zip(SPECTRA, SIZES * 2, strict=False)]
    for name, path in SCENES.items():
        with ThreadPoolExecutor(9) as pool:
            crowd = [pool.submit(client.map, one) for one in (others * 2)[:8]]
            among = ids_of(pool.submit(client.map, path).result())
            assert all(one.result().data for one in crowd)
        differing = np.count_nonzero(among != alone[name])
        assert differing <= among.size / 10_000, f"{differing} pixels of {name} differ"


def test_one_request_id_twice_at_once(client: RasterClient) -> None:
    def ask(name: str) -> MapResult:
        return client.map(constant_scene(name, (64, 64)), request_id="../same")

    with ThreadPoolExecutor(8) as pool:
        names = ["dark", "dense vegetation"] * 4
        for name, result in zip(names, pool.map(ask, names), strict=True):
            assert np.bincount(ids_of(result).ravel()).argmax() == CLASS_NAMES.index(name)


@pytest.mark.parametrize("size", [(1, 1), (1, 300), (5, 15), (16, 17), (63, 129), (200, 3)])
def test_any_size(client: RasterClient, size: tuple[int, int]) -> None:
    assert ids_of(client.map(constant_scene("dark", size))).shape == size


@pytest.mark.parametrize("size", [8, 400])
def test_short_and_long_bodies_are_read_alike(client: RasterClient, size: int) -> None:
    # A file of more than 64 kB is decoded as it arrives, a shorter one with the whole body.
    scene = make_raster(height=size, width=size)
    assert (len(scene) > 2**16) == (size == 400)
    assert ids_of(client.map(scene)).shape == (size, size)


def bad_requests() -> dict[str, Any]:
    junk = base64.b64encode(bytes(range(256)) * 1000).decode()
    text = base64.b64encode(b"not a raster" * 10).decode()
    return {
        "null": None,
        "list": [1, 2],
        "string": "town.tif",
        "empty": {},
        "data null": {"data": None},
        "data list": {"data": ["AAAA"]},
        "data empty": {"data": ""},
        "not base64": {"data": "!!!!"},
        "long and not base64": {"data": "!" * 200_000},
        "junk": {"data": junk},
        "text": {"data": text},
        "truncated": {"data": town()[: 4 * 20_000]},
        "three bands": {"data": base64.b64encode(make_raster(bands=3)).decode()},
        "misspelt": {"data": town(), "indexes": [0, 1, 2, 3]},
        "too few indices": {"data": town(), "indices": [0]},
        "indices beyond": {"data": town(), "indices": [0, 1, 2, 4]},
        "negative indices": {"data": town(), "indices": [0, 1, 2, -1]},
        "complex": {"data": base64.b64encode(make_raster(dtype="complex64", values=1)).decode()},
        "url": {"data": "https://example.org/scene.tif", "data_format": "url"},
        "path": {"data": "/etc/passwd", "data_format": "path"},
        "path out": {"data": town(), "out_data_format": "path"},
    }


@pytest.mark.parametrize("kind", bad_requests())
def test_bad_requests_are_the_clients(server: LocalServer, kind: str) -> None:
    response = post(server, bad_requests()[kind])
    assert response.status_code == 400, response.text[:500]
    message = response.json()["error"]["message"]
    assert 10 < len(message) < 1000
    assert "Traceback" not in message


def test_refusals_say_why(server: LocalServer) -> None:
    def reason(kind: str) -> str:
        return str(post(server, bad_requests()[kind]).json()["error"]["message"])

    assert "b64_json" in reason("path")
    assert "/etc" not in reason("path")
    assert "URL" in reason("url")
    assert "`indexes` is not a field" in reason("misspelt")
    assert "4 bands (BLUE, GREEN, RED, NIR)" in reason("three bands")


def test_serves_on_after_bad_requests(server: LocalServer, client: RasterClient) -> None:
    for data in bad_requests().values():
        post(server, data)
    assert client.healthy()
    assert ids_of(client.map(constant_scene("dark", (40, 40)))).shape == (40, 40)


def test_a_body_that_is_no_json(server: LocalServer) -> None:
    response = httpx.post(
        f"{server.url}/pooling",
        content=b'{"data": {"data": "' + b"A" * 200_000,
        headers={"content-type": "application/json"},
        timeout=60,
    )
    assert response.status_code in (400, 422)


TEXTS = {
    "text": {"input": "water"},
    "image token": {"input": "<image><row>"},
    "tokens": {"input": [4, 5]},
    "another task": {"input": "water", "task": "plugin"},
    "chat": {"messages": [{"role": "user", "content": "water"}]},
}


def test_the_route_of_another_service(server: LocalServer, client: RasterClient) -> None:
    """It answers as the usual one, whatever else reads and writes the body before."""
    content = SCENES["town"].read_bytes()
    body = {"data": {"data": base64.b64encode(content).decode(), "format": "png"}}
    answers = [
        httpx.post(server.url + route, json=body, timeout=60)
        for route in ("/invocations", "/pooling")
    ]
    assert [one.status_code for one in answers] == [200, 200]
    first, second = (one.json()["data"]["data"] for one in answers)
    assert first == second
    body["data"]["formt"] = "png"
    refused = httpx.post(f"{server.url}/invocations", json=body, timeout=60)
    assert refused.status_code == 400
    assert "formt" in refused.text


@pytest.mark.parametrize("route", ["/pooling", "/invocations"])
@pytest.mark.parametrize("kind", TEXTS)
def test_text_is_refused(server: LocalServer, kind: str, route: str) -> None:
    response = httpx.post(server.url + route, json=TEXTS[kind], timeout=60)
    assert response.status_code == 400
    assert "maps rasters, not text" in response.text


@pytest.mark.parametrize("route", ["/pooling", "/invocations", "/tokenize"])
def test_no_url_of_a_message_is_fetched(server: LocalServer, route: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.5)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/scene.png"
        part = {"type": "image_url", "image_url": {"url": url}}
        body = {"messages": [{"role": "user", "content": [part]}]}
        assert httpx.post(server.url + route, json=body, timeout=60).status_code == 400
        with pytest.raises(TimeoutError):
            listener.accept()


def test_client_says_what_the_server_said(client: RasterClient) -> None:
    with pytest.raises(ServiceError, match="400: The data must be a GeoTIFF"):
        client.map(b"no raster at all")


def test_clients_of_other_servers_work_unchanged(server: LocalServer) -> None:
    body = {
        "data": town(),
        "data_format": "b64_json",
        "image_format": "tiff",
        "out_data_format": "b64_json",
        "indices": [0, 1, 2, 3],
    }
    response = httpx.post(f"{server.url}/pooling", json={"data": body, "priority": 0}, timeout=120)
    assert response.status_code == 200, response.text[:500]
    answer = response.json()["data"]
    assert answer["data_format"] == "b64_json"
    with rasterio.open(io.BytesIO(base64.b64decode(answer["data"]))) as dataset:
        assert dataset.shape == (152, 155)
