"""Scenes that come as one file a band."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from vllm_raster_io.closing import Closing
from vllm_raster_io.errors import RasterError, RasterIOError
from vllm_raster_io.files import SceneFile
from vllm_raster_io.likeness import check_alike
from vllm_raster_io.limits import Tally
from vllm_raster_io.rasters import Scene
from vllm_raster_io.tiling import Window

_NAMES = ("band_name", "bandname", "band", "name", "long_name")
"""Tags that tell which band a file holds, where the band itself has no description."""


@contextmanager
def naming(i: int, count: int) -> Iterator[None]:
    """Says which of several files, counted from 0, a problem is with."""
    try:
        yield
    except RasterIOError as error:
        if count == 1:
            raise
        raise type(error)(f"File {i + 1} of {count}: {error}") from None


class Stack(Closing):
    """Files of one band each, used as if they were one scene of as many bands.

    Args:
        files: In order; the stack closes them.

    Attributes:
        descriptions: Names of the bands, as the files give them.
        colours: None, for each has one band.
        alpha: For each band that it is no alpha band; those of the files mask.
        dates: 1, for the files do not say.
        notes: What was done that does not go without saying.

    Raises:
        RasterIOError: A file cannot be used or holds several bands, or they are not alike.
    """

    def __init__(self, files: Sequence[SceneFile]) -> None:
        self._scenes: list[Scene] = []
        self._files = files
        self._bands: list[int] = []
        self.dates = 1
        tally = Tally()
        try:
            for i, file in enumerate(files):
                # Together they have the pixels of one, as one file of as many bands would.
                del tally["pixels"]
                with naming(i, len(files)):
                    self._scenes.append(Scene(file, tally, ("",)))
                    self._bands.append(_only_band(self._scenes[-1]))
            pairs = zip(self._scenes, self._bands, strict=True)
            check_alike([(scene, [band]) for scene, band in pairs], "bands")
            self.descriptions = [
                _name(scene, band) for scene, band in zip(self._scenes, self._bands, strict=True)
            ]
        except Exception:
            self.close()
            raise
        self.colours: list[str | None] = [None] * len(files)
        self.alpha = [False] * len(files)
        self.notes = [note for one in self._scenes for note in one.notes]

    @property
    def height(self) -> int:
        """Rows."""
        return self._scenes[0].height

    @property
    def width(self) -> int:
        """Columns."""
        return self._scenes[0].width

    @property
    def count(self) -> int:
        """Bands."""
        return len(self._scenes)

    @property
    def dataset(self) -> Any:
        """The first file, for the place of them all."""
        return self._scenes[0].dataset

    @property
    def datasets(self) -> list[Any]:
        """All files."""
        return [one.dataset for one in self._scenes]

    def tags(self, index: int | None = None) -> dict[str, str]:
        """Metadata of a band and its file; or those on which all files agree.

        Raises:
            RasterError: A file is damaged.
        """
        if index is not None:
            scene = self._scenes[index]
            return scene.tags() | scene.tags(self._bands[index])
        first, *others = (one.tags() for one in self._scenes)
        return {k: v for k, v in first.items() if all(one.get(k) == v for one in others)}

    def dtype(self, indices: Sequence[int]) -> np.dtype[Any]:
        """The type of the values, which is that of all files."""
        return self._scenes[0].dtype(self._bands[:1])

    def read(
        self, window: Window, indices: Sequence[int]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Reads bands of a window, as `Scene.read` does.

        Raises:
            RasterError: A file is damaged.
        """
        parts = []
        for i in indices:
            with naming(i, self.count):
                parts.append(self._scenes[i].read(window, [self._bands[i]]))
        pixels = np.concatenate([one for one, _ in parts])
        return pixels, np.logical_and.reduce([valid for _, valid in parts])

    def take_nodata(self, value: float | None) -> None:
        """Has a value be invalid in all files, in place of their own; None for no value."""
        for scene in self._scenes:
            scene.take_nodata(value)

    def close(self) -> None:
        """Gives the memory of all files back."""
        for scene in self._scenes:
            scene.close()
        for file in self._files:
            file.close()


def _only_band(scene: Scene) -> int:
    bands = [i for i, alpha in enumerate(scene.alpha) if not alpha]
    if len(bands) != 1:
        raise RasterError(
            f"It has {len(bands)} bands, but of so many files each must hold one: send one file a "
            "band, or one with all bands"
        )
    return bands[0]


def _name(scene: Scene, band: int) -> str | None:
    if scene.descriptions[band]:
        return scene.descriptions[band]
    tags = {k.casefold(): v for k, v in (scene.tags() | scene.tags(band)).items()}
    return next((tags[name] for name in _NAMES if tags.get(name)), None)


AnyScene = Scene | Stack
"""What bands are chosen of."""
