"""Fetching files that clients name by URL, from hosts that are allowed and from no others.

Proxies, credentials and cookies of the server's surroundings take no part in it.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

import httpcore

from vllm_raster_io.addresses import CheckedBackend, Resolver, resolve
from vllm_raster_io.deadlines import Deadline
from vllm_raster_io.errors import AccessError, LimitError, RasterError
from vllm_raster_io.files import DiskFile
from vllm_raster_io.limits import LIMITS, Tally
from vllm_raster_io.settings import Settings
from vllm_raster_io.urls import FileUrl, fits_any

_REDIRECTS = (301, 302, 303, 307, 308)
_FOUND = 200


class Fetcher:
    """Fetches files one after the other; blocks, so it is for threads.

    Args:
        settings: Which hosts are allowed, and over what.
        resolver: Gives the addresses of a host.
    """

    def __init__(self, settings: Settings, resolver: Resolver = resolve) -> None:
        self._settings, self._resolver = settings, resolver

    def fetch(self, text: str, deadline: Deadline, tally: Tally | None = None) -> DiskFile:
        """Fetches one file, into one that has no name and is gone when it is closed.

        Args:
            text: The URL.
            deadline: For all of it.
            tally: What the files of one request have taken; this one is added to it.

        Raises:
            AccessError: The URL, or where it is redirected to, is not allowed.
            LimitError: The file is larger, slower, or redirected more often than allowed.
            RasterError: The host does not answer, or not with a file.
        """
        tally = Tally() if tally is None else tally
        url: FileUrl | None = None
        location = text
        for number in range(LIMITS.redirects + 1):
            with _naming(f"redirect {number} of the URL" if number else "the URL", deadline):
                url = FileUrl.parse(location) if url is None else url.follow(location)
                self._check(url)
                answer = self._ask(url, deadline, tally)
            if isinstance(answer, DiskFile):
                return answer
            location = answer
        raise LimitError(
            f"`data`: the URL is redirected more often than the {LIMITS.redirects} times that are "
            "allowed; name the file's own"
        )

    def _check(self, url: FileUrl) -> None:
        settings = self._settings
        if url.scheme == "http" and not settings.allow_http:
            raise AccessError("must begin with https://, for this server fetches nothing else")
        if not fits_any((*settings.allowed_hosts, *settings.allowed_private_hosts), url):
            raise AccessError("names a host and port that this server may not fetch from")

    def _ask(self, url: FileUrl, deadline: Deadline, tally: Tally) -> DiskFile | str:
        """The file, or where else it is said to be."""
        private = fits_any(self._settings.allowed_private_hosts, url)
        origin = httpcore.Origin(url.scheme.encode(), url.host.encode(), url.port)
        request = httpcore.Request(
            "GET",
            httpcore.URL(
                scheme=url.scheme.encode(),
                host=url.host.encode(),
                port=url.port,
                target=url.target.encode(),
            ),
            headers={
                "Host": url.authority,
                "User-Agent": "vllm-raster-io",
                "Accept": "image/*, */*;q=0.5",
                "Accept-Encoding": "identity",
                "Connection": "close",
            },
        )
        with httpcore.HTTPConnection(
            origin,
            ssl_context=self._ssl_context if url.scheme == "https" else None,
            network_backend=CheckedBackend(self._resolver, private, deadline),
        ) as connection:
            response = connection.handle_request(request)
            try:
                if response.status in _REDIRECTS:
                    return _header(response, b"location")
                _check_file(response)
                return _save(response, tally)
            finally:
                response.close()

    @cached_property
    def _ssl_context(self) -> ssl.SSLContext:
        context = httpcore.default_ssl_context()
        context.load_default_certs()  # those of this machine too, for hosts of its owner's
        return context


def _check_file(response: httpcore.Response) -> None:
    if response.status != _FOUND:
        raise RasterError(f"was answered with status {response.status}, not with a file")
    if _header(response, b"content-encoding").lower() not in ("", "identity"):
        raise RasterError("was answered with a compressed body, which is not unpacked")
    length = _header(response, b"content-length")
    if length.isdecimal():
        LIMITS.check("bytes", int(length))


def _save(response: httpcore.Response, tally: Tally) -> DiskFile:
    try:
        with tempfile.TemporaryFile(prefix="vllm-raster-") as file:
            for piece in response.iter_stream():
                tally["bytes"] += len(piece)
                LIMITS.check("bytes", tally["bytes"])
                file.write(piece)
            file.flush()
            return DiskFile(os.dup(file.fileno()))
    except OSError as error:
        raise RasterError(f"could not be stored: {error.strerror}") from None


def _header(response: httpcore.Response, name: bytes) -> str:
    values = [value for key, value in response.headers if key.lower() == name]
    return values[-1].decode("latin-1").strip() if values else ""


@contextmanager
def _naming(what: str, deadline: Deadline) -> Iterator[None]:
    """Says of what a problem is; of the URL, which may hold secrets, nothing is quoted."""
    what = f"`data`: {what}"
    try:
        yield
    except (AccessError, RasterError) as error:
        raise type(error)(f"{what} {error}") from None
    except httpcore.TimeoutException:
        deadline.remaining()
        raise RasterError(f"{what} names a host that does not answer in time") from None
    except httpcore.NetworkError:
        raise RasterError(f"{what} names a host that cannot be reached") from None
    except (httpcore.ProtocolError, httpcore.UnsupportedProtocol):
        raise RasterError(f"{what} was not answered with a whole file over HTTP") from None
