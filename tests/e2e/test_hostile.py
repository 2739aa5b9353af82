"""Files and requests that mean harm: 400, with a reason, and the server goes on."""

import base64
import io
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
import rasterio
from PIL import Image

from vllm_raster_io import LocalServer, RasterClient

from ..checkpoints.land_cover_labels import CLASS_NAMES
from ..factories import make_raster
from ..fuzz.bombs import bombs
from ..fuzz.server import send_cases
from ..io_plugin import tiff
from .conftest import SCENES
from .test_requests import constant_scene

SECONDS = 10
"""That any refusal may take, on a busy machine."""

VRT = b"""<VRTDataset rasterXSize="10" rasterYSize="10"><VRTRasterBand dataType="Byte" band="1">
<SimpleSource><SourceFilename>/etc/hostname</SourceFilename></SimpleSource></VRTRasterBand>
</VRTDataset>"""
MRF = b"<MRF_META><Raster><Size x='10' y='10'/><DataFile>/etc/passwd</DataFile></Raster></MRF_META>"
GDAL_WMS = (
    b"<GDAL_WMS><Service name='TMS'><ServerUrl>http://127.0.0.1/</ServerUrl></Service></GDAL_WMS>"
)


def cut_off_png() -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (300, 300, 4), np.uint8)
    Image.fromarray(pixels).save(buffer, "png")
    return buffer.getvalue()[:-10_000]


def sparse() -> bytes:
    """300,000 pixels a side, in a file of a few MB."""
    return tiff.one_tile(300_000, 300_000, 256, bits=16, bands=4) + bytes(4_000_000)


# As it stands in a request, and what the answer must speak of.
KINDS: dict[str, tuple[Any, str]] = {
    "VRT": (VRT, "must be a GeoTIFF, PNG"),
    "MRF": (MRF, "must be a GeoTIFF, PNG"),
    "WMS": (GDAL_WMS, "must be a GeoTIFF, PNG"),
    "vsicurl": (b"/vsicurl?url=http://127.0.0.1/&x=a.tif", "must be a GeoTIFF, PNG"),
    "text": (b"This is no raster.", "must be a GeoTIFF, PNG"),
    "empty": (b"", "is empty"),
    "cut off PNG": (cut_off_png(), "the file is damaged"),
    "cut off TIFF": (make_raster(height=300, width=300)[:-5000], "the file is damaged"),
    "TIFF that ends in its head": (make_raster()[:20], "cannot be opened"),
    "million pixels a side": (bombs()["1000000 pixels a side"], "1000000000000 pixels"),
    "PNG of one colour": (bombs()["PNG 14000"], "bands"),
    "PNG with a long text": (bombs()["PNG text"], "metadata bytes"),
    "sparse": (sparse(), "90000000000 pixels"),
    "one large tile": (bombs()["one large tile"], "block bytes"),
    "many directories": (bombs()["many directories"], "directories"),
    "many bands": (bombs()["many bands"], "bands"),
    "deflated zeros": (bombs()["deflate"], "bands"),
    "number": (7, "string in base64"),
    "object": ({"a": 1}, "string in base64"),
    "no file": ([], "string in base64"),
    "null": (None, "string in base64"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_refused_at_once_and_with_a_reason(server: LocalServer, kind: str) -> None:
    started = time.monotonic()
    content, reason = KINDS[kind]
    data = base64.b64encode(content).decode() if isinstance(content, bytes) else content
    asked = {"data": data, "indices": [0, 1, 2, 3]}
    response = httpx.post(f"{server.url}/pooling", json={"data": asked}, timeout=120)
    assert response.status_code == 400, response.text[:500]
    message = response.json()["error"]["message"]
    assert reason in message
    assert "/etc" not in message
    assert time.monotonic() - started < SECONDS


OPTIONS: dict[str, tuple[Any, str]] = {
    "tile_size": (4096, "at most"),
    "overlap": (100_000, "less than the tile"),
    "bands": (["NO", "SUCH", "BANDS", "HERE"], "NO"),
    "window": ([0, 0, 10_000, 10_000], "10000"),
    "resolution": (1e-9, "resolution"),
    "format": ("vrt", "geotiff"),
    "priority": (1, "priority"),
    "prompt": ("water", "no language model"),
    "dates": ("2024-01-01", "not told the time"),
    "image_format": ("bmp", "tiff"),
    "compression": ("zip", "deflate"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_that_cannot_be(server: LocalServer, name: str) -> None:
    value, reason = OPTIONS[name]
    data = base64.b64encode(SCENES["town"].read_bytes()).decode()
    response = httpx.post(
        f"{server.url}/pooling", json={"data": {"data": data, name: value}}, timeout=120
    )
    assert response.status_code == 400, response.text[:500]
    assert reason in response.json()["error"]["message"]
    assert name in response.json()["error"]["message"]


IDS = ("same", "../../same", "x" * 10_000, "é — ß", "%00", '"; DROP', "{}")


@pytest.mark.parametrize("name", IDS, ids=lambda one: one[:10])
def test_one_id_twice_at_once(client: RasterClient, server: LocalServer, name: str) -> None:
    def ask(kind: str) -> tuple[np.ndarray, str]:
        body = {"data": {"data": base64.b64encode(constant_scene(kind, (64, 90))).decode()}}
        headers = [(b"x-request-id", name.encode())]
        response = httpx.post(f"{server.url}/pooling", json=body, headers=headers, timeout=120)
        assert response.status_code == 200, response.text[:500]
        data = response.json()["data"]
        return base64.b64decode(data["data"]), data["request_id"]

    kinds = ["dark", "dense vegetation", "bare ground"] * 4
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(ask, kinds))
    for kind, (content, told) in zip(kinds, answers, strict=True):
        found = ids_of_content(content)
        assert np.bincount(found.ravel()).argmax() == CLASS_NAMES.index(kind)
        # HTTP's own letters are those of Latin 1.
        assert told.endswith(name.encode().decode("latin-1"))
    assert client.healthy()


def ids_of_content(content: bytes) -> np.ndarray:
    with rasterio.open(io.BytesIO(content)) as dataset:
        return dataset.read(1)


BODIES = {
    "not utf-8": b'{"data": {"data": "\xff\xfe"}}',
    "deep": b"[" * 100_000,
    "deep objects": b'{"data":' * 50_000,
    "long number": b'{"data": ' + b"9" * 10_000 + b"}",
    "half a character": b'{"data": {"data": "\\ud800"}}',
    "a key of half a character": b'{"data": {"data": "AAAA", "\\ud800": 1}}',
    "not a number": b'{"data": {"data": NaN}}',
    "no json": b"data=AAAA",
    "nothing": b"",
    "null": b"null",
    "long without a file": b'{"data": {"x": ["' + b'A", "' * 4_000_000 + b'"]}}',
}


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("route", ["/pooling", "/invocations"])
def test_bodies_that_are_none(server: LocalServer, route: str, kind: str) -> None:
    headers = {"content-type": "application/json"}
    response = httpx.post(server.url + route, content=BODIES[kind], headers=headers, timeout=120)
    assert response.status_code == 400, response.text[:500]
    assert 10 < len(response.json()["error"]["message"]) < 2500


def test_some_fuzz(server: LocalServer, client: RasterClient) -> None:
    """More of it does `make fuzz`."""
    before = client.map(SCENES["town"]).data
    answers = send_cases(server.url, seed=5, count=60)
    assert not answers.faults
    assert client.map(SCENES["town"]).data == before
