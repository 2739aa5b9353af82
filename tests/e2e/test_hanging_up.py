"""A client hangs up, and its work leaves the queue."""

import base64
import time
from collections.abc import Iterator

import httpx
import numpy as np
import pytest

from vllm_raster_io import LocalServer

from ..factories import make_raster
from .conftest import CHECKPOINT, SCENES
from .hanging_up import body_of, hang_up
from .inside import SERVED, queued

pytestmark = pytest.mark.alone
SLOWER = 2.0
"""Seconds by which the next request may be slower than on an idle server."""


def scene(side: int) -> bytes:
    """A body with a scene of four equal bands, which takes little to send."""
    values = np.full((4, side, side), 1000, np.uint16)
    content = make_raster(values=values, compress="deflate", tiled=True)
    return body_of(base64.b64encode(content).decode())


@pytest.fixture(scope="module")
def telling_server() -> Iterator[LocalServer]:
    with LocalServer(CHECKPOINT, **SERVED) as running:
        yield running


class Neighbour:
    """Someone else, who sends a small scene."""

    def __init__(self, server: LocalServer) -> None:
        self._url = server.url
        content = SCENES["town"].read_bytes()
        self._body = body_of(base64.b64encode(content).decode())
        answers = [self._ask() for _ in range(4)]
        self._map = answers[0][1]
        self._idle = max(seconds for seconds, _ in answers[1:])

    def _ask(self) -> tuple[float, str]:
        started = time.monotonic()
        kind = {"content-type": "application/json"}
        response = httpx.post(f"{self._url}/pooling", content=self._body, headers=kind, timeout=300)
        assert response.status_code == 200, response.text[:500]
        return time.monotonic() - started, str(response.json()["data"]["data"])

    def is_answered_as_if_alone(self) -> None:
        seconds, answer = self._ask()
        assert answer == self._map
        assert seconds < self._idle + SLOWER


@pytest.fixture(scope="module")
def neighbour(telling_server: LocalServer) -> Neighbour:
    return Neighbour(telling_server)


def nothing_is_left(server: LocalServer) -> None:
    deadline = time.monotonic() + 10
    while True:
        told = httpx.get(f"{server.url}/inside", timeout=60).json()
        if told == {"jobs": 0, "files_in_memory": 0} and not queued(server):
            return
        assert time.monotonic() < deadline, told
        time.sleep(0.1)


def test_after_three_seconds(telling_server: LocalServer, neighbour: Neighbour) -> None:
    hang_up(telling_server.url, scene(6000), lambda: time.sleep(3))
    neighbour.is_answered_as_if_alone()
    nothing_is_left(telling_server)


@pytest.mark.parametrize("seconds", [0, 2])
def test_while_windows_are_in_the_engine(
    telling_server: LocalServer, neighbour: Neighbour, seconds: float
) -> None:
    """At first others still wait to be handed over."""

    def wait() -> None:
        deadline = time.monotonic() + 120
        while not queued(telling_server):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(seconds)

    hang_up(telling_server.url, scene(3000), wait)
    neighbour.is_answered_as_if_alone()
    nothing_is_left(telling_server)


def test_at_any_time(telling_server: LocalServer, neighbour: Neighbour) -> None:
    """From opening the scene to putting the map together and sending it."""
    body = scene(800)
    started = time.monotonic()
    kind = {"content-type": "application/json"}
    response = httpx.post(f"{telling_server.url}/pooling", content=body, headers=kind, timeout=300)
    assert response.status_code == 200
    whole = time.monotonic() - started
    for share in np.linspace(0.05, 1.0, 8):
        hang_up(telling_server.url, body, lambda share=share: time.sleep(share * whole))
        neighbour.is_answered_as_if_alone()
    nothing_is_left(telling_server)


@pytest.mark.parametrize("sent", [0.0, 0.3, 0.999])
@pytest.mark.parametrize("abruptly", [False, True])
def test_while_sending(
    telling_server: LocalServer, neighbour: Neighbour, sent: float, abruptly: bool
) -> None:
    pixels = make_raster(height=1500, width=1500)  # 18 MB, which does not compress
    body = body_of(base64.b64encode(pixels).decode())
    hang_up(telling_server.url, body, lambda: time.sleep(0.2), sent=sent, abruptly=abruptly)
    neighbour.is_answered_as_if_alone()
    nothing_is_left(telling_server)
