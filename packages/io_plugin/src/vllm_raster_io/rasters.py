"""Reading scenes.

A scene is opened by one of a few drivers, whatever its bytes claim to be, and
without a look at any other file: no side-car, no reference, no network.
"""

import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import rasterio
from rasterio._err import CPLE_BaseError
from rasterio.enums import ColorInterp, Interleaving, MaskFlags
from rasterio.errors import CRSError, NotGeoreferencedWarning, RasterioError, RPCError
from rasterio.io import DatasetReader
from rasterio.windows import Window as RasterioWindow

from vllm_raster_io.chunks import check_chunks
from vllm_raster_io.closing import Closing
from vllm_raster_io.directories import check_directories
from vllm_raster_io.errors import RasterError
from vllm_raster_io.files import SceneFile
from vllm_raster_io.limits import LIMITS, Tally
from vllm_raster_io.tiling import Window

_DRIVERS = {
    b"II*\0": "GTiff",
    b"MM\0*": "GTiff",
    b"II+\0": "GTiff",  # BigTIFF
    b"MM\0+": "GTiff",
    b"\x89PNG": "PNG",
    b"\xff\xd8\xff": "JPEG",
}
_CHECKS = {"GTiff": check_directories, "PNG": check_chunks}
_ALONE = {
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",  # other requests' files are beside this one
    "GDAL_NUM_THREADS": "1",
    "GDAL_PNG_WHOLE_IMAGE_OPTIM": "NO",  # it takes a cut off file for a whole one
    "GTIFF_POINT_GEO_IGNORE": "NO",
}
_WIDE = ("int64", "uint64")

GDAL_ERRORS = (RasterioError, CPLE_BaseError, CRSError, RPCError, UnicodeError)
"""What rasterio raises where a file is damaged or says what cannot be. It has no common base."""


def accept_missing_reference() -> None:
    """Silences, for this process, the warning that a raster does not say where it lies."""
    warnings.filterwarnings("ignore", category=NotGeoreferencedWarning)


