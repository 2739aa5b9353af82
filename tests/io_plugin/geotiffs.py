"""Maps as files, and how a careful user opens them."""

import logging
import struct
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from rasterio.errors import NotGeoreferencedWarning
from rasterio.io import DatasetReader, MemoryFile

from vllm_raster_io.contract import BandContract, ClassContract, OutputContract
from vllm_raster_io.georeference import Georeference
from vllm_raster_io.maps import RasterMap, write_cog, write_geotiff
from vllm_raster_io.tiling import Window

from ..factories import make_raster
from .scenes import open_scene

Writer = Callable[..., bytes]
WRITERS: dict[str, Writer] = {"geotiff": write_geotiff, "cog": write_cog}


@contextmanager
def reading(content: bytes) -> Iterator[DatasetReader]:
    """Opens a map as a careful user would: nothing may be warned of, also not by GDAL."""
    said: list[logging.LogRecord] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = said.append  # type: ignore[method-assign]
    logging.getLogger("rasterio").addHandler(handler)
    try:
        with MemoryFile(content) as memory:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                # That a map of a scene without a place has none is another test's.
                warnings.simplefilter("ignore", NotGeoreferencedWarning)
                dataset = memory.open()
            yield dataset
    finally:
        logging.getLogger("rasterio").removeHandler(handler)
    assert not said, [record.getMessage() for record in said]


def map_of(
    scene: bytes,
    upscale: int = 1,
    kind: str = "classes",
    *,
    downscale: int = 1,
    window: Window | None = None,
    writer: Writer = write_geotiff,
) -> bytes:
    """A map of a scene, or of a part of it."""
    how: Any = {"downscale": downscale, "window": window, "writer": writer}
    with open_scene(scene) as source:
        return write(source.dataset, upscale, kind, **how)


def write(
    scene: DatasetReader,
    upscale: int = 1,
    kind: str = "classes",
    *,
    downscale: int = 1,
    window: Window | None = None,
    writer: Writer = write_geotiff,
) -> bytes:
    window = window or Window(0, 0, scene.height, scene.width)
    size = [-(-side // downscale) * upscale for side in (window.height, window.width)]
    pixels = map_pixels(kind, *size)
    if kind == "classes":
        raster = RasterMap(pixels, 255, ("class",), colours=((1, 2, 3), (4, 5, 6), (7, 8, 9)))
    else:
        raster = RasterMap(pixels, np.nan, ("a", "b"))
    place = Georeference.of(scene).part(window).scaled(upscale, downscale)
    return writer(raster, place, scene.tags())


def map_pixels(kind: str, height: int, width: int) -> np.ndarray:
    if kind == "classes":
        return (np.arange(height * width).reshape(1, height, width) % 3).astype(np.uint8)
    return np.linspace(0, 1, 2 * height * width, dtype=np.float32).reshape(2, height, width)


def written(raster: RasterMap, writer: Writer = write_geotiff) -> bytes:
    """A map of a scene of its size."""
    _, height, width = raster.pixels.shape
    with open_scene(make_raster(bands=1, height=height, width=width)) as scene:
        return writer(raster, Georeference.of(scene.dataset), scene.dataset.tags())


def class_output(count: int) -> OutputContract:
    names = tuple(ClassContract(name=f"class {i}") for i in range(count))
    return OutputContract(kind="classes", classes=names)


def band_output(*names: str) -> OutputContract:
    return OutputContract(kind="values", bands=tuple(BandContract(name=name) for name in names))


def tags_of(content: bytes) -> set[int]:
    """The numbers of a little-endian TIFF's tags."""
    (at,) = struct.unpack_from("<I", content, 4)
    (count,) = struct.unpack_from("<H", content, at)
    return {struct.unpack_from("<H", content, at + 2 + 12 * i)[0] for i in range(count)}
