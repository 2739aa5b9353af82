"""Writing maps as GeoTIFF, in the scene's place."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import rasterio
from rasterio import shutil
from rasterio.io import DatasetReader, MemoryFile

from vllm_raster_io.georeference import Georeference
from vllm_raster_io.options import Compression

_BLOCK = 256
_COG_BLOCK = 512
_COG_PREDICTORS = {1: "NO", 2: "STANDARD", 3: "FLOATING_POINT"}
INSTRUCTION_TAG = "PROMPT"
"""Of a map: what it was asked for in words."""
_KEPT_TAGS = ("AREA_OR_POINT", "TIFFTAG_DATETIME", INSTRUCTION_TAG)
_WRITERS = str(min(4, os.cpu_count() or 1))
"""Threads that compress a map: it is the last thing that its client waits for."""
_UNCOLOURED = (128, 128, 128)

Colour = tuple[int, int, int]


@dataclass(frozen=True)
class RasterMap:
    """A map, the value of its invalid pixels, and what its numbers are.

    Attributes:
        pixels: (bands, height, width).
        nodata: A value that no prediction takes.
        names: One a band.
        units: One a band, or none.
        scale: What one count stands for; None where numbers stand for themselves.
        colours: Of the values from 0 of a single band.
        tags: Metadata of bands, one a band, or none.
    """

    pixels: npt.NDArray[Any]
    nodata: float
    names: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    scale: float | None = None
    colours: tuple[Colour, ...] = ()
    tags: tuple[Mapping[str, str], ...] = ()


def write_geotiff(
    raster: RasterMap,
    place: Georeference,
    tags: Mapping[str, str],
    compression: Compression = "deflate",
) -> bytes:
    """Writes a map as a tiled GeoTIFF, a BigTIFF where it may be too large for another.

    Its profile is made afresh; from the scene come only the place (reference system, transform,
    ground control points, rational polynomials, pixel-is-point) and the time; what was asked for
    in words is a tag, `PROMPT`.

    Args:
        raster: The map.
        place: Where it lies.
        tags: The scene's, and what was asked; only those are kept that hold for the map.
        compression: Lossless, with the predictor that fits the type.
    """
    with _environment(place), MemoryFile() as memory:
        _write(memory, raster, place, tags, compression)
        return bytes(memory.getbuffer())


def write_cog(
    raster: RasterMap,
    place: Georeference,
    tags: Mapping[str, str],
    compression: Compression = "deflate",
) -> bytes:
    """Like `write_geotiff`, as a Cloud Optimized GeoTIFF with overviews.

    Overviews of ids are the nearest ones, of numbers their means.
    """
    with _environment(place), MemoryFile() as memory:
        predictor = _COG_PREDICTORS[_predictor(raster, compression)]
        # GDAL takes the interleave over, and lays a file by bands out as no COG.
        _write(memory, raster, place, tags, "none", "pixel")
        with MemoryFile() as target:
            shutil.copy(
                memory.name,
                target.name,
                driver="COG",
                compress=compression,
                predictor=predictor,
                overview_predictor=predictor,
                overview_resampling="nearest" if raster.colours else "average",
                blocksize=_COG_BLOCK,
                bigtiff="if_safer",
                num_threads=_WRITERS,
            )
            return bytes(target.getbuffer())


def _predictor(raster: RasterMap, compression: Compression) -> int:
    """TIFF's number of what is taken from each value before it is compressed."""
    # Classes whose numbers are close are no more alike than others.
    if compression == "none" or raster.colours:
        return 1
    return 3 if raster.pixels.dtype.kind == "f" else 2


def _environment(place: Georeference) -> rasterio.Env:
    # Control points of pixel-is-point files are moved here, for GDAL moves them the wrong way.
    return rasterio.Env(GTIFF_POINT_GEO_IGNORE=bool(place.gcps))


def _write(
    memory: MemoryFile,
    raster: RasterMap,
    place: Georeference,
    tags: Mapping[str, str],
    compression: Compression,
    interleave: str = "band",
) -> None:
    bands, height, width = raster.pixels.shape
    with memory.open(
        driver="GTiff",
        count=bands,
        height=height,
        width=width,
        dtype=raster.pixels.dtype,
        nodata=raster.nodata,
        tiled=True,
        blockxsize=_BLOCK,
        blockysize=_BLOCK,
        compress=compression,
        predictor=_predictor(raster, compression),
        bigtiff="if_safer",
        interleave=interleave,
        num_threads=_WRITERS,
        # Else three bands of bytes are taken for colours.
        photometric="palette" if _has_table(raster) else "minisblack",
        **place.profile(),
    ) as target:
        target.update_tags(**{k: v for k, v in tags.items() if k in _KEPT_TAGS})
        _describe(target, raster)
        target.write(raster.pixels)


def _describe(target: Any, raster: RasterMap) -> None:
    bands = len(raster.pixels)
    if raster.names:
        target.descriptions = raster.names
    if raster.units:
        target.units = raster.units
    for band, told in enumerate(raster.tags, 1):
        target.update_tags(band, **told)
    if raster.scale is not None:
        target.scales = (raster.scale,) * bands
        target.offsets = (0.0,) * bands
        target.update_tags(SCALE=repr(raster.scale), OFFSET="0")
    if _has_table(raster):
        target.write_colormap(1, dict(enumerate(raster.colours)))


def _has_table(raster: RasterMap) -> bool:
    return bool(raster.colours) and raster.pixels.dtype == np.uint8


def rgb(color: str | None) -> Colour:
    """The three numbers of `#rrggbb`; gray for None."""
    if color is None:
        return _UNCOLOURED
    return (int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16))


@contextmanager
def opened(data: bytes) -> Iterator[DatasetReader]:
    """A map as `write_geotiff` wrote it, open for reading."""
    with MemoryFile(data) as memory, memory.open(driver="GTiff") as dataset:
        yield dataset
