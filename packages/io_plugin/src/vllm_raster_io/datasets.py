"""Reading with GDAL: one file by one driver, without a look at anything else.

No side-car, no reference to another file, no network: whatever the bytes say.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
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

from vllm_raster_io.block_cache import BLOCK_CACHE, bytes_to_keep
from vllm_raster_io.directories import exact_nodata
from vllm_raster_io.errors import RasterError
from vllm_raster_io.files import SceneFile
from vllm_raster_io.formats import JPEG_2000, TIFF, WEBP, Format
from vllm_raster_io.stored import WIDE, Palette, Stored
from vllm_raster_io.tiling import Window

_ALONE = {
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",  # other requests' files are beside this one
    "GDAL_PAM_ENABLED": "NO",
    "CPL_VSIL_CURL_ALLOWED_EXTENSIONS": "none",
    "GDAL_NUM_THREADS": "1",
    "GDAL_PNG_WHOLE_IMAGE_OPTIM": "NO",  # it takes a cut off file for a whole one
    "GTIFF_POINT_GEO_IGNORE": "NO",
    "GDAL_JPEG_TO_RGB": "YES",
    "GDAL_ALLOW_LARGE_LIBJPEG_MEM_ALLOC": "NO",
    "LIBTIFF_ALLOW_LARGE_LIBJPEG_MEM_ALLOC": "NO",
    "GDAL_JPEG_MAX_ALLOWED_SCAN_NUMBER": "100",
    "LIBTIFF_JPEG_MAX_ALLOWED_SCAN_NUMBER": "100",
    "OPJ_NUM_THREADS": "1",
}

GDAL_ERRORS = (RasterioError, CPLE_BaseError, CRSError, RPCError, UnicodeError)
"""What rasterio raises where a file is damaged or says what cannot be. It has no common base."""


def accept_missing_reference() -> None:
    """Silences, for this process, the warning that a raster does not say where it lies."""
    warnings.filterwarnings("ignore", category=NotGeoreferencedWarning)


@contextmanager
def alone(problem: str) -> Iterator[None]:
    """Has GDAL look at nothing but the file, and tells of its failures as the file's."""
    try:
        with rasterio.Env(**_ALONE):
            yield
    except GDAL_ERRORS as error:
        raise RasterError(f"{problem}: {error.__cause__ or error}") from None


