"""Clients that hang up."""

import json
import socket
import struct
from collections.abc import Callable
from urllib.parse import urlsplit

HEAD = (
    "POST /pooling HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    "content-length: {length}\r\n\r\n"
)


def body_of(text: str, **fields: object) -> bytes:
    """A request's body, with a file in base64."""
    return json.dumps({"data": {"data": text, **fields}}).encode()


def hang_up(
    url: str,
    body: bytes,
    when: Callable[[], object],
    *,
    sent: float = 1.0,
    abruptly: bool = False,
) -> None:
    """Sends a request, or a part of it, and is gone.

    Args:
        url: Of the server.
        body: Of the request.
        when: Waits until it is time.
        sent: Part of the body that is sent.
        abruptly: Whether the connection is reset, not closed.
    """
    host, port = urlsplit(url).hostname, urlsplit(url).port
    with socket.create_connection((host, port), timeout=60) as connection:
        connection.sendall(HEAD.format(host=host, length=len(body)).encode())
        connection.sendall(memoryview(body)[: int(sent * len(body))])
        when()
        if abruptly:
            linger = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
