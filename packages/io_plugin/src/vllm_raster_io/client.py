"""A client for one server."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

import httpx
import pybase64

from vllm_raster_io.answers import RasterAnswer
from vllm_raster_io.arguments import MapArguments, fields_of
from vllm_raster_io.closing import Closing
from vllm_raster_io.errors import ServiceError
from vllm_raster_io.sources import ServerPath, Source, data_fields

# Sooner than the server, which lets go of a connection that was not used for five seconds: else
# it might do so while the next request is on its way.
_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=2.0)


@dataclass(frozen=True)
class MapResult:
    """What came back.

    Attributes:
        data: The map, a file; empty where the server wrote it, to `server_path`.
        answer: All else that the server says of it.
        confidence: The file of confidence, where it was asked for.
    """

    data: bytes = field(repr=False)
    answer: RasterAnswer
    confidence: bytes | None = field(default=None, repr=False)

    @property
    def server_path(self) -> ServerPath | None:
        """Where the server wrote the map; None where it sent it."""
        return ServerPath(self.answer.data) if self.answer.data_format == "path" else None

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
        self._http = httpx.Client(base_url=url, timeout=timeout, headers=headers, limits=_LIMITS)

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
            source: A file's path, or its bytes, which are sent; or what the server reads itself, if
                it may: a `ServerPath`, or a URL as text. Of several dates, or of one band each, a
                list of them.
            model: Name of the model, or of a LoRA adapter of it, where the server has several.
            request_id: For the server's log.
            **arguments: What else is asked for, see `RasterRequest`: above all `bands`, `prompt`,
                `dates`, `window` or `bbox`, `product` and `format`. With `out_path`, or
                `out_data_format="path"`, the server writes the map itself, if it may.

        Raises:
            ServiceError: The server refused, with its reason, or could not be reached.
            TypeError: There is no such argument, or some files are sent and others named.
            RequestError: A number is infinite or none.
            OSError: A file cannot be read.
        """
        fields = fields_of(arguments)
        if "out_path" in fields:
            fields.setdefault("out_data_format", "path")
        data = data_fields(source, fields.get("data_format"))
        body: dict[str, Any] = {"data": {**data, **fields}}
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
