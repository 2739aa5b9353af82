"""Files that hold a scene: what reading one needs to know, wherever it lies."""

import os
from abc import abstractmethod
from collections.abc import Callable
from typing import Protocol

import rasterio
from rasterio.io import DatasetReader

from vllm_raster_io.closing import Closing

HEAD_BYTES = 16


class Content(Protocol):
    """The bytes of a file: as `bytes` and `memoryview` are, but perhaps read when asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> bytes | memoryview: ...


class SceneFile(Closing):
    """One file, of whatever format.

    Attributes:
        head: The first bytes, to tell the format by.
        sent: Whether the client sent the bytes itself, so that they may be quoted to it.
    """

    head: bytes
    sent: bool

    @property
    @abstractmethod
    def content(self) -> Content:
        """All bytes."""

    @abstractmethod
    def open(self, driver: str) -> DatasetReader:
        """Opens it with one of GDAL's drivers and with no other."""


class DiskFile(SceneFile):
    """A file of which there is a descriptor, and which is not read into memory as a whole.

    GDAL is given the descriptor's own name in `/proc/self/fd`. That leads to the very file which
    is open, whatever has become of its path since; and no side-car of a file of that name can be,
    for there are only numbers in that folder.

    Args:
        descriptor: Open for reading; closed with this.
    """

    sent = False

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._close: Callable[[int], None] = os.close  # still there when the interpreter ends
        self._content = _Stored(descriptor)
        self.head = self._content[:HEAD_BYTES]

    @property
    def content(self) -> Content:
        """All bytes, each part read from the disk when it is asked for."""
        return self._content

    def open(self, driver: str) -> DatasetReader:
        """Opens it with one of GDAL's drivers and with no other."""
        return rasterio.open(f"/proc/self/fd/{self._descriptor}", driver=driver)

    def close(self) -> None:
        """Closes the descriptor; may be called twice."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            self._close(descriptor)

    def __del__(self) -> None:
        # A request may be refused, or its client gone, before anyone opens the file.
        self.close()


class _Stored:
    """The bytes of an open file. Not mapped into memory: one that shrinks would end the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        start, stop, _ = part.indices(self._size)
        pieces = []
        while start < stop and (piece := os.pread(self._descriptor, stop - start, start)):
            pieces.append(piece)
            start += len(piece)
        return b"".join(pieces)
