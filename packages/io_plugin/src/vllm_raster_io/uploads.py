"""Files that clients send: base64 in, a file in memory out, piece by piece.

Decoding 100 MB at once would hold up every other request; a piece takes microseconds. The
encoded and the decoded file are never in memory as a whole together.
"""

import binascii
from typing import Any, Self

import pybase64
from rasterio.io import DatasetReader, MemoryFile

from vllm_raster_io.errors import LimitError, RasterIOError, RequestError
from vllm_raster_io.files import HEAD_BYTES, Content, SceneFile
from vllm_raster_io.limits import LIMITS, Tally

_PIECE = 1 << 20
_DATA = b"data:"
_LONGEST_PREFIX = 1024
_IN_BASE64 = "that is not in base64, but must begin as data:image/png;base64, does"


class Upload(SceneFile):
    """A file in memory, filled from base64, which may be that of a data URI.

    What such a URI says the file is, is not believed: its bytes tell.

    Nothing is raised before `finish`, so that whoever receives a request can read it to its end.

    Args:
        tally: What the files of one request have taken; this one is added to it.
    """

    sent = True

    def __init__(self, tally: Tally | None = None) -> None:
        self.head = b""
        self._memory = MemoryFile()
        self._left = b""
        self._head: bytearray | None = bytearray()
        self._encoded = 0
        self._tally = Tally() if tally is None else tally
        self._ended = False
        self._problem: RasterIOError | None = None

    @classmethod
    def decode(cls, text: str, tally: Tally | None = None) -> Self:
        """Decodes a whole file, with or without line breaks.

        Args:
            text: The base64.
            tally: What the files of one request have taken; this one is added to it.

        Raises:
            RequestError: It is empty or not base64.
            LimitError: It is larger than allowed.
        """
        upload = cls(tally)
        for start in range(0, len(text), _PIECE):
            upload.feed(text[start : start + _PIECE].encode("utf-8", "replace"))
        return upload.finish()

    @classmethod
    def of(cls, content: bytes) -> Self:
        """A file whose bytes are at hand."""
        upload = cls()
        upload.head = content[:HEAD_BYTES]
        upload.memory.write(content)
        return upload

    def feed(self, piece: bytes) -> None:
        """Takes the next characters of the base64, in pieces of any length."""
        if self._problem is not None:
            return
        self._encoded += len(piece)
        self._tally["bytes"] += len(piece)
        try:
            LIMITS.check("bytes", self._tally["bytes"])
            self._decode(piece)
        except binascii.Error as error:
            self._fail(RequestError(_NOT_BASE64.format(str(error).lower())))
        except RasterIOError as error:
            self._fail(error)

    def finish(self) -> Self:
        """Ends the file.

        Raises:
            RequestError: It is empty, not base64, or cut off.
            LimitError: It is larger than allowed.
        """
        if self._problem is None and self._head:
            self._fail(RequestError(_NOT_BASE64.format("it ends before any data")))
        if self._problem is None and self._left:
            self._fail(RequestError(_NOT_BASE64.format("its length is not a multiple of four")))
        if self._problem is None and not self.head:
            self._fail(RequestError("`data` is empty, but must be a file in base64"))
        if self._problem is not None:
            raise self._problem
        return self

    def __repr__(self) -> str:
        # As it stands in messages to the client, who sent a string.
        return f"<{self._encoded} characters>"

    @property
    def memory(self) -> MemoryFile:
        """The file, for rasterio to open."""
        return self._memory

    @property
    def content(self) -> Content:
        """All bytes, as they lie in memory."""
        return self._memory.getbuffer()

    def open(self, driver: str) -> DatasetReader:
        """Opens it with one of GDAL's drivers and with no other."""
        return self._memory.open(driver=driver)

    def close(self) -> None:
        """Gives the memory back; an upload may be closed twice."""
        self._memory.close()

    def __del__(self) -> None:
        # A request may be refused, or its client gone, before anyone opens the file.
        self.close()

    def _decode(self, piece: bytes) -> None:
        if self._head is not None:
            piece = self._without_prefix(piece)
        if b"\n" in piece or b"\r" in piece:
            piece = piece.translate(None, b"\r\n")
        piece = self._left + piece
        whole = len(piece) // 4 * 4
        self._left, piece = piece[whole:], piece[:whole]
        if not piece:
            return
        if self._ended:
            raise binascii.Error("something comes after the padding")
        decoded = _decoded(piece)
        self._ended = piece.endswith(b"=")
        self.head = (self.head + decoded[:HEAD_BYTES])[:HEAD_BYTES]
        self._memory.write(decoded)

    def _without_prefix(self, piece: bytes) -> bytes:
        """Takes the head of a data URI away, `data:image/png;base64,`, in however many pieces."""
        assert self._head is not None
        self._head += piece
        begins = bytes(self._head[: len(_DATA)]).lower()
        if not _DATA.startswith(begins):
            ended, self._head = bytes(self._head), None
            return ended
        head, comma, rest = self._head[:_LONGEST_PREFIX].partition(b",")
        if not comma:
            if len(self._head) >= _LONGEST_PREFIX:
                raise RequestError(f"`data` is a data URI without a comma {_IN_BASE64}")
            return b""
        if not head.lower().endswith(b";base64"):
            raise RequestError(f"`data` is a data URI {_IN_BASE64}")
        rest = self._head[len(head) + 1 :]
        self._head = None
        return bytes(rest)

    def _fail(self, problem: RasterIOError | LimitError) -> None:
        self._problem = problem
        self.close()


def _decoded(piece: bytes) -> bytes:
    try:
        return pybase64.b64decode(piece, validate=True)
    except binascii.Error:
        foreign = piece.translate(None, _ALPHABET)
        for beside, told in _OTHER_FORMS.items():
            if foreign and not foreign.strip(beside):
                raise binascii.Error(told) from None
        # Python's own, which is forty times as slow, says what is wrong.
        return binascii.a2b_base64(piece, strict_mode=True)


_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
_OTHER_FORMS = {
    b" \t": "it has blanks, which must be left out",
    b"-_": "it is written as for links, and must have + for - and / for _",
}
"""What other kinds of base64 have, and what this one must be."""

_NOT_BASE64 = "`data` must be a file in base64, but is not: {}"


def as_text(value: Any) -> Any:
    """The same json with files as the base64 that they came as; they are closed."""
    if isinstance(value, Upload):
        with value:
            return pybase64.b64encode(value.memory.getbuffer()).decode()
    if isinstance(value, dict):
        return {key: as_text(one) for key, one in value.items()}
    return [as_text(one) for one in value] if isinstance(value, list) else value
