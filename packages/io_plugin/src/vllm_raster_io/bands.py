"""Which bands of a file are the ones that the checkpoint takes."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

from vllm_raster_io.errors import RasterError
from vllm_raster_io.quoting import cut, quoted
from vllm_raster_io.stacks import AnyScene


@dataclass(frozen=True)
class BandChoice:
    """Bands of a file in the checkpoint's order.

    Attributes:
        indices: Counted from 0; of a file of several dates, one date after the other.
        by: Whether the client gave them, the file's names told them, or they stand in order.
    """

    indices: tuple[int, ...]
    by: Literal["indices", "names", "order"]


def choose_bands(
    scene: AnyScene, wanted: tuple[str, ...], indices: list[int] | None, dates: int = 1
) -> BandChoice:
    """Finds the checkpoint's bands in a file: as asked, else by name, else in order.

    An alpha band is a mask and never counts. In a file of several dates, a name that stands there
    once a date tells the dates' order, wherever the bands stand; in order, all bands of the
    first date come first.

    Args:
        scene: The file.
        wanted: The checkpoint's names of its bands.
        indices: What the client asked for, counted from 0: of each date's bands, or of the
            whole file, one date after the other.
        dates: How many dates the file holds.

    Raises:
        RasterError: The file does not have them, or does not tell which they are.
    """
    colours = [i for i, alpha in enumerate(scene.alpha) if not alpha]
    if indices is not None:
        return BandChoice(_asked(scene, colours, wanted, indices, dates), "indices")
    named = _by_name(scene)
    found = [named[name.casefold()] for name in wanted]
    if all(len(one) >= dates if dates == 1 else len(one) == dates for one in found):
        return BandChoice(tuple(one[date] for date in range(dates) for one in found), "names")
    # Names that are known but stand elsewhere tell that the order is another.
    if len(colours) == len(wanted) * dates and all(
        set(one[:dates]) <= set(colours[i :: len(wanted)]) for i, one in enumerate(found)
    ):
        return BandChoice(tuple(colours), "order")
    takes = f"{len(wanted)} bands" if dates == 1 else f"{dates} dates of {len(wanted)} bands"
    raise RasterError(
        f"The checkpoint takes {takes} ({', '.join(wanted)}), but the file has "
        f"{len(colours)} ({_named(scene, colours)}){_besides(scene)}. "
        "Name the file's bands as the checkpoint does, or give `indices`"
    )


def _by_name(scene: AnyScene) -> dict[str, list[int]]:
    """The bands that have a name, in order."""
    named: dict[str, list[int]] = defaultdict(list)
    for i, name in enumerate(scene.descriptions):
        if name:
            named[name.strip().casefold()].append(i)
    return named


def _asked(
    scene: AnyScene, colours: list[int], wanted: tuple[str, ...], indices: list[int], dates: int
) -> tuple[int, ...]:
    if len(indices) not in (len(wanted), len(wanted) * dates):
        each = "" if dates == 1 else f", or all {len(wanted) * dates} of the {dates} dates"
        raise RasterError(
            f"`indices` must name {len(wanted)} bands ({', '.join(wanted)}){each}, "
            f"got {quoted(indices)}"
        )
    if dates == 1 or len(indices) != len(wanted):
        if beyond := [i for i in indices if i >= scene.count]:
            raise RasterError(
                f"`indices` count from 0 and the file has {scene.count} bands, got {quoted(beyond)}"
            )
        return tuple(indices)
    count, left = divmod(len(colours), dates)
    if left:
        raise RasterError(
            f"The file has {len(colours)} bands, which are not the same number on each of "
            f"{dates} dates"
        )
    if beyond := [i for i in indices if i >= count]:
        raise RasterError(
            f"`indices` count from 0 and the file has {count} bands a date, got {quoted(beyond)}"
        )
    return tuple(colours[date * count + i] for date in range(dates) for i in indices)


def _named(scene: AnyScene, indices: list[int]) -> str:
    return cut(", ".join(scene.descriptions[i] or "unnamed" for i in indices), 200)


def _besides(scene: AnyScene) -> str:
    return " besides an alpha band, which is a mask" if any(scene.alpha) else ""
