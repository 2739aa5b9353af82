"""Which bands of a file are the ones that the checkpoint takes."""

from dataclasses import dataclass
from typing import Literal

from vllm_raster_io.errors import RasterError
from vllm_raster_io.rasters import Scene


@dataclass(frozen=True)
class BandChoice:
    """Bands of a file in the checkpoint's order.

    Attributes:
        indices: Counted from 0.
        by: Whether the client gave them, the file's names told them, or they stand in order.
    """

    indices: tuple[int, ...]
    by: Literal["indices", "names", "order"]


def choose_bands(scene: Scene, wanted: tuple[str, ...], indices: list[int] | None) -> BandChoice:
    """Finds the checkpoint's bands in a file: as asked, else by name, else in order.

    An alpha band is a mask and never counts.

    Args:
        scene: The file.
        wanted: The checkpoint's names of its bands.
        indices: What the client asked for, counted from 0.

    Raises:
        RasterError: The file does not have them, or does not tell which they are.
    """
    if indices is not None:
        return BandChoice(_asked(scene, wanted, indices), "indices")
    names = {
        name.strip().casefold(): i
        for i, name in reversed(list(enumerate(scene.descriptions)))
        if name
    }
    if all(name.casefold() in names for name in wanted):
        return BandChoice(tuple(names[name.casefold()] for name in wanted), "names")
    colours = [i for i, alpha in enumerate(scene.alpha) if not alpha]
    if len(colours) == len(wanted):
        return BandChoice(tuple(colours), "order")
    raise RasterError(
        f"The checkpoint takes {len(wanted)} bands ({', '.join(wanted)}), but the file has "
        f"{len(colours)} ({_named(scene)}). Name the file's bands, or give `indices`"
    )


def _asked(scene: Scene, wanted: tuple[str, ...], indices: list[int]) -> tuple[int, ...]:
    if len(indices) != len(wanted):
        raise RasterError(
            f"`indices` must name {len(wanted)} bands ({', '.join(wanted)}), got {indices}"
        )
    if beyond := [i for i in indices if i >= scene.count]:
        raise RasterError(
            f"`indices` count from 0 and the file has {scene.count} bands, got {beyond}"
        )
    return tuple(indices)


def _named(scene: Scene) -> str:
    return ", ".join(name or "unnamed" for name in scene.descriptions)
