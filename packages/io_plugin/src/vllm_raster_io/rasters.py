"""Reading scenes: the pixels of a file, upright and in the colours it means."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vllm_raster_io.arrays import ArrayFile
from vllm_raster_io.closing import Closing
from vllm_raster_io.colours import rendition_of, was_converted
from vllm_raster_io.datasets import Dataset
from vllm_raster_io.errors import RasterError
from vllm_raster_io.files import SceneFile
from vllm_raster_io.formats import TIFF, Format, format_of
from vllm_raster_io.limits import LIMITS, Tally
from vllm_raster_io.orientations import AS_STORED, Orientation, orientation_of
from vllm_raster_io.quoting import cut
from vllm_raster_io.stored import Stored, validity
from vllm_raster_io.tiling import Window


class Scene(Closing):
    """One open raster.

    It may be used from several threads; reading is one at a time.

    Args:
        file: Where it is, which the scene closes.
        tally: What the files of one request have taken; this one is added to it.
        wanted: The checkpoint's names of its bands, which decide whether a gray picture becomes
            red, green and blue; without them it does not.
        dates: How many dates the file holds.

    Attributes:
        descriptions: Names of the bands as the file gives them.
        colours: What the bands of a picture show: red, green, blue.
        alpha: For each band, whether it is an alpha band.
        notes: What was done that does not go without saying, in words for the client.

    Raises:
        RasterError: It is of no format that is read, or cannot be opened.
        LimitError: The raster is larger than allowed.
    """

    def __init__(
        self,
        file: SceneFile,
        tally: Tally | None = None,
        wanted: Sequence[str] = (),
        dates: int = 1,
    ) -> None:
        self._lock = threading.Lock()
        tally = Tally() if tally is None else tally
        try:
            form = format_of(file)
            form.check(file.content, tally)
            self._stored: Stored = ArrayFile(file) if form.driver is None else Dataset(file, form)
        except Exception:
            file.close()
            raise
        try:
            _count(tally, "pixels", self._stored.height * self._stored.width)
            _count(tally, "bands", self._stored.count)
            if isinstance(self._stored, Dataset):
                self._stored.learn()
            _count(tally, "block_bytes", self._stored.block_bytes())
            self._rendition, self.notes = rendition_of(self._stored, form, wanted, dates)
            self.descriptions, self.colours = self._rendition.names, self._rendition.colours
            self.alpha = self._rendition.alpha
            self._orientation = self._find_orientation(file, form)
            self._note_scaling()
        except Exception:
            self.close()
            raise

    @property
    def height(self) -> int:
        """Rows."""
        return self._orientation.size(self._stored.height, self._stored.width)[0]

    @property
    def width(self) -> int:
        """Columns."""
        return self._orientation.size(self._stored.height, self._stored.width)[1]

    @property
    def count(self) -> int:
        """Bands, an alpha band among them."""
        return self._rendition.count

    @property
    def dates(self) -> int:
        """How many dates the file says itself that it holds; 1 where it does not say."""
        return self._stored.dates

    @property
    def dataset(self) -> Any:
        """The open file, for its georeference and tags; read pixels through `read`."""
        return self._stored.place

    @property
    def datasets(self) -> list[Any]:
        """All files of the scene, which are one."""
        return [self.dataset]

    def tags(self, index: int | None = None) -> dict[str, str]:
        """Metadata of the file, or of a band counted from 0; those of the image itself win.

        Raises:
            RasterError: The file is damaged.
        """
        if index is not None:
            index = self._rendition.stored([index])[0]
        with self._lock:
            return self._stored.tags(index)

    def dtype(self, indices: Sequence[int]) -> np.dtype[Any]:
        """The type that holds the values of these bands, counted from 0."""
        return self._rendition.dtype(indices)

    def read(
        self, window: Window, indices: Sequence[int]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Reads bands of a window.

        Args:
            window: Lies within the scene.
            indices: Bands, counted from 0, in the order wanted.

        Returns:
            Pixels (bands, height, width) in the scene's type, and whether each may be used
            (height, width): a pixel may not be if any of the bands is nodata, NaN, infinite or
            masked there.

        Raises:
            RasterError: The file is damaged.
        """
        rendition, orientation = self._rendition, self._orientation
        place = orientation.stored(window, self.height, self.width)
        bands = rendition.stored(indices)
        with self._lock:
            pixels, masks = self._stored.read(place, bands, rendition.masks(indices))
        valid = validity(pixels, masks, [self._stored.nodata[i] for i in bands])
        pixels, seen = rendition.render(pixels, indices)
        if seen is not None:
            valid &= seen
        if orientation is AS_STORED:
            return pixels, valid
        return orientation.upright(pixels), orientation.upright(valid)

    def take_nodata(self, value: float | None) -> None:
        """Has a value be invalid in place of the file's own; None for no value. Masks stay."""
        self._stored.take_nodata(value)

    def close(self) -> None:
        """Gives the memory back; a scene may be closed twice."""
        with self._lock:
            self._stored.close()

    def _find_orientation(self, file: SceneFile, form: Format) -> Orientation:
        """How it is turned upright; what lies on the ground stays as it lies there."""
        found, stored = orientation_of(file.content, form), self._stored
        if found is not AS_STORED and form is TIFF and was_converted(stored):
            raise RasterError(
                f"The {stored.structure['SOURCE_COLOR_SPACE']} picture is stored turned (TIFF's "
                f"Orientation is {found.number}), which is not read: send it upright, or in RGB"
            )
        place = stored.place
        if place.crs or not place.transform.is_identity or place.gcps[0] or place.rpcs:
            return AS_STORED
        if found is not AS_STORED:
            self.notes.append(f"The picture was turned upright (Exif orientation {found.number})")
        return found

    def _note_scaling(self) -> None:
        declared = [one for one in dict.fromkeys(self._stored.scaling) if one != (1.0, 0.0)]
        if declared:
            told = cut(", ".join(f"scale {one:g} and offset {other:g}" for one, other in declared))
            self.notes.append(
                f"The file declares {told}, which was not applied: what stored values mean, the "
                "checkpoint says, or `scale` and `offset` in the request"
            )


def _count(tally: Tally, name: str, value: int) -> None:
    tally[name] += value
    LIMITS.check(name, tally[name])
