"""Reading the body of a request as it arrives.

A body with a scene of 100 MB in it takes a second to put together and to parse, in which the
server answers nobody. So the one long string of the body, the file, is decoded piece by piece
as it comes, and only the rest is parsed as json.
"""

import json
import re
import secrets
from typing import Any

from vllm_raster_io.uploads import Upload

_LONG = 1 << 16
_FILE_BEGINS = re.compile(rb'"data"\s*:\s*"')
# What json writers escape of base64: some the slash, some the plus sign, some the line breaks.
_ESCAPED = re.compile(rb"\\u00([0-7][0-9a-fA-F])")
_CUT_OFF = re.compile(rb"\\(?:u[0-9a-fA-F]{0,3})?\Z")
# A match may begin in one chunk and end in the next.
_MATCH_SPAN = 64


class BodyReader:
    """Takes the chunks of a json body and gives what json would, with long files as uploads.

    A file is the string that is the value of a key `data`; one shorter than 64 kB stays a
    string.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._searched = 0
        self._begin: int | None = None
        self._upload: Upload | None = None
        self._escape = b""
        self._uploads: dict[str, Upload] = {}

    def feed(self, chunk: bytes) -> None:
        """Takes the next bytes of the body."""
        if self._upload is not None:
            chunk = self._feed_upload(chunk)
        if chunk:
            self._rest += chunk
            self._look_for_file()

    @property
    def rest(self) -> bytes:
        """The body without its long files, each of which has left a name behind."""
        return bytes(self._rest)

    def parse(self) -> Any:
        """The body's value.

        Raises:
            json.JSONDecodeError: The body is not json.
        """
        return self._replace(json.loads(self._rest))

    def _look_for_file(self) -> None:
        while self._upload is None:
            if self._begin is None:
                match = _FILE_BEGINS.search(self._rest, self._searched)
                if match is None:
                    self._searched = max(len(self._rest) - _MATCH_SPAN, self._searched)
                    return
                self._begin = match.end()
            end = self._rest.find(b'"', self._begin)
            if end < 0 and len(self._rest) - self._begin < _LONG:
                return
            if 0 <= end < self._begin + _LONG:
                self._searched, self._begin = end, None
                continue
            self._divert()

    def _divert(self) -> None:
        assert self._begin is not None
        name = secrets.token_hex(16)
        self._upload = self._uploads[name] = Upload()
        begun = bytes(self._rest[self._begin :])
        del self._rest[self._begin :]
        self._rest += name.encode()
        self._begin = None
        self._rest += self._feed_upload(begun)

    def _feed_upload(self, chunk: bytes) -> bytes:
        """Feeds what belongs to the file; gives back what comes after it."""
        assert self._upload is not None
        end = chunk.find(b'"')
        piece, after = (chunk, b"") if end < 0 else (chunk[:end], chunk[end:])
        self._upload.feed(self._unescaped(piece))
        if after:
            self._upload.feed(self._escape)
            self._escape = b""
            self._upload, self._searched = None, len(self._rest)
        return after

    def _unescaped(self, piece: bytes) -> bytes:
        piece, self._escape = self._escape + piece, b""
        if b"\\" not in piece:
            return piece
        if cut_off := _CUT_OFF.search(piece):
            piece, self._escape = piece[: cut_off.start()], cut_off.group()
        piece = piece.replace(b"\\/", b"/").replace(b"\\n", b"\n").replace(b"\\r", b"\r")
        # A backslash that is left is no base64, which the upload finds.
        return _ESCAPED.sub(lambda one: bytes([int(one[1], 16)]), piece)

    def _replace(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._replace(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self._replace(one) for one in value]
        return self._uploads.get(value, value) if isinstance(value, str) else value
