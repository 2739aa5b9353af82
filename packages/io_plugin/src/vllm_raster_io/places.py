"""Where on Earth a window lies."""

import numpy as np
import numpy.typing as npt
from rasterio.errors import RasterioError
from rasterio.io import DatasetReader
from rasterio.transform import from_gcps
from rasterio.warp import transform

from vllm_raster_io.tiling import Window

_GEOGRAPHIC = "EPSG:4326"


def centres(dataset: DatasetReader, windows: list[Window]) -> npt.NDArray[np.float64] | None:
    """Latitude and longitude in degrees, WGS 84, of the centre of each window.

    Returns:
        (windows, 2) in the order (latitude, longitude), which is that of training; None where
        the dataset does not tell where it lies.
    """
    points, gcps_crs = dataset.gcps
    if dataset.crs is not None:
        crs, affine = dataset.crs, dataset.transform
    elif points and gcps_crs is not None:
        crs, affine = gcps_crs, from_gcps(points)
    else:
        return None
    columns = np.array([one.column + one.width / 2 for one in windows])
    rows = np.array([one.row + one.height / 2 for one in windows])
    x, y = affine * (columns, rows)
    try:
        longitude, latitude = transform(crs, _GEOGRAPHIC, x, y)
    except RasterioError:
        return None  # a reference system that is not of this Earth
    places = np.stack([latitude, longitude], axis=1)
    return places if np.isfinite(places).all() else None
