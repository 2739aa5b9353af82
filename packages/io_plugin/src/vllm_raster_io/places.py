"""Where on Earth a window lies."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from rasterio.control import GroundControlPoint
from rasterio.crs import CRS
from rasterio.io import DatasetReader
from rasterio.transform import Affine
from rasterio.warp import transform

from vllm_raster_io.datasets import GDAL_ERRORS

_GEOGRAPHIC = "EPSG:4326"

Array = npt.NDArray[np.float64]


def centres(dataset: DatasetReader, middles: Sequence[tuple[float, float]]) -> Array | None:
    """Latitude and longitude in degrees, WGS 84, of the centre of each window.

    That is the middle of the window as it is cut, before a network pads it: where a scene is
    smaller than a window, or its last window is, the middle of those pixels.

    Args:
        dataset: The scene.
        middles: Row and column of each, in pixels from the corner of the scene.

    Returns:
        (windows, 2) in the order (latitude, longitude), which is that of training; NaN for a
        window that is not on Earth, None where the dataset does not tell where any lies.
    """
    crs, to_ground = _reference(dataset)
    if crs is None or to_ground is None or not (crs.is_geographic or crs.is_projected):
        return None  # of a geocentric system, columns and rows are but two of three axes
    x, y = to_ground @ np.array([(column, row, 1) for row, column in middles]).T
    longitude, latitude = _geographic(crs, x, y)
    # Longitudes from 0 to 360 are common, and scenes reach across the date line; NaN is no place.
    known = (np.abs(latitude) <= 90) & (np.abs(longitude) <= 360)
    if not known.any():
        return None
    beyond = np.abs(longitude) > 180
    longitude[beyond & known] = (longitude[beyond & known] + 180) % 360 - 180
    return np.where(known[:, None], np.stack([latitude, longitude], axis=1), np.nan)


def _geographic(crs: CRS, x: Array, y: Array) -> Array:
    """Longitudes and latitudes (2, points); NaN for a place beside the Earth, or on another."""
    try:
        return np.array(transform(crs, _GEOGRAPHIC, x, y))
    except GDAL_ERRORS:
        # One point that cannot be transformed fails all.
        if len(x) == 1:
            return np.full((2, 1), np.nan)
        half = len(x) // 2
        parts = ((x[:half], y[:half]), (x[half:], y[half:]))
        return np.concatenate([_geographic(crs, *part) for part in parts], axis=1)


def _reference(dataset: DatasetReader) -> tuple[Any, Array | None]:
    """The reference system, and the matrix from (column, row, 1) to its x and y."""
    points, points_crs = dataset.gcps
    if points:
        return points_crs, _fitted(points)
    place = dataset.transform
    if place == Affine.identity() or place.a * place.e == place.b * place.d:
        return dataset.crs, None  # there is none, or all pixels lie on one line
    return dataset.crs, np.array(place[:6]).reshape(2, 3)


def _fitted(points: Sequence[GroundControlPoint]) -> Array | None:
    """The matrix that fits the points best; None where they lie on one line or nowhere."""
    pixels = np.array([(one.col, one.row, 1) for one in points])
    ground = np.array([(one.x, one.y) for one in points])
    if not (np.isfinite(pixels).all() and np.isfinite(ground).all()):
        return None
    matrix, _, rank, _ = np.linalg.lstsq(pixels, ground, rcond=None)
    return matrix.T if rank == 3 else None
