"""A client for one server."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import httpx
import pybase64

from vllm_raster_io.answers import RasterAnswer
from vllm_raster_io.arguments import MapArguments, fields_of
from vllm_raster_io.closing import Closing
from vllm_raster_io.errors import ServiceError

Source = str | Path | bytes
"""A file's path, or its bytes."""


@dataclass(frozen=True)
class MapResult:
    """What came back.

    Attributes:
        data: The map, a file; empty where the server wrote it, to `answer.data`.
        answer: All else that the server says of it.
        confidence: The file of confidence, where it was asked for.
    """

    data: bytes
    answer: RasterAnswer
    confidence: bytes | None = None

    def save(self, path: str | Path) -> Path:
        """Writes the map to a file; gives back its path.

        Raises:
            ServiceError: The server wrote it already.
        """
        return _saved(self.data, path)

    def save_confidence(self, path: str | Path) -> Path:
        """Writes the file of confidence; gives back its path.

        Raises:
            ServiceError: There is none, or the server wrote it already.
        """
        return _saved(self.confidence, path)


class RasterClient(Closing):
    """Sends rasters to a vLLM server that has the `raster` IO processor.

    Args:
        url: Of the server, without a route.
        timeout: Seconds to wait for an answer; None for as long as it takes.
        api_key: As the server was started with, if it was.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        timeout: float | None = None,
        api_key: str | None = None,
    ) -> None:
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._http = httpx.Client(base_url=url, timeout=timeout, headers=headers)

    def map(
        self,
        source: Source | Sequence[Source],
        *,
        model: str | None = None,
        request_id: str | None = None,
        **arguments: Unpack[MapArguments],
    ) -> MapResult:
        """Has a raster mapped.

        Args:
            source: A file's path, or its bytes; of several dates, a list of them. With
                `data_format` "path" or "url", what the server is to read.
            model: Name of the model, or of a LoRA adapter of it, where the server has several.
            request_id: For the server's log.
            **arguments: What else is asked for, see `RasterRequest`: above all `bands`, `prompt`,
                `dates`, `window` or `bbox`, `product` and `format`.

        Raises:
            ServiceError: The server refused, with its reason, or could not be reached.
            TypeError: There is no such argument.
        """
        fields = fields_of(arguments)
        sent = fields.get("data_format", "b64_json") == "b64_json"
        data = _encoded(source) if sent else _named(source)
        body: dict[str, Any] = {"data": {"data": data, **fields}}
        if model is not None:
            body["model"] = model
        headers = {} if request_id is None else {"X-Request-Id": request_id}
        try:
            response = self._http.post("/pooling", json=body, headers=headers)
        except httpx.HTTPError as error:
            raise ServiceError(f"{self._http.base_url} cannot be reached: {error}") from error
        if response.status_code != httpx.codes.OK:
            raise ServiceError(f"The server answered {response.status_code}: {_reason(response)}")
        answer = RasterAnswer.model_validate(response.json()["data"])
        beside = answer.confidence
        return MapResult(
            _decoded(answer.data_format, answer.data),
            answer,
            None if beside is None else _decoded(beside.data_format, beside.data),
        )

    def healthy(self) -> bool:
        """Whether the server is up and answers."""
        try:
            return self._http.get("/health").status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()


def _encoded(source: Source | Sequence[Source]) -> Any:
    if not isinstance(source, str | Path | bytes):
        return [_encoded(one) for one in source]
    content = source if isinstance(source, bytes) else Path(source).read_bytes()
    return pybase64.b64encode_as_string(content)


def _named(source: Source | Sequence[Source]) -> Any:
    if isinstance(source, bytes):
        raise TypeError("What a server is to read itself is a path or a URL, got bytes")
    return str(source) if isinstance(source, str | Path) else [_named(one) for one in source]


def _decoded(data_format: str, data: str) -> bytes:
    return pybase64.b64decode(data) if data_format == "b64_json" else b""


def _saved(content: bytes | None, path: str | Path) -> Path:
    if not content:
        raise ServiceError("There is nothing to save: the server did not send the file")
    path = Path(path)
    path.write_bytes(content)
    return path


def _reason(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return response.text[:500]
