"""Who may read and write what: where a request's raster may come from, and where a map may go."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import pybase64

from vllm_raster_io.deadlines import Deadline
from vllm_raster_io.errors import AccessError, RequestError
from vllm_raster_io.fetching import Fetcher
from vllm_raster_io.files import SceneFile
from vllm_raster_io.limits import LIMITS, Tally
from vllm_raster_io.options import ENDINGS
from vllm_raster_io.paths import open_file
from vllm_raster_io.requests import RasterRequest
from vllm_raster_io.settings import Settings
from vllm_raster_io.targets import Target
from vllm_raster_io.uploads import Upload

Delivery = tuple[Literal["b64_json", "path"], str]
"""How a map is given back, and the map itself or its path."""


class Access:
    """What the settings allow, done for one request after the other.

    Args:
        settings: Without them nothing but files that the client sends itself.
        fetcher: Fetches what is named by URL.
    """

    def __init__(self, settings: Settings | None = None, fetcher: Fetcher | None = None) -> None:
        self._settings = settings or Settings()
        self._fetcher = fetcher or Fetcher(self._settings)

    def sources(
        self,
        request: RasterRequest,
        dates: int = 1,
        deadline: Deadline | None = None,
        bands: int = 1,
    ) -> list[SceneFile]:
        """The files that a request sends or names, in its order.

        There is a single one, or one a date, or one for each band of each date.

        Args:
            request: Says what they are.
            dates: How many files there may be instead of one.
            deadline: Until when they must be there.
            bands: So many times as many there may be, too.

        Raises:
            AccessError: It names paths or URLs that may not be read.
            RasterError: What it names by URL cannot be had.
            RequestError: What it sends is not base64, or of another number.
            LimitError: It is larger or slower than allowed.
        """
        read = self._reader(request.data_format, deadline or Deadline(LIMITS.seconds, "Reading"))
        files = request.data if isinstance(request.data, list) else [request.data]
        if len(files) not in (1, dates, dates * bands):
            raise RequestError(_wrong_number(len(files), dates, bands))
        LIMITS.check("files", len(files))
        LIMITS.check("frames", min(len(files), dates))
        opened: list[SceneFile] = []
        tally = Tally()
        try:
            for one in files:
                opened.append(read(one, tally))
        except Exception:
            for file in opened:
                file.close()
            raise
        return opened

    def target(self, request: RasterRequest) -> Target | None:
        """Where a request's map is to be written; None where it goes into the answer.

        Raises:
            AccessError: It may not be written there.
            RequestError: There is a file already, or it is not said what is meant.
        """
        if request.out_data_format == "b64_json":
            if request.out_path is not None or request.overwrite:
                raise RequestError(
                    "`out_path` and `overwrite` are for maps that are written to a file: "
                    "leave them out, or ask for that with out_data_format 'path'"
                )
            return None
        if not self._settings.write_roots:
            raise AccessError(
                "out_data_format 'path' is refused: this server is not set up to write files for "
                "its clients. Take the map from the answer with out_data_format 'b64_json'"
            )
        endings = ENDINGS[request.format]
        roots = self._settings.write_roots
        return Target.choose(request.out_path, request.overwrite, roots, endings)

    def _reader(
        self, data_format: str, deadline: Deadline
    ) -> Callable[[str | Upload, Tally], SceneFile]:
        settings = self._settings
        if data_format == "b64_json":
            return _decoded
        by_path = data_format == "path"
        if not (settings.read_roots if by_path else settings.fetches):
            raise AccessError(
                f"data_format {data_format!r} is refused: this server is not set up to "
                f"{'read files of its own' if by_path else 'fetch URLs'} for its clients. "
                "Send the file itself in base64 with data_format 'b64_json'"
            )
        if by_path:
            return lambda one, tally: self._at_path(_name(one, "path"), tally)
        fetching = deadline.within(LIMITS.fetch_seconds, "Fetching what `data` names")
        return lambda one, tally: self._fetcher.fetch(_name(one, "URL"), fetching, tally)

    def _at_path(self, name: str, tally: Tally) -> SceneFile:
        file = open_file(name, self._settings.read_roots)
        try:
            tally["bytes"] += len(file.content)
            LIMITS.check("bytes", tally["bytes"])
        except Exception:
            file.close()
            raise
        return file


@contextmanager
def delivered(content: bytes, target: Target | None) -> Iterator[Delivery]:
    """Gives a map back: into the answer, or into a file, which is there once the block has ended.

    Raises:
        AccessError: The folder is not there any more.
        RequestError: There is a file of this name by now.
        ServingError: It cannot be written.
    """
    if target is None:
        yield "b64_json", pybase64.b64encode_as_string(content)
        return
    with target.drafted(content):
        yield "path", target.name


def _decoded(data: str | Upload, tally: Tally) -> SceneFile:
    return data.finish() if isinstance(data, Upload) else Upload.decode(data, tally)


def _name(data: str | Upload, kind: str) -> str:
    if isinstance(data, Upload):  # the server took it in as a file, for it is long
        raise AccessError(f"`data` must be a {kind}, and is too long for one")
    return data


def _wrong_number(files: int, dates: int, bands: int) -> str:
    each = f", or {dates * bands}, one a band" if bands > 1 else ""
    if dates == 1:
        return (
            f"`data` holds {files} files, but this checkpoint takes one{each}: "
            "send each scene by itself"
        )
    return (
        f"`data` holds {files} files, but this checkpoint takes {dates} dates: send one file a "
        f"date, or a single one with the bands of all{each}"
    )
