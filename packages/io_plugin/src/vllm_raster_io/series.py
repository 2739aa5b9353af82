"""The dates of a request: a file each, or all in one."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from rasterio.crs import CRS
from rasterio.io import DatasetReader
from rasterio.transform import Affine

from vllm_raster_io.bands import BandChoice, BandsBy, choose_bands
from vllm_raster_io.closing import Closing
from vllm_raster_io.contract import InputContract
from vllm_raster_io.errors import RasterError, RasterIOError
from vllm_raster_io.files import SceneFile
from vllm_raster_io.limits import Tally
from vllm_raster_io.quoting import cut
from vllm_raster_io.rasters import Scene
from vllm_raster_io.tiling import Window

_SHIFT = 0.01
"""Pixels by which the corners of two files may differ, for writers round."""
_SHORT = ("size", "reference system", "type")
"""What fits into a message."""


class Series(Closing):
    """One place at as many dates as the checkpoint takes, each with all of its bands.

    Args:
        files: A file a date, or one that holds all; the series closes them.
        contract: What the checkpoint takes.
        indices: Bands as the client asked for them, see `choose_bands`.
        bands: The same.

    Attributes:
        scenes: The files, in the order of the dates.
        choices: The bands of each file.

    Raises:
        RasterIOError: A file cannot be used, or the files are not of one place and kind.
    """

    def __init__(
        self,
        files: Sequence[SceneFile],
        contract: InputContract,
        indices: list[int] | None,
        bands: Sequence[str | int] | None = None,
    ) -> None:
        self._bands, self.frames = len(contract.bands), contract.frames
        self.scenes: list[Scene] = []
        self._files = files
        try:
            tally, dates = Tally(), self.frames // len(files)
            self.choices: list[BandChoice] = []
            for file in files:
                with self._naming(len(self.scenes)):
                    self.scenes.append(Scene(file, tally))
                    scene = self.scenes[-1]
                    choice = choose_bands(scene, contract.bands, indices, dates, bands)
                    self.choices.append(choice)
            self._check_alike()
        except Exception:
            self.close()
            raise

    @property
    def height(self) -> int:
        """Rows."""
        return self.scenes[0].height

    @property
    def width(self) -> int:
        """Columns."""
        return self.scenes[0].width

    @property
    def dataset(self) -> DatasetReader:
        """The first file, for the place of them all."""
        return self.scenes[0].dataset

    @property
    def indices(self) -> tuple[int, ...]:
        """The bands of all dates, one date after the other, each counted in its own file."""
        return tuple(i for one in self.choices for i in one.indices)

    @property
    def bands_by(self) -> BandsBy:
        """How the bands were chosen; in order, if that holds for one of the files."""
        return next((one.by for one in self.choices if one.by == "order"), self.choices[0].by)

    @property
    def names(self) -> list[str | None]:
        """The files' names of the same bands."""
        chosen = zip(self.scenes, self.choices, strict=True)
        return [scene.descriptions[i] for scene, choice in chosen for i in choice.indices]

    @property
    def notes(self) -> list[str]:
        """How the names were understood, where that is not plain; each note once."""
        return list(dict.fromkeys(note for one in self.choices for note in one.notes))

    def take_nodata(self, value: float | None) -> None:
        """Has a value be invalid in all files, in place of their own; None for no value."""
        for scene in self.scenes:
            scene.take_nodata(value)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the pixels."""
        return self.scenes[0].dtype(self.choices[0].indices)

    @property
    def tags(self) -> dict[str, str]:
        """The metadata on which all files agree."""
        first, *others = (one.dataset.tags() for one in self.scenes)
        return {k: v for k, v in first.items() if all(one.get(k) == v for one in others)}

    def shape(self, window: Window) -> tuple[int, ...]:
        """Shape of a window's pixels: (bands, height, width), with frames in between if several."""
        frames = () if self.frames == 1 else (self.frames,)
        return (self._bands, *frames, window.height, window.width)

    def frame(self, number: int) -> tuple[Scene, tuple[int, ...]]:
        """The file of a date and the date's bands in it."""
        scene = number if len(self.scenes) > 1 else 0
        start = 0 if len(self.scenes) > 1 else number * self._bands
        return self.scenes[scene], self.choices[scene].indices[start : start + self._bands]

    def read(self, window: Window) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Reads a window of all dates.

        Returns:
            Pixels of the type and shape told, and whether each may be used (height, width): on
            all dates, for a map says one thing of a pixel.

        Raises:
            RasterError: A file is damaged.
        """
        pixels, masks = [], []
        for i, (scene, choice) in enumerate(zip(self.scenes, self.choices, strict=True)):
            with self._naming(i):
                one, valid = scene.read(window, choice.indices)
            pixels.append(one)
            masks.append(valid)
        if self.frames == 1:
            return pixels[0], masks[0]
        flat = np.concatenate(pixels)
        dates = flat.reshape(self.frames, self._bands, *flat.shape[1:])
        return np.ascontiguousarray(dates.swapaxes(0, 1)), np.logical_and.reduce(masks)

    def close(self) -> None:
        """Gives the memory of all files back."""
        for scene in self.scenes:
            scene.close()
        for file in self._files:
            file.close()

    def _check_alike(self) -> None:
        first = _Likeness(self.scenes[0], self.choices[0])
        for number, (scene, choice) in enumerate(
            zip(self.scenes[1:], self.choices[1:], strict=True), 2
        ):
            if differences := first.differences(_Likeness(scene, choice)):
                raise RasterError(
                    f"The files of the dates must be alike, but number {number} has "
                    f"{', '.join(differences)}. Bring all to one grid and type"
                )

    @contextmanager
    def _naming(self, i: int) -> Iterator[None]:
        """Says which of several files a problem is with."""
        try:
            yield
        except RasterIOError as error:
            if len(self._files) == 1:
                raise
            raise type(error)(f"File {i + 1} of {len(self._files)}: {error}") from None


class _Likeness:
    """What must be the same in the files of all dates."""

    def __init__(self, scene: Scene, choice: BandChoice) -> None:
        dataset = scene.dataset
        points, points_crs = dataset.gcps
        self._size = (scene.height, scene.width)
        self._transform = dataset.transform
        self._told = {
            "size": f"{scene.height}×{scene.width}",
            "reference system": _short(dataset.crs or points_crs),
            "ground control points": [(one.row, one.col, one.x, one.y) for one in points],
            "rational polynomials": dataset.rpcs and dataset.rpcs.to_dict(),
            "type": str(scene.dtype(choice.indices)),
        }

    def differences(self, other: "_Likeness") -> list[str]:
        """What is not the same, each with what the other has, and what was expected."""
        told = [
            f"another {name}" + (f" ({found}, not {wanted})" if name in _SHORT else "")
            for (name, wanted), found in zip(self._told.items(), other._told.values(), strict=True)
            if wanted != found
        ]
        if self._size == other._size and not self._same_place(other):
            found, wanted = _six(other._transform), _six(self._transform)
            told.append(f"another transform ({found}, not {wanted})")
        return told

    def _same_place(self, other: "_Likeness") -> bool:
        if self._transform == other._transform:
            return True
        if self._transform.is_degenerate or other._transform.is_degenerate:
            return False
        height, width = self._size
        corners = np.array([(0, 0, 1), (width, 0, 1), (0, height, 1), (width, height, 1)]).T
        found = _matrix(~self._transform) @ _matrix(other._transform) @ corners
        return bool(np.allclose(found, corners, rtol=0, atol=_SHIFT))


def _short(crs: CRS | None) -> str:
    return "none" if crs is None else cut(crs.to_string())


def _matrix(transform: Affine) -> npt.NDArray[np.float64]:
    return np.array(transform[:9]).reshape(3, 3)


def _six(transform: Affine) -> list[float]:
    return [float(one) for one in transform[:6]]
