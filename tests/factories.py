"""Makes the rasters that tests read, in memory."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import rasterio
from rasterio.control import GroundControlPoint
from rasterio.crs import CRS
from rasterio.errors import NotGeoreferencedWarning
from rasterio.io import MemoryFile
from rasterio.transform import Affine

Array = npt.NDArray[Any]
Values = npt.ArrayLike | Callable[[Array, Array, Array], npt.ArrayLike]


def make_raster(
    *,
    height: int = 32,
    width: int = 48,
    bands: int = 4,
    dtype: str = "uint16",
    crs: str | None = "EPSG:32632",
    transform: Affine | None = None,
    nodata: float | None = None,
    descriptions: Sequence[str | None] | None = None,
    values: Values | None = None,
    seed: int = 0,
    mask: npt.ArrayLike | None = None,
    driver: str = "GTiff",
    gcps: Sequence[GroundControlPoint] | None = None,
    tags: Mapping[str, str] | None = None,
    image_tags: Mapping[str, str] | None = None,
    band_tags: Mapping[int, Mapping[str, str]] | None = None,
    palette: Mapping[int, tuple[int, ...]] | None = None,
    scaling: tuple[float, float] | None = None,
    **creation_options: Any,
) -> bytes:
    """The bytes of a raster file.

    Args:
        height: Rows in pixels.
        width: Columns in pixels.
        bands: Number of bands.
        dtype: Data type of all bands, as rasterio names it.
        crs: Coordinate reference system; None leaves it out.
        transform: Affine transform. By default, if there is a `crs` and no `gcps`, pixels of 10 m
            or 0.0001° from a corner in southern Germany, which fits the default `crs`.
        nodata: Value that the file declares as nodata.
        descriptions: A name for each band.
        values: An array, which decides bands, height and width (of two dimensions: one band), a
            number for all pixels, or a function of (band, row, column), each counted from 0, that
            is called once with index arrays. By default drawn from `seed`: integers from 1 to
            9,998 or to one less than the type's greatest, otherwise numbers in (0, 1].
        seed: What the default values are drawn from.
        mask: Where pixels are valid (height, width), stored as the file's own mask (GTiff, COG).
        driver: GDAL's name of the format. Others than GTiff and COG may drop the georeference.
        gcps: Ground control points, in `crs`, in place of a transform.
        tags: Metadata of the file.
        image_tags: Metadata of the file in GDAL's domain IMAGERY.
        band_tags: Metadata of bands, by their numbers from 1.
        palette: Red, green and blue of the only band's values.
        scaling: Factor and offset that the file declares for all bands.
        **creation_options: What the driver takes, such as `tiled`, `compress`, `photometric`.

    Raises:
        ValueError: The values do not fit into an integer `dtype`, or the format holds no mask.
    """
    if mask is not None and driver not in ("GTiff", "COG"):
        raise ValueError(f"no mask within a file of the driver {driver}")
    pixels = _pixels(values, (bands, height, width), np.dtype(dtype), seed)
    if transform is None and crs is not None and not gcps:
        transform = _default_transform(CRS.from_user_input(crs))
    profile = {"crs": crs, "transform": transform, "nodata": nodata, **creation_options}
    with warnings.catch_warnings(), rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with MemoryFile() as memory:
            count, rows, columns = pixels.shape
            with memory.open(
                driver=driver, count=count, height=rows, width=columns, dtype=dtype, **profile
            ) as raster:
                if scaling:
                    raster.scales, raster.offsets = ([one] * count for one in scaling)
                if palette:
                    raster.write_colormap(1, dict(palette))
                raster.write(pixels)
                if gcps:
                    raster.gcps = (list(gcps), crs and CRS.from_user_input(crs))
                for band, description in enumerate(descriptions or (), start=1):
                    raster.set_band_description(band, description)
                if tags:
                    raster.update_tags(**tags)
                if image_tags:
                    raster.update_tags(ns="IMAGERY", **image_tags)
                for band, told in (band_tags or {}).items():
                    raster.update_tags(band, **told)
                if mask is not None:
                    raster.write_mask(np.asarray(mask, np.bool_))
            return bytes(memory.read())


def _pixels(
    values: Values | None, shape: tuple[int, int, int], dtype: np.dtype[Any], seed: int
) -> Array:
    if values is None:
        return _random(shape, dtype, seed)
    given = np.asarray(values(*np.indices(shape)) if callable(values) else values)
    if callable(values) or given.ndim == 0:
        given = np.broadcast_to(given, shape)
    elif given.ndim == 2:
        given = given[np.newaxis]
    with np.errstate(invalid="ignore"):  # said below
        pixels = given.astype(dtype)
    if dtype.kind in "iu" and not np.array_equal(pixels, given):
        raise ValueError(f"some values do not fit into {dtype}")
    return pixels


def _random(shape: tuple[int, int, int], dtype: np.dtype[Any], seed: int) -> Array:
    generator = np.random.default_rng(seed)
    if dtype.kind in "iu":
        # Neither 0 nor 9999 nor the greatest value of a type: those often stand for nodata.
        end = min(9_998, np.iinfo(dtype).max - 1)
        return generator.integers(1, end, shape, dtype, endpoint=True)
    return (1 - generator.random(shape)).astype(dtype)


def _default_transform(crs: CRS) -> Affine:
    if crs.is_geographic:
        return Affine(0.0001, 0, 10.3, 0, -0.0001, 47.9)
    return Affine(10, 0, 600_000, 0, -10, 5_300_000)
