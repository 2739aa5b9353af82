"""Which bands of a file are the ones that the checkpoint takes."""

from dataclasses import dataclass
from typing import Literal

from vllm_raster_io.errors import RasterError
from vllm_raster_io.quoting import cut, quoted
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
    found = [names.get(name.casefold()) for name in wanted]
    if None not in found:
        return BandChoice(tuple(i for i in found if i is not None), "names")
    colours = [i for i, alpha in enumerate(scene.alpha) if not alpha]
    # Names that are known but stand elsewhere tell that the order is another.
    if len(colours) == len(wanted) and all(
        i in (None, j) for i, j in zip(found, colours, strict=True)
    ):
        return BandChoice(tuple(colours), "order")
    raise RasterError(
        f"The checkpoint takes {len(wanted)} bands ({', '.join(wanted)}), but the file has "
        f"{len(colours)} ({_named(scene, colours)}){_besides(scene)}. "
        "Name the file's bands as the checkpoint does, or give `indices`"
    )


def _asked(scene: Scene, wanted: tuple[str, ...], indices: list[int]) -> tuple[int, ...]:
    if len(indices) != len(wanted):
        raise RasterError(
            f"`indices` must name {len(wanted)} bands ({', '.join(wanted)}), got {quoted(indices)}"
        )
    if beyond := [i for i in indices if i >= scene.count]:
        raise RasterError(
            f"`indices` count from 0 and the file has {scene.count} bands, got {quoted(beyond)}"
        )
    return tuple(indices)


def _named(scene: Scene, indices: list[int]) -> str:
    return cut(", ".join(scene.descriptions[i] or "unnamed" for i in indices), 200)


def _besides(scene: Scene) -> str:
    return " besides an alpha band, which is a mask" if any(scene.alpha) else ""
