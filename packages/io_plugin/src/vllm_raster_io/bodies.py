"""Reading the body of a request as it arrives.

A body with a scene of 100 MB in it takes a second to put together and to parse, in which the
server answers nobody. So the long strings of the body, the files, are decoded piece by piece as
they come, and only the rest is parsed as json.
"""

import json
import re
import secrets
from typing import Any

from vllm_raster_io.closing import Closing
from vllm_raster_io.errors import LimitError
from vllm_raster_io.limits import Tally
from vllm_raster_io.uploads import Upload

_LONG = 1 << 16
_MOST_REST = 1 << 24
# No quote of a key is escaped: where one is, it stands within a string.
_FILE_BEGINS = re.compile(rb'(?<!\\)"data"\s*:\s*(\[\s*)?"')
_NEXT_BEGINS = re.compile(rb'"\s*,\s*"')
_NEXT_MAY_COME = re.compile(rb'"\s*(?:,\s*)?\Z')
# What json writers escape of base64: some the slash, some the plus sign, some the line breaks.
_ESCAPED = re.compile(rb"\\u00([0-7][0-9a-fA-F])")
_CUT_OFF = re.compile(rb"\\(?:u[0-9a-fA-F]{0,3})?\Z")
# A match may begin in one chunk and end in the next.
_MATCH_SPAN = 1024


class BodyReader(Closing):
    """Takes the chunks of a json body and gives what json would, with long files as uploads.

    A file is the string that is the value of a key `data`, or one of a list that is; one shorter
    than 64 kB stays a string. All but the files may take no more than 16 MB.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._searched = 0
        self._begin: int | None = None
        self._in_list = False
        self._upload: Upload | None = None
        self._escape = b""
        self._escaping = False
        self._uploads: dict[str, Upload] = {}
        self._tally = Tally()
        self._overflown = False

    def feed(self, chunk: bytes) -> None:
        """Takes the next bytes of the body."""
        if self._upload is not None:
            chunk = self._feed_upload(chunk)
        if chunk and not self._overflown:
            self._rest += chunk
            self._look_for_file()
            self._overflown = len(self._rest) > _MOST_REST

    @property
    def rest(self) -> bytes:
        """The body without its long files, each of which has left a name behind."""
        return bytes(self._rest)

    def parse(self) -> Any:
        """The body's value.

        Raises:
            json.JSONDecodeError: The body is not json.
            LimitError: It is long without its files.
        """
        if self._overflown:
            raise LimitError(
                f"The request's body has more than {_MOST_REST} bytes besides the files in `data`; "
                "send each file as one string in base64"
            )
        return self._replace(json.loads(self._rest))

    def close(self) -> None:
        """Gives the files' memory back, which nobody will ask for."""
        for one in self._uploads.values():
            one.close()

    def _look_for_file(self) -> None:
        while self._upload is None:
            if self._begin is None and not self._look_for_begin():
                return
            assert self._begin is not None
            end = _end_of_string(self._rest, self._begin, self._begin + _LONG)
            if end >= 0:
                self._searched, self._begin = end, None
            elif len(self._rest) - self._begin >= _LONG:
                self._divert()
            else:
                return

    def _look_for_begin(self) -> bool:
        """Looks for the first character of the next string that may be a file."""
        if self._in_list:
            # The search stands at the quote that ends the string before.
            if match := _NEXT_BEGINS.match(self._rest, self._searched):
                self._begin = match.end()
                return True
            short = len(self._rest) - self._searched < _MATCH_SPAN
            if short and _NEXT_MAY_COME.match(self._rest, self._searched):
                return False
            self._in_list = False
        match = _FILE_BEGINS.search(self._rest, self._searched)
        if match is None:
            self._searched = max(len(self._rest) - _MATCH_SPAN, self._searched)
            return False
        self._begin, self._in_list = match.end(), match[1] is not None
        return True

    def _divert(self) -> None:
        assert self._begin is not None
        name = secrets.token_hex(16)
        self._upload = self._uploads[name] = Upload(self._tally)
        begun = bytes(self._rest[self._begin :])
        del self._rest[self._begin :]
        self._rest += name.encode()
        self._begin = None
        self._rest += self._feed_upload(begun)

    def _feed_upload(self, chunk: bytes) -> bytes:
        """Feeds what belongs to the file; gives back what comes after it."""
        assert self._upload is not None
        # What the last piece escaped, if anything, is no quote that ends the string.
        start = int(self._escaping)
        end = _end_of_string(chunk, start, len(chunk))
        piece, after = (chunk, b"") if end < 0 else (chunk[:end], chunk[end:])
        self._escaping = end < 0 and _backslashes(chunk, start, len(chunk)) % 2 == 1
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


def _end_of_string(text: bytes | bytearray, start: int, stop: int) -> int:
    """Where the first quote stands that is not escaped; -1 for nowhere."""
    at = start
    while (end := text.find(b'"', at, stop)) >= 0:
        if _backslashes(text, start, end) % 2 == 0:
            return end
        at = end + 1
    return -1


def _backslashes(text: bytes | bytearray, start: int, end: int) -> int:
    """How many backslashes stand right before a place."""
    at = end
    while at > start and text[at - 1] == ord("\\"):
        at -= 1
    return end - at
