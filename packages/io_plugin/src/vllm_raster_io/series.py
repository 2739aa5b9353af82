"""The dates of a request: a file each, or all in one."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vllm_raster_io.bands import BandChoice, BandsBy, choose_bands
from vllm_raster_io.closing import Closing
from vllm_raster_io.contract import InputContract
from vllm_raster_io.errors import RasterError
from vllm_raster_io.files import SceneFile
from vllm_raster_io.likeness import check_alike
from vllm_raster_io.limits import Tally
from vllm_raster_io.rasters import Scene
from vllm_raster_io.stacks import AnyScene, Stack, naming
from vllm_raster_io.tiling import Window


class Series(Closing):
    """One place at as many dates as the checkpoint takes, each with all of its bands.

    Args:
        files: A file a date, one that holds all, or one a band, all bands of the first date
            first; the series closes them.
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
        self.scenes: list[AnyScene] = []
        self.choices: list[BandChoice] = []
        self._files = files
        self._wanted, self._asked = contract.bands, (indices, bands)
        try:
            if len(files) > self.frames:
                self.scenes.append(Stack(files))
                self._choose(self.frames)
            else:
                self._open()
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
    def dataset(self) -> Any:
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
    def dtype(self) -> np.dtype[Any]:
        """The type of the pixels."""
        return self.scenes[0].dtype(self.choices[0].indices)

    @property
    def tags(self) -> dict[str, str]:
        """The metadata on which all files agree."""
        first, *others = (one.tags() for scene in self.scenes for one in scene.datasets)
        return {k: v for k, v in first.items() if all(one.get(k) == v for one in others)}

    @property
    def notes(self) -> list[str]:
        """What does not go without saying of how files and names were understood, each once."""
        all_of_them = (*self.scenes, *self.choices)
        return list(dict.fromkeys(note for one in all_of_them for note in one.notes))

    @property
    def names(self) -> list[str | None]:
        """The files' names of the same bands."""
        chosen = zip(self.scenes, self.choices, strict=True)
        return [scene.descriptions[i] for scene, choice in chosen for i in choice.indices]

    def take_nodata(self, value: float | None) -> None:
        """Has a value be invalid in all files, in place of their own; None for no value."""
        for scene in self.scenes:
            scene.take_nodata(value)

    def shape(self, window: Window) -> tuple[int, ...]:
        """Shape of a window's pixels: (bands, height, width), with frames in between if several."""
        frames = () if self.frames == 1 else (self.frames,)
        return (self._bands, *frames, window.height, window.width)

    def frame(self, number: int) -> tuple[AnyScene, tuple[int, ...]]:
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
            with naming(i, len(self.scenes)):
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

    def _open(self) -> None:
        tally, dates = Tally(), self.frames // len(self._files)
        opened: list[tuple[Scene, tuple[int, ...]]] = []
        for i, file in enumerate(self._files):
            with naming(i, len(self._files)):
                scene = Scene(file, tally, self._wanted, dates)
                self.scenes.append(scene)
                self._choose(dates)
                opened.append((scene, self.choices[-1].indices))
        check_alike(opened, "dates")

    def _choose(self, dates: int) -> None:
        scene = self.scenes[-1]
        if scene.dates not in (1, dates):
            raise RasterError(
                f"The array has {scene.dates} dates, (bands, dates, height, width), but the "
                f"checkpoint takes {dates}"
            )
        indices, bands = self._asked
        self.choices.append(choose_bands(scene, self._wanted, indices, dates, bands))
