"""A request of greater urgency overtakes those that came before it."""

import base64
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

from vllm_raster_io import LocalServer, RasterClient

from ..factories import make_raster
from .conftest import CHECKPOINT, SCENES
from .inside import finished

pytestmark = pytest.mark.alone
SIDE = 1750
WINDOWS = 18**2
"""Of a scene of that side: they are of 128 pixels and overlap by 32."""
PROMPTS = -(-WINDOWS // 16)
"""That they are asked for in: 16 of such windows share one."""


@pytest.fixture(scope="module")
def urgent_server() -> Iterator[LocalServer]:
    arguments = ["--scheduling-policy", "priority", "--max-num-seqs", "16"]
    with LocalServer(CHECKPOINT, arguments=arguments) as running:
        yield running


def post(server: LocalServer, content: bytes, beside: dict[str, Any], **fields: Any) -> Any:
    """The answer's `data`, or why there is none."""
    data = {"data": base64.b64encode(content).decode(), **fields}
    response = httpx.post(f"{server.url}/pooling", json={"data": data, **beside}, timeout=300)
    told = response.json()
    return told["data"] if response.status_code == 200 else told["error"]["message"]


class Crowd:
    """Many windows of one scene, and after it small scenes that come one after the other."""

    def __init__(self, server: LocalServer) -> None:
        self._server = server
        self.done: dict[str, float] = {}
        self._before = finished(server)

    def ask(self, smalls: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, Any]:
        """Asks for maps; `done` tells how many prompts the engine had answered by then.

        Args:
            smalls: By a name of their own, what stands within and beside each request's data.
        """
        large = make_raster(
            values=np.full((4, SIDE, SIDE), 1000, np.uint16), compress="deflate", tiled=True
        )
        with ThreadPoolExecutor(1 + len(smalls)) as pool:
            first = pool.submit(post, self._server, large, {})
            deadline = time.monotonic() + 300
            while finished(self._server) == self._before:
                assert not first.done(), first.result()
                assert time.monotonic() < deadline
                time.sleep(0.02)
            begun = {
                name: pool.submit(self._small, name, within, beside)
                for name, (within, beside) in smalls.items()
            }
            answers = {name: one.result() for name, one in begun.items()}
            assert first.result()["effective"]["windows"] == WINDOWS
        return answers

    def _small(self, name: str, within: dict[str, Any], beside: dict[str, Any]) -> Any:
        answer = post(self._server, SCENES["town"].read_bytes(), beside, **within)
        self.done[name] = finished(self._server) - self._before
        return answer


def test_what_is_urgent_overtakes(urgent_server: LocalServer) -> None:
    crowd = Crowd(urgent_server)
    answers = crowd.ask(
        {
            "low": ({"priority": 5}, {}),
            "low beside": ({}, {"priority": 6}),
            "high": ({"priority": -5}, {}),
            "high beside": ({}, {"priority": -6}),
        }
    )
    for name in ("high", "high beside"):
        assert crowd.done[name] < PROMPTS / 2, crowd.done
    for name in ("low", "low beside"):
        assert crowd.done[name] > 3 * PROMPTS / 4, crowd.done
    told = {name: one["effective"]["priority"] for name, one in answers.items()}
    assert told == {"low": 5, "low beside": 6, "high": -5, "high beside": -6}
    assert len({one["data"] for one in answers.values()}) == 1


def test_a_large_scene_lets_small_ones_in(urgent_server: LocalServer) -> None:
    """Of one urgency, for only so many windows of a scene are in the engine at once."""
    crowd = Crowd(urgent_server)
    crowd.ask({name: ({}, {}) for name in ("first", "second")})
    assert max(crowd.done.values()) < 3 * PROMPTS / 4, crowd.done


def test_a_server_without_priorities_says_so(server: LocalServer, client: RasterClient) -> None:
    content = SCENES["town"].read_bytes()
    for within, beside in (({"priority": 1}, {}), ({}, {"priority": 1})):
        message = post(server, content, beside, **within)
        assert message.startswith("`priority` is refused: this server takes requests as they come")
    assert post(server, content, {"priority": 0}, priority=0)["effective"]["priority"] == 0
    assert client.healthy()
