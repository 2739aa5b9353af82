"""Writing maps as GeoTIFF, in the scene's place."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import rasterio
from rasterio.control import GroundControlPoint
from rasterio.crs import CRS
from rasterio.io import DatasetReader, MemoryFile
from rasterio.rpc import RPC
from rasterio.transform import Affine

from vllm_raster_io.contract import ClassContract, OutputContract

_BLOCK = 256
_KEPT_TAGS = ("AREA_OR_POINT", "TIFFTAG_DATETIME")
_UNCOLOURED = (128, 128, 128)


@dataclass(frozen=True)
class RasterMap:
    """A map and the value of its invalid pixels.

    Attributes:
        pixels: (bands, height, width).
        nodata: A value that no prediction takes.
    """

    pixels: npt.NDArray[Any]
    nodata: float


def class_dtype(classes: int) -> npt.DTypeLike:
    """The smallest integer type for ids from 0, with its greatest value left for nodata."""
    return np.uint8 if classes <= np.iinfo(np.uint8).max else np.uint16


def class_map(ids: npt.NDArray[Any], invalid: npt.NDArray[np.bool_]) -> RasterMap:
    """Ids (height, width), as they are, with nodata where the scene is invalid; in place."""
    nodata = np.iinfo(ids.dtype).max
    ids[invalid] = nodata
    return RasterMap(ids[None], nodata)


def value_map(values: npt.NDArray[np.float32], invalid: npt.NDArray[np.bool_]) -> RasterMap:
    """Values (bands, height, width), with NaN where the scene is invalid; in place."""
    values[:, invalid] = np.nan
    return RasterMap(values, np.nan)


def write_geotiff(
    raster: RasterMap,
    scene: DatasetReader,
    output: OutputContract,
    tags: Mapping[str, str] | None = None,
) -> bytes:
    """Writes a map as a tiled and compressed GeoTIFF.

    Its profile is made afresh; from the scene come only the place (reference system, transform,
    ground control points, rational polynomials, pixel-is-point) and the time.

    Args:
        raster: The map, `output.upscale` pixels to each of the scene's along each axis, or one to
            `output.downscale` of them.
        scene: What the map was made of.
        output: Names, colours and units.
        tags: In place of the scene's tags; of either, only those are kept that hold for the map.
    """
    tags = scene.tags() if tags is None else tags
    bands, height, width = raster.pixels.shape
    # Control points of pixel-is-point files are moved here, for GDAL moves them the wrong way.
    with rasterio.Env(GTIFF_POINT_GEO_IGNORE=bool(scene.gcps[0])), MemoryFile() as memory:
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
            compress="deflate",
            predictor=3 if raster.pixels.dtype.kind == "f" else 2,
            bigtiff="if_safer",
            interleave="band",
            **_place(scene, output),
        ) as target:
            target.update_tags(**{k: v for k, v in tags.items() if k in _KEPT_TAGS})
            if output.kind == "classes":
                _describe_classes(target, output.classes)
            else:
                target.descriptions = [one.name for one in output.bands]
                target.units = [one.unit or "" for one in output.bands]
            target.write(raster.pixels)
        return bytes(memory.getbuffer())


def _place(scene: DatasetReader, output: OutputContract) -> dict[str, Any]:
    """The scene's georeference, in pixels of the map; none is invented."""
    up, down = output.upscale, output.downscale
    place: dict[str, Any] = {}
    points, points_crs = scene.gcps
    if points:
        corner = 0.5 if scene.tags().get("AREA_OR_POINT") == "Point" else 0.0
        points = [_scaled_point(one, up, down, corner) for one in points]
        place.update(gcps=points, crs=points_crs or CRS())
    else:
        if scene.crs is not None:
            place["crs"] = scene.crs
        if scene.transform != Affine.identity():
            a, b, c, d, e, f = scene.transform[:6]
            a, b, d, e = (one * down / up for one in (a, b, d, e))
            place["transform"] = Affine(a, b, c, d, e, f)
    if scene.rpcs is not None:
        place["rpcs"] = _scaled_rpcs(scene.rpcs, up, down)
    return place


def _scaled_point(
    point: GroundControlPoint, up: int, down: int, corner: float
) -> GroundControlPoint:
    row, col = point.row * up / down - corner, point.col * up / down - corner
    return GroundControlPoint(row, col, point.x, point.y, point.z, point.id, point.info)


def _scaled_rpcs(rpcs: RPC, up: int, down: int) -> RPC:
    rpcs = copy(rpcs)  # the scene keeps its own
    # Line and sample count from the middle of the first pixel, which moves with their size.
    shift = (up / down - 1) / 2
    rpcs.line_off = rpcs.line_off * up / down + shift
    rpcs.samp_off = rpcs.samp_off * up / down + shift
    rpcs.line_scale = rpcs.line_scale * up / down
    rpcs.samp_scale = rpcs.samp_scale * up / down
    return rpcs


def _describe_classes(target: Any, classes: tuple[ClassContract, ...]) -> None:
    target.set_band_description(1, "class")
    target.update_tags(1, **{f"CLASS_{i}": one.name for i, one in enumerate(classes)})
    if target.dtypes[0] == "uint8":
        colours = {i: rgb(one.color) for i, one in enumerate(classes)}
        target.write_colormap(1, colours)


def rgb(color: str | None) -> tuple[int, int, int]:
    """The three numbers of `#rrggbb`; gray for None."""
    if color is None:
        return _UNCOLOURED
    return (int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16))


@contextmanager
def opened(data: bytes) -> Iterator[DatasetReader]:
    """A map as `write_geotiff` wrote it, open for reading."""
    with MemoryFile(data) as memory, memory.open(driver="GTiff") as dataset:
        yield dataset
