"""A client for one server."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from vllm_raster_io.answers import RasterAnswer
from vllm_raster_io.closing import Closing
from vllm_raster_io.errors import ServiceError

Source = str | Path | bytes
"""A file's path, or its bytes."""


@dataclass(frozen=True)
class MapResult:
    """What came back.

    Attributes:
        data: The map, a GeoTIFF file.
        answer: All else that the server says of it.
    """

    data: bytes
    answer: RasterAnswer

    def save(self, path: str | Path) -> Path:
        """Writes the map to a file; gives back its path."""
        path = Path(path)
        path.write_bytes(self.data)
        return path


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
        indices: Sequence[int] | None = None,
        prompt: str | None = None,
        dates: str | Sequence[str] | None = None,
        location: Sequence[float] | None = None,
        request_id: str | None = None,
    ) -> MapResult:
        """Has a raster mapped.

        Args:
            source: A file's path, or its bytes; of several dates, a list of them.
            indices: Bands of the file to use, counted from 0, in the checkpoint's order.
            prompt: What to map, in words, where the checkpoint has a language model.
            dates: When it was taken, in ISO's form, one for each of the checkpoint's frames;
                without them the server reads the files' tags.
            location: Latitude and longitude in degrees, where the file does not tell.
            request_id: For the server's log.

        Raises:
            ServiceError: The server refused, with its reason, or could not be reached.
        """
        data: dict[str, Any] = {
            "data": _encoded(source),
            "indices": None if indices is None else list(indices),
            "prompt": prompt,
            "dates": dates if dates is None or isinstance(dates, str) else list(dates),
            "location": None if location is None else list(location),
        }
        data = {name: value for name, value in data.items() if value is not None}
        headers = {} if request_id is None else {"X-Request-Id": request_id}
        try:
            response = self._http.post("/pooling", json={"data": data}, headers=headers)
        except httpx.HTTPError as error:
            raise ServiceError(f"{self._http.base_url} cannot be reached: {error}") from error
        if response.status_code != httpx.codes.OK:
            raise ServiceError(f"The server answered {response.status_code}: {_reason(response)}")
        answer = RasterAnswer.model_validate(response.json()["data"])
        return MapResult(base64.b64decode(answer.data), answer)

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
    return base64.b64encode(content).decode("ascii")


def _reason(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return response.text[:500]