class Dataset(Stored):
    """A file that GDAL has opened.

    Args:
        file: The file, which this closes once it is open.
        form: What it is.

    Raises:
        RasterError: GDAL cannot open it, or it points to another file.
    """

    place: DatasetReader
    _masked_by_nodata = False
    _shared_mask: list[int]

    def __init__(self, file: SceneFile, form: Format) -> None:
        self._file, self._form = file, form
        assert form.driver is not None
        with alone(f"The {form.name} file cannot be opened"):
            _check_driver(form)
            self.place = file.open(form.driver)
        self.height, self.width = int(self.place.height), int(self.place.width)
        self.count = int(self.place.count)

    def learn(self) -> None:
        """Reads what the file says about its pixels, for GDAL reads that when it is first asked.

        Raises:
            RasterError: It is damaged, of a type that is not read, or points to another file.
        """
        with alone(f"What the {self._form.name} file says about its pixels cannot be read"):
            self._learn()

    def tags(self, index: int | None = None) -> dict[str, str]:
        """Metadata of the file or of a band; those of the image itself win."""
        band = 0 if index is None else index + 1
        with alone("What the file says of itself cannot be read"):
            return self.place.tags(band) | self.place.tags(band, ns="IMAGERY")

    def bits(self, index: int) -> int:
        """How many bits of a band's type its values take."""
        told = self._bits[index]
        full = self.dtypes[index].itemsize * 8
        return int(told) if told.isdigit() and 0 < int(told) < full else full

    def block_bytes(self) -> int:
        """What GDAL must hold to read any one pixel."""
        # JPEG 2000 is decoded in 32 bits.
        wide = 4 if self._form is JPEG_2000 else 0
        together = self.count if self._reads_all_bands else 1
        return max(
            height * width * max(kind.itemsize, wide) * together
            for (height, width), kind in zip(self.place.block_shapes, self.dtypes, strict=True)
        )

    def read(
        self, window: Window, bands: Sequence[int], masks: Sequence[int] = ()
    ) -> tuple[npt.NDArray[Any], list[npt.NDArray[Any]]]:
        """Reads bands of a window.

        Raises:
            RasterError: The file is damaged.
        """
        numbers = [i + 1 for i in bands]
        place = RasterioWindow(window.column, window.row, window.width, window.height)
        last = window.row + window.height - 1
        problem = f"Rows {window.row} to {last} of the raster cannot be read, the file is damaged"
        self._keep_blocks(window, bands)
        with alone(problem):
            pixels = self.place.read(numbers, window=place)
            found = [
                self.place.read_masks(band, window=place)
                for band in {*self._shared_mask, *(set(numbers) & self._own_masks)}
            ]
            found.extend(self.place.read(i + 1, window=place) for i in masks)
        return pixels, found

    def take_nodata(self, value: float | None) -> None:
        """Has a value be invalid in place of the file's own; None for no value. Masks stay."""
        super().take_nodata(value)
        if self._masked_by_nodata:
            self._shared_mask = []

    def close(self) -> None:
        """Gives the memory back."""
        BLOCK_CACHE.release(self)
        self.place.close()
        self._file.close()

    def _keep_blocks(self, window: Window, bands: Sequence[int]) -> None:
        if self.place.closed:
            return  # a window that was asked for before; nothing would let go of its blocks
        together = range(self.count) if self._reads_all_bands else bands
        pixel = sum(self.dtypes[i].itemsize for i in together)
        block = self.place.block_shapes[bands[0]]
        BLOCK_CACHE.hold(self, bytes_to_keep(window, self.width, block, pixel))

    @property
    def _reads_all_bands(self) -> bool:
        """Whether GDAL decodes all bands of a block together."""
        by_pixel = self.structure.get("INTERLEAVE") == Interleaving.pixel.value
        return by_pixel or self._form is JPEG_2000

    def _learn(self) -> None:
        dataset = self.place
        self.dtypes = _types(dataset)
        self.nodata: Sequence[float | None] = dataset.nodatavals
        self.descriptions = dataset.descriptions
        self.interpretations = dataset.colorinterp
        self.scaling = list(zip(dataset.scales, dataset.offsets, strict=True))
        self.structure: Mapping[str, str] = dataset.tags(ns="IMAGE_STRUCTURE")
        self.palette = _palette(dataset)
        self._bits = [
            dataset.tags(i, ns="IMAGE_STRUCTURE").get("NBITS", "") for i in dataset.indexes
        ]
        if self._form is TIFF and any(one.name in WIDE for one in self.dtypes):
            exact = exact_nodata(self._file.content)
            self.nodata = [one if exact is None else exact for one in self.nodata]
        self._learn_masks()
        if dataset.tags(ns="OVERVIEWS"):
            raise RasterError(
                "The file says that its overviews are in another file, and none but what was sent "
                "is read: leave out the metadata of the domain OVERVIEWS"
            )
        _ = dataset.gcps, dataset.rpcs, dataset.tags()

    def _learn_masks(self) -> None:
        flags = [set(one) for one in self.place.mask_flag_enums]
        if all({MaskFlags.per_dataset, MaskFlags.nodata} <= one for one in flags):
            # One colour is transparent, and no value of a single band.
            self.nodata = [None] * self.count
            self._masked_by_nodata = True
        # Alpha bands are read as bands: GDAL takes none for a mask where there is nodata as well.
        self._shared_mask = [
            i
            for i, one in enumerate(flags, 1)
            if MaskFlags.per_dataset in one and MaskFlags.alpha not in one
        ][:1]
        # Without a flag the band has a mask of its own. Nodata is compared by `exclude`.
        self._own_masks = {i for i, one in enumerate(flags, 1) if not one}


def _types(dataset: DatasetReader) -> list[np.dtype[Any]]:
    try:
        kinds = dataset.dtypes
    except KeyError:
        raise RasterError(
            "The bands are of a type that this server's rasterio does not know: "
            "store them as floats of 32 bits or as whole numbers"
        ) from None
    if kind := next((one for one in kinds if one.startswith("complex")), None):
        raise RasterError(
            f"The bands are of type {kind}, but must be real numbers: "
            "send an amplitude, or the two parts as two bands"
        )
    return [np.dtype(one) for one in kinds]


def _palette(dataset: DatasetReader) -> Palette | None:
    if dataset.count != 1 or dataset.colorinterp[0] != ColorInterp.palette:
        return None
    try:
        return dict(dataset.colormap(1))
    except ValueError:
        return None


def _check_driver(form: Format) -> None:
    with rasterio.Env() as env:
        if form.driver not in env.drivers():
            library = {JPEG_2000.driver: "OpenJPEG", WEBP.driver: "libwebp"}.get(form.driver, "")
            raise RasterError(
                f"This server does not read {form.name}: its GDAL was built without "
                f"{library or form.driver}. Send a GeoTIFF"
            )
