"""Cases against a running server, as bodies that need not even be json."""

import base64
import json
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx

from .cases import anything, case

PATIENCE = 120.0
"""Seconds that an answer may take while others are served, on a busy machine."""
BANDS = 4
"""Bands that the server's checkpoint takes."""
_AT_ONCE = 4
_KINDS = ("application/json", "application/json; charset=utf-16", "text/json", "text/plain",
          "application/octet-stream", "multipart/form-data; boundary=x", "json")  # fmt: skip


@dataclass
class Answers:
    """What a server answered.

    Attributes:
        statuses: How often each status came.
        faults: Number, kind and what came, of each case that was answered as none may be.
        seconds: Of the slowest.
    """

    statuses: Counter[int] = field(default_factory=Counter)
    faults: list[tuple[int, str, str]] = field(default_factory=list)
    seconds: float = 0.0


def send_cases(url: str, seed: int, count: int) -> Answers:
    """Sends the cases of a seed to a server, a few at once.

    Args:
        url: The server's.
        seed: What the cases are made from.
        count: How many.
    """
    answers = Answers()
    with httpx.Client(timeout=PATIENCE) as client, ThreadPoolExecutor(_AT_ONCE) as pool:

        def send(number: int) -> tuple[int, str, httpx.Response | Exception, float]:
            kind, body, headers = made(seed, number)
            started = time.monotonic()
            try:
                answer: Any = client.post(f"{url}/pooling", content=body, headers=headers)
            except httpx.HTTPError as error:
                answer = error
            return number, kind, answer, time.monotonic() - started

        for number, kind, answer, seconds in pool.map(send, range(count)):
            answers.seconds = max(answers.seconds, seconds)
            if isinstance(answer, httpx.Response):
                answers.statuses[answer.status_code] += 1
            if fault := _fault(answer):
                answers.faults.append((number, kind, fault))
    return answers


def made(seed: int, number: int) -> tuple[str, bytes, dict[str, str]]:
    """Kind, body and headers of a case."""
    chance = random.Random(f"body {seed} {number}")
    one = case(seed, number)
    body: Any = {"data": one.request}
    if isinstance(one.request, dict) and one.request.get("indices") == [0]:
        body = {"data": {**one.request, "indices": [0] * BANDS}}
    headers = {"content-type": "application/json"}
    if chance.random() < 0.2:
        # What vLLM itself reads, beside the request.
        name = chance.choice(
            ("model", "priority", "task", "encoding_format", "truncate_prompt_tokens", "softmax",
             "mm_processor_kwargs", "cache_salt", "request_id", "user", "input", "messages", "x")
        )  # fmt: skip
        body[name] = anything(chance)
    if chance.random() < 0.05:
        body = anything(chance)
    if chance.random() < 0.1:
        headers["x-request-id"] = chance.choice(("../../x", "x" * 10_000, "same", "%00"))
    if chance.random() < 0.05:
        headers["content-type"] = chance.choice(_KINDS)
    content = json.dumps(body).encode()
    if chance.random() < 0.15:
        content = _spoiled(content, chance)
        return f"body of {one.kind}", content, headers
    return one.kind, content, headers


def _spoiled(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content) + 1)
    junk = base64.b64encode(chance.randbytes(150_000))
    return chance.choice(
        (
            content[:at],
            content[:at] + chance.randbytes(3) + content[at:],
            b"[" * 100_000,
            b'{"data":' * 20_000,
            b"1" * 10_000,
            b"",
            b"\xff\xfe" + content,
            content.decode().encode("utf-16"),
            content.replace(b'"', b"'"),
            b'{"data": {"data": "' + junk + b'", "data": 1}}',
            b'{"data": {"data": "' + junk + b'\\u00',
        )
    )  # fmt: skip


def _fault(answer: httpx.Response | Exception) -> str | None:
    """What is wrong with an answer, if anything."""
    if isinstance(answer, Exception):
        return f"{type(answer).__name__}: {answer}"
    if answer.status_code == 200:
        return None if answer.json()["data"]["data"] else "an empty map"
    text = answer.text
    if answer.status_code == 404 and text.startswith('{"error":{"message":"The model `'):
        return None  # vLLM's own answer to the name of another model
    if answer.status_code != 400:
        return f"status {answer.status_code}: {text[:1000]}"
    message = answer.json()["error"]["message"]
    if not 10 < len(message) < 4000 or "Traceback" in message:
        return f"a message of {len(message)} characters: {message[:1000]}"
    return None