class Scene(Closing):
    """One open raster.

    It may be used from several threads; reading is one at a time.

    Args:
        file: Where it is, which the scene closes.
        tally: What the files of one request have taken; this one is added to it.

    Attributes:
        descriptions: Names of the bands as the file gives them.
        alpha: For each band, whether it is an alpha band.

    Raises:
        RasterError: It is no GeoTIFF, PNG or JPEG that GDAL can open.
        LimitError: The raster is larger than allowed.
    """

    def __init__(self, file: SceneFile, tally: Tally | None = None) -> None:
        self._lock = threading.Lock()
        self._file = file
        tally = Tally() if tally is None else tally
        try:
            driver = _driver(file)
            if driver in _CHECKS:
                _CHECKS[driver](file.content, tally)
            with _alone(f"The {driver} file cannot be opened"):
                self._dataset: DatasetReader = file.open(driver)
        except Exception:
            file.close()
            raise
        try:
            _count(tally, "pixels", self.height * self.width)
            _count(tally, "bands", self.count)
            with _alone(f"What the {driver} file says about its pixels cannot be read"):
                self._learn()
            _count(tally, "block_bytes", self._block_bytes())
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
    def dataset(self) -> DatasetReader:
        """The open dataset, for its georeference and tags; read pixels through `read`."""
        return self._dataset

    def tags(self, index: int | None = None) -> dict[str, str]:
        """Metadata of the file, or of a band counted from 0; those of the image itself win.

        Raises:
            RasterError: The file is damaged.
        """
        band = 0 if index is None else index + 1
        with self._lock, _alone("What the file says of itself cannot be read"):
            return self._dataset.tags(band) | self._dataset.tags(band, ns="IMAGERY")

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
        # An alpha band that is asked for is taken for what the client says it is.
        alpha = [i for i, one in enumerate(self.alpha, 1) if one and i not in bands]
        masked = {*self._shared_mask, *(set(bands) & self._own_masks)}
        place = RasterioWindow(window.column, window.row, window.width, window.height)
        last = window.row + window.height - 1
        problem = f"Rows {window.row} to {last} of the raster cannot be read, the file is damaged"
        with self._lock, _alone(problem):
            pixels = self._dataset.read(bands, window=place)
            masks = [self._dataset.read_masks(band, window=place) for band in masked]
            masks.extend(self._dataset.read(band, window=place) for band in alpha)
        valid = np.ones(pixels.shape[1:], dtype=np.bool_)
        for mask in masks:
            valid &= mask > 0
        for band, index in zip(pixels, indices, strict=True):
            _exclude(valid, band, self._nodata[index])
        return pixels, valid

    def take_nodata(self, value: float | None) -> None:
        """Has a value be invalid in place of the file's own; None for no value. Masks stay."""
        self._nodata[:] = [value] * self.count
        self._own_masks -= self._masks_of_nodata

    def close(self) -> None:
        """Gives the memory back; a scene may be closed twice."""
        with self._lock:
            self._dataset.close()
            self._file.close()

    def _learn(self) -> None:
        """Reads what the file says about its pixels, for GDAL reads that when it is first asked."""
        dataset = self._dataset
        self.descriptions: list[str | None] = list(dataset.descriptions)
        self.alpha = [one == ColorInterp.alpha for one in dataset.colorinterp]
        if kind := next((one for one in dataset.dtypes if one.startswith("complex")), None):
            raise RasterError(
                f"The bands are of type {kind}, but must be real numbers: "
                "send an amplitude, or the two parts as two bands"
            )
        flags = [set(one) for one in dataset.mask_flag_enums]
        # Alpha bands are read as bands: GDAL takes none for a mask where there is nodata as well.
        shared = [
            i
            for i, one in enumerate(flags, 1)
            if MaskFlags.per_dataset in one and MaskFlags.alpha not in one
        ]
        self._shared_mask = shared[:1]
        # Nodata is compared here, but for numbers that rasterio rounds when it tells nodata.
        self._nodata: list[float | None] = [
            None if kind in _WIDE else value
            for value, kind in zip(dataset.nodatavals, dataset.dtypes, strict=True)
        ]
        self._masks_of_nodata = {
            i
            for i, (one, kind) in enumerate(zip(flags, dataset.dtypes, strict=True), 1)
            if MaskFlags.nodata in one and kind in _WIDE
        }
        # Without a flag the band has a mask of its own.
        masked = {i for i, one in enumerate(flags, 1) if not one}
        self._own_masks = masked | self._masks_of_nodata
        _ = dataset.gcps, dataset.rpcs, dataset.tags()

    def _block_bytes(self) -> int:
        """What GDAL must hold to read any one pixel."""
        together = self.count if self._dataset.interleaving == Interleaving.pixel else 1
        return max(
            height * width * np.dtype(kind).itemsize * together
            for (height, width), kind in zip(
                self._dataset.block_shapes, self._dataset.dtypes, strict=True
            )
        )


def _count(tally: Tally, name: str, value: int) -> None:
    tally[name] += value
    LIMITS.check(name, tally[name])


@contextmanager
def _alone(problem: str) -> Iterator[None]:
    """Has GDAL look at nothing but the file, and tells of its failures as the file's."""
    try:
        with rasterio.Env(**_ALONE):
            yield
    except GDAL_ERRORS as error:
        raise RasterError(f"{problem}: {error.__cause__ or error}") from None


def _driver(file: SceneFile) -> str:
    for magic, driver in _DRIVERS.items():
        if file.head.startswith(magic):
            return driver
    # Of files that the client only names, nothing is told that it could not read otherwise.
    begins = f"begins with {file.head[:8]!r}, as" if file.sent else "begins as"
    raise RasterError(
        f"The data must be a GeoTIFF, PNG or JPEG file, but {begins} none of them does"
    )


def _exclude(valid: npt.NDArray[np.bool_], band: npt.NDArray[Any], nodata: float | None) -> None:
    """Takes a band's nodata, NaN and infinite pixels out of the valid ones, in place."""
    if band.dtype.kind == "f":
        # The network's numbers have 32 bits: what is beyond them is infinite to it.
        with np.errstate(over="ignore"):
            valid &= np.isfinite(band.astype(np.float32, copy=False))
    if nodata is None or not np.isfinite(nodata):
        return
    if band.dtype.kind in "iu":
        limits = np.iinfo(band.dtype)
        if nodata != int(nodata) or not limits.min <= nodata <= limits.max:
            return  # no pixel of this type can have that value
        nodata = int(nodata)
    with np.errstate(over="ignore"):
        valid &= band != band.dtype.type(nodata)
