"""The part of a scene that a request is about, and the size of its pixels for the network."""

import math
import re
from dataclasses import dataclass

from rasterio.crs import CRS
from rasterio.transform import Affine
from rasterio.warp import transform_bounds

from vllm_raster_io.datasets import GDAL_ERRORS
from vllm_raster_io.errors import RequestError
from vllm_raster_io.georeference import Georeference, placed
from vllm_raster_io.quoting import quoted
from vllm_raster_io.requests import RasterRequest
from vllm_raster_io.tiling import Window

_AUTHORITY = re.compile(r"(EPSG|ESRI|OGC|IAU_2015|IGNF):([A-Za-z0-9]+)", re.IGNORECASE)
_ROUNDING = 1e-6
"""Pixels by which a box may reach into another pixel without meaning it."""
_FINEST, _COARSEST = 1 / 16, 32
_DENSIFIED = 21
"""Points on each side of a box that are brought to the file's system; a side becomes a curve."""


@dataclass(frozen=True)
class Region:
    """A part of a scene, in its pixels, and how large those of the network are.

    Attributes:
        window: The part.
        ratios: Size of the network's pixels in pixels of the scene, down the rows and along the
            columns.
        resolution: The same in the unit of the reference system, along the columns and down the
            rows; None where the scene's own pixels are taken.
    """

    window: Window
    ratios: tuple[float, float] = (1.0, 1.0)
    resolution: tuple[float, float] | None = None


def find_region(request: RasterRequest, place: Georeference, height: int, width: int) -> Region:
    """Finds what a request asks for in a scene of this size.

    Raises:
        RequestError: It asks for what lies outside, or for a place of a scene that tells none.
    """
    window = Window(0, 0, height, width)
    if request.window is not None:
        window = _asked(request.window, height, width)
    if request.bbox is not None:
        window = _within(request.bbox, request.bbox_crs, place, height, width)
    if request.resolution is None:
        return Region(window)
    asked = request.resolution
    across, down = asked if isinstance(asked, list) else (asked, asked)
    transform = _transform(place, "resolution")
    sides = math.hypot(transform.b, transform.e), math.hypot(transform.a, transform.d)
    if not all(0 < side < math.inf for side in sides):
        raise RequestError("`resolution` is refused: the scene's pixels have no size")
    ratios = down / sides[0], across / sides[1]
    if not all(_FINEST <= one <= _COARSEST for one in ratios):
        raise RequestError(
            f"`resolution` may be from 1/{1 / _FINEST:.0f} of the size of the scene's pixels to "
            f"{_COARSEST} times it, got {quoted(asked)}, which is "
            f"{ratios[1]:.4g} times it across and {ratios[0]:.4g} times it down"
        )
    # To one part in a billion it is the scene's own.
    ratios = (_rounded(ratios[0]), _rounded(ratios[1]))
    return Region(window, ratios, (float(across), float(down)))


def _rounded(ratio: float) -> float:
    return float(round(ratio)) if abs(ratio - round(ratio)) < 1e-9 * ratio else ratio


def _asked(window: list[int], height: int, width: int) -> Window:
    column, row, columns, rows = window
    if column + columns > width or row + rows > height:
        raise RequestError(
            "`window` must lie within the scene: [column, row, columns, rows] of a scene of "
            f"{width} columns and {height} rows, got {window}"
        )
    return Window(row, column, rows, columns)


def _within(
    bbox: list[float], crs: str | None, place: Georeference, height: int, width: int
) -> Window:
    """The fewest pixels that cover the part of a box that lies on the scene."""
    transform = _transform(place, "bbox")
    if transform.is_degenerate:
        raise RequestError("`bbox` is refused: all pixels of the scene lie on one line")
    left, bottom, right, top = bbox if crs is None else _brought(bbox, crs, place)
    corners = [placed(~transform, x, y) for x in (left, right) for y in (bottom, top)]
    if not all(math.isfinite(one) for corner in corners for one in corner):
        raise RequestError(f"`bbox` must hold numbers that can be places, got {bbox}")
    first_column, last_column = _cells([column for column, _ in corners], width)
    first_row, last_row = _cells([row for _, row in corners], height)
    if first_column >= last_column or first_row >= last_row:
        west, south, east, north = _bounds(transform, height, width)
        raise RequestError(
            f"`bbox` holds no pixel of the scene, which reaches from ({west:.10g}, {south:.10g}) "
            f"to ({east:.10g}, {north:.10g}) in its reference system, got {bbox}"
            + (f" in {crs}" if crs else "")
        )
    return Window(first_row, first_column, last_row - first_row, last_column - first_column)


def _cells(places: list[float], size: int) -> tuple[int, int]:
    first = math.floor(max(-1.0, min(places)) + _ROUNDING)
    last = math.ceil(min(size + 1.0, max(places)) - _ROUNDING)
    # A box thinner than what is rounding still lies somewhere.
    return max(0, first), min(size, max(first + 1, last))


def _brought(bbox: list[float], crs: str, place: Georeference) -> tuple[float, ...]:
    if place.crs is None:
        raise RequestError(
            "`bbox_crs` is refused: the scene has no reference system. Leave it out, and give "
            "`bbox` in the coordinates of the scene's transform, or `window` in pixels"
        )
    # Only by number: a text of another kind may name a file or a URL, which would be read.
    named = _AUTHORITY.fullmatch(crs)
    try:
        if named is None:
            raise ValueError
        known = CRS.from_authority(named[1].upper(), named[2].upper())
    except (*GDAL_ERRORS, ValueError):
        raise RequestError(
            "`bbox_crs` must be a reference system by its authority and number, such as "
            f"EPSG:4326, got {quoted(crs)}"
        ) from None
    try:
        brought = transform_bounds(known, place.crs, *bbox, densify_pts=_DENSIFIED)
    except GDAL_ERRORS:
        brought = (math.nan,) * 4
    if not all(map(math.isfinite, brought)):
        raise RequestError(f"`bbox` {bbox} in {crs} has no place in the scene's reference system")
    return tuple(brought)


def _transform(place: Georeference, field: str) -> Affine:
    if place.transform is None:
        raise RequestError(
            f"`{field}` is refused: the scene's file has no transform that tells where its pixels "
            "lie. Give `window` in pixels"
            if field == "bbox"
            else f"`{field}` is refused: the scene's file does not tell how large its pixels are"
        )
    return place.transform


def _bounds(transform: Affine, height: int, width: int) -> tuple[float, float, float, float]:
    corners = [placed(transform, x, y) for x in (0, width) for y in (0, height)]
    xs, ys = zip(*corners, strict=True)
    return min(xs), min(ys), max(xs), max(ys)
