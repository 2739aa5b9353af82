"""Reading scenes.

A scene is opened from memory by one of a few drivers, whatever its bytes claim to be, and
without a look at any other file: no side-car, no reference, no network.
"""

import threading
import warnings
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import rasterio
from rasterio.enums import ColorInterp, MaskFlags
from rasterio.errors import NotGeoreferencedWarning, RasterioError
from rasterio.io import DatasetReader
from rasterio.windows import Window as RasterioWindow

from vllm_raster_io.errors import RasterError
from vllm_raster_io.limits import LIMITS
from vllm_raster_io.tiling import Window
from vllm_raster_io.uploads import Upload

_DRIVERS = {
    b"II*\0": "GTiff",
    b"MM\0*": "GTiff",
    b"II+\0": "GTiff",  # BigTIFF
    b"MM\0+": "GTiff",
    b"\x89PNG": "PNG",
    b"\xff\xd8\xff": "JPEG",
}
_ALONE = {
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",  # other requests' files are beside this one
    "GDAL_NUM_THREADS": "1",
    "GTIFF_POINT_GEO_IGNORE": "NO",
}


def accept_missing_reference() -> None:
    """Silences, for this process, the warning that a raster does not say where it lies."""
    warnings.filterwarnings("ignore", category=NotGeoreferencedWarning)


class Scene:
    """One open raster.

    It may be used from several threads; reading is one at a time.

    Args:
        upload: The file, which the scene closes.

    Raises:
        RasterError: It is no GeoTIFF, PNG or JPEG that GDAL can open.
        LimitError: The raster is larger than allowed.
    """

    def __init__(self, upload: Upload) -> None:
        driver = _driver(upload.head)
        self._lock = threading.Lock()
        self._upload = upload
        try:
            with rasterio.Env(**_ALONE):
                self._dataset: DatasetReader = upload.memory.open(driver=driver)
        except RasterioError as error:
            upload.close()
            raise RasterError(f"The {driver} file cannot be opened: {error}") from None
        try:
            LIMITS.check("pixels", self.height * self.width)
            LIMITS.check("bands", self.count)
            self._masks = self._find_masks()
        except Exception:
            self.close()
            raise

    @property
    def height(self) -> int:
        """Rows."""
        return int(self._dataset.height)

    @property
    def width(self) -> int:
        """Columns."""
        return int(self._dataset.width)

    @property
    def count(self) -> int:
        """Bands, an alpha band among them."""
        return int(self._dataset.count)

    @property
    def descriptions(self) -> list[str | None]:
        """Names of the bands as the file gives them."""
        return list(self._dataset.descriptions)

    @property
    def alpha(self) -> list[bool]:
        """For each band, whether it is an alpha band."""
        return [one == ColorInterp.alpha for one in self._dataset.colorinterp]

    @property
    def dataset(self) -> DatasetReader:
        """The open dataset, for its georeference and tags; read pixels through `read`."""
        return self._dataset

    def dtype(self, indices: Sequence[int]) -> np.dtype[Any]:
        """The type that holds the values of these bands, counted from 0."""
        return np.result_type(*(np.dtype(self._dataset.dtypes[i]) for i in indices))

    def read(
        self, window: Window, indices: Sequence[int]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Reads bands of a window.

        Args:
            window: Lies within the scene.
            indices: Bands, counted from 0, in the order wanted.

        Returns:
            Pixels (bands, height, width) in the file's type, and whether each may be used
            (height, width): a pixel may not be if any of the bands is nodata, NaN, infinite or
            masked there.

        Raises:
            RasterError: The file is damaged.
        """
        bands = [i + 1 for i in indices]
        place = RasterioWindow(window.column, window.row, window.width, window.height)
        try:
            with self._lock, rasterio.Env(**_ALONE):
                pixels = self._dataset.read(bands, window=place)
                masks = [self._dataset.read_masks(band, window=place) for band in self._masks]
        except RasterioError as error:
            raise RasterError(
                f"Rows {window.row} to {window.row + window.height - 1} of the raster cannot be "
                f"read, the file is damaged: {error}"
            ) from None
        valid = np.ones(pixels.shape[1:], dtype=np.bool_)
        for mask in masks:
            valid &= mask > 0
        for band, index in zip(pixels, indices, strict=True):
            _exclude(valid, band, self._dataset.nodatavals[index])
        return pixels, valid

    def close(self) -> None:
        """Gives the memory back; a scene may be closed twice."""
        with self._lock:
            self._dataset.close()
            self._upload.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _find_masks(self) -> list[int]:
        """The bands whose masks must be read: one stands for all where they share it."""
        shared = {MaskFlags.per_dataset, MaskFlags.alpha}
        flags = self._dataset.mask_flag_enums
        if any(shared & set(one) for one in flags):
            return [next(i for i, one in enumerate(flags, 1) if shared & set(one))]
        # Without a flag the band has a mask of its own. Nodata is compared here, not by GDAL.
        return [i for i, one in enumerate(flags, 1) if not one]


def _driver(head: bytes) -> str:
    for magic, driver in _DRIVERS.items():
        if head.startswith(magic):
            return driver
    raise RasterError(
        f"The data must be a GeoTIFF, PNG or JPEG file, but begins with {head[:8]!r}, "
        "as none of them does"
    )


def _exclude(valid: npt.NDArray[np.bool_], band: npt.NDArray[Any], nodata: float | None) -> None:
    """Takes a band's nodata, NaN and infinite pixels out of the valid ones, in place."""
    if band.dtype.kind in "fc":
        valid &= np.isfinite(band)
    if nodata is None or not np.isfinite(nodata):
        return
    if band.dtype.kind in "iu":
        limits = np.iinfo(band.dtype)
        if nodata != int(nodata) or not limits.min <= nodata <= limits.max:
            return  # no pixel of this type can have that value
    valid &= band != band.dtype.type(nodata)
