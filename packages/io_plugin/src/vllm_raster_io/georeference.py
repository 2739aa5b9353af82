"""Where a raster lies, and where a part of it or the same in other pixels does."""

import math
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Self

from rasterio.control import GroundControlPoint
from rasterio.crs import CRS
from rasterio.io import DatasetReader
from rasterio.rpc import RPC
from rasterio.transform import Affine

from vllm_raster_io.errors import RasterError
from vllm_raster_io.tiling import Window


@dataclass(frozen=True)
class Georeference:
    """All that GDAL knows of where pixels lie; what a file does not say is not there.

    Attributes:
        crs: Reference system of the transform or of the control points.
        transform: From (column, row), counted from the corner of the first pixel.
        gcps: Ground control points, which then are all there is but for `rpcs`.
        rpcs: Rational polynomials.
        is_point: Whether the file says that its pixels are points.
    """

    crs: CRS | None = None
    transform: Affine | None = None
    gcps: tuple[GroundControlPoint, ...] = ()
    rpcs: RPC | None = None
    is_point: bool = False

    @classmethod
    def of(cls, dataset: DatasetReader) -> Self:
        """That of an open file."""
        points, points_crs = dataset.gcps
        there = not points and dataset.transform != Affine.identity()
        return cls(
            crs=points_crs if points else dataset.crs,
            transform=dataset.transform if there else None,
            gcps=tuple(points),
            rpcs=dataset.rpcs,
            is_point=dataset.tags().get("AREA_OR_POINT") == "Point",
        )

    def checked(self) -> Self:
        """The same, whose transform can be told in an answer.

        Raises:
            RasterError: One of its numbers is infinite or none.
        """
        numbers = () if self.transform is None else self.transform[:6]
        if not all(map(math.isfinite, numbers)):
            raise RasterError(
                "The transform of the scene's file, or of the part asked for, must be made of "
                f"finite numbers, but is {[float(one) for one in numbers]}: "
                "mend it, or send the file without one"
            )
        return self

    def part(self, window: Window) -> Self:
        """That of a window of the raster."""
        row, column = window.row, window.column
        if not row and not column:
            return self
        transform = self.transform
        if transform is not None:
            a, b, _, d, e, _ = transform[:6]
            x, y = placed(transform, column, row)
            transform = Affine(a, b, x, d, e, y)
        gcps = tuple(_point(one, one.row - row, one.col - column) for one in self.gcps)
        rpcs = copy(self.rpcs)  # the file keeps its own
        if rpcs is not None:
            rpcs.line_off, rpcs.samp_off = rpcs.line_off - row, rpcs.samp_off - column
        return replace(self, transform=transform, gcps=gcps, rpcs=rpcs)

    def scaled(self, up: int, down: int = 1) -> Self:
        """That of `up` pixels in place of each `down`, along both axes; the corner stays."""
        if up == down:
            return self
        transform = self.transform
        if transform is not None:
            a, b, c, d, e, f = transform[:6]
            a, b, d, e = (one * down / up for one in (a, b, d, e))
            transform = Affine(a, b, c, d, e, f)
        gcps = tuple(_point(one, one.row * up / down, one.col * up / down) for one in self.gcps)
        rpcs = copy(self.rpcs)
        if rpcs is not None:
            # Line and sample count from the middle of the first pixel, which moves with its size.
            shift = (up / down - 1) / 2
            rpcs.line_off = rpcs.line_off * up / down + shift
            rpcs.samp_off = rpcs.samp_off * up / down + shift
            rpcs.line_scale = rpcs.line_scale * up / down
            rpcs.samp_scale = rpcs.samp_scale * up / down
        return replace(self, transform=transform, gcps=gcps, rpcs=rpcs)

    def profile(self) -> dict[str, Any]:
        """What rasterio takes when a file is made.

        Points of a pixel-is-point file are moved by half a pixel: write it under
        GTIFF_POINT_GEO_IGNORE, for GDAL moves them the wrong way.
        """
        place: dict[str, Any] = {}
        if self.gcps:
            half = 0.5 if self.is_point else 0.0
            points = [_point(one, one.row - half, one.col - half) for one in self.gcps]
            place.update(gcps=points, crs=self.crs or CRS())
        else:
            if self.crs is not None:
                place["crs"] = self.crs
            if self.transform is not None:
                place["transform"] = self.transform
        if self.rpcs is not None:
            place["rpcs"] = self.rpcs
        return place


def placed(transform: Affine, x: float, y: float) -> tuple[float, float]:
    """Where a transform brings a point."""
    # Written out, for the operator for it depends on the version of affine.
    a, b, c, d, e, f = transform[:6]
    return a * x + b * y + c, d * x + e * y + f


def _point(point: GroundControlPoint, row: float, column: float) -> GroundControlPoint:
    return GroundControlPoint(row, column, point.x, point.y, point.z, point.id, point.info)
