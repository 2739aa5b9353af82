"""Where a client's rasters are: on this machine, on the server's, or at a URL."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pybase64

SCHEMES = ("https://", "http://")
"""What a URL begins with."""


class ServerPath(str):
    """The path of a file on the server's machine, in place of one on this machine."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"ServerPath({str(self)!r})"


Source = str | Path | bytes
"""A raster: the path of a file here, which is sent; its bytes; a `ServerPath`, or a text that
begins with https:// or http://, which the server reads itself."""


def data_fields(
    source: Source | Sequence[Source], data_format: str | None = None
) -> dict[str, Any]:
    """The fields of a request that say what is to be mapped.

    Args:
        source: The raster; or a list of them.
        data_format: How the server is to understand it; by what it is without it.

    Raises:
        TypeError: Some are sent and others are named; or what is to be named is bytes.
        OSError: A file cannot be read.
    """
    several = not isinstance(source, str | Path | bytes)
    files = [source] if isinstance(source, str | Path | bytes) else list(source)
    kinds = sorted({data_format or _format_of(file) for file in files}) or ["b64_json"]
    if len(kinds) > 1:
        raise TypeError(
            "The rasters of one request are all sent, or all paths on the server, or all URLs, "
            f"got {' and '.join(kinds)}"
        )
    (kind,) = kinds
    data = [_encoded(file) if kind == "b64_json" else _named(file) for file in files]
    told = {} if kind == "b64_json" else {"data_format": kind}
    return {"data": data if several else data[0], **told}


def _format_of(source: Source) -> str:
    if isinstance(source, ServerPath):
        return "path"
    is_url = isinstance(source, str) and source.lower().startswith(SCHEMES)
    return "url" if is_url else "b64_json"


def _encoded(source: Source) -> str:
    content = source if isinstance(source, bytes) else Path(source).read_bytes()
    return pybase64.b64encode_as_string(content)


def _named(source: Source) -> str:
    if isinstance(source, bytes):
        raise TypeError("What a server is to read itself is a path or a URL, got bytes")
    return str(source)
