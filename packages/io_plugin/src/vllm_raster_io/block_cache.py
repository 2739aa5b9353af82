"""What GDAL keeps of the blocks that it has read, for windows that share them."""

import os
import threading
from collections.abc import Sequence

import rasterio
from rasterio.env import set_gdal_config

from vllm_raster_io.tiling import Window

_SWITCH = "GDAL_CACHEMAX"
LEAST, MOST = 4 << 20, 512 << 20
"""Bytes. The most holds a row of windows of a file in strips, 512 rows of 30,000 pixels in 17 bands
of uint16."""


class BlockCache:
    """As large as the files need that are being read, between `LEAST` and `MOST`.

    GDAL's own is a twentieth of the machine's memory. A block that is read stays in it until it is
    full, so each takes new memory, which the system clears first: for blocks that no other window
    reads that takes longer than reading them.

    The environment variable `GDAL_CACHEMAX` says otherwise, in MiB.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._needs: dict[int, int] = {}
        self._size = 0

    def hold(self, owner: object, size: int) -> None:
        """Has it hold so many bytes for an open file, unless it holds more for it already."""
        if size > self._needs.get(id(owner), -1):
            with self._lock:
                self._needs[id(owner)] = size
                self._resize()

    def release(self, owner: object) -> None:
        """Has it hold nothing more for a file, which is closed."""
        with self._lock:
            if self._needs.pop(id(owner), None) is not None:
                self._resize()

    def _resize(self) -> None:
        size = min(max(sum(self._needs.values()), LEAST), MOST)
        if size != self._size and _SWITCH not in os.environ:
            self._size = size
            with rasterio.Env():
                set_gdal_config(_SWITCH, size)


BLOCK_CACHE = BlockCache()


def bytes_to_keep(window: Window, width: int, block: tuple[int, int], pixel_bytes: int) -> int:
    """How much must be kept of a file, or blocks are read twice: for a window, or for the next one.

    Args:
        window: Of the file.
        width: Of the file, in pixels.
        block: Rows and columns that are read at once.
        pixel_bytes: Of all bands that are read with a pixel.

    Returns:
        Bytes of a row of windows, which the ones beside and below read again; where windows such
        as this one are whole blocks, of its own: its bands are read one after the other.
    """
    rows, columns = block
    edges: Sequence[tuple[int, int]] = (
        (window.row, rows),
        (window.row + window.height, rows),
        (window.column, columns),
        (window.column + window.width, columns),
    )
    if not any(edge % side for edge, side in edges):
        return window.height * window.width * pixel_bytes
    touched = -(-window.height // rows) + 1
    return touched * rows * width * pixel_bytes
