"""Which bands of a file are the ones that the checkpoint takes."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vllm_raster_io.errors import RasterError
from vllm_raster_io.matching import match
from vllm_raster_io.quoting import cut, quoted
from vllm_raster_io.stacks import AnyScene
from vllm_raster_io.vocabularies import readings

BandsBy = Literal["bands", "indices", "names", "order"]
"""What told the bands: one of the request's fields, the file's names, or nothing."""


@dataclass(frozen=True)
class BandChoice:
    """Bands of a file in the checkpoint's order.

    Attributes:
        indices: Counted from 0; of a file of several dates, one date after the other.
        by: Whether the client gave them, the file's names told them, or they stand in order.
        notes: How the names were understood, where that is not plain.
    """

    indices: tuple[int, ...]
    by: BandsBy
    notes: tuple[str, ...] = ()


def choose_bands(
    scene: AnyScene,
    wanted: tuple[str, ...],
    indices: list[int] | None,
    dates: int = 1,
    bands: Sequence[str | int] | None = None,
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
        bands: What the client asked for otherwise: the file's bands by name, or by number, which
            count like `indices` but from 1.

    Raises:
        RasterError: The file does not have them, or does not tell which they are.
    """
    colours = [i for i, alpha in enumerate(scene.alpha) if not alpha]
    if indices is not None:
        return BandChoice(_asked(scene, colours, wanted, indices, dates), "indices")
    if bands is not None:
        return _asked_by_name(scene, colours, wanted, bands, dates)
    found = match(wanted, _names(scene), dates)
    if found is not None:
        places = _by_date(found.places, dates)
        notes = found.notes if dates > 1 else (*found.notes, *_repeated(_names(scene), places))
        return BandChoice(places, "names", notes)
    if _stands_in_order(scene, colours, wanted, dates):
        return BandChoice(tuple(colours), "order")
    takes = f"{len(wanted)} bands" if dates == 1 else f"{dates} dates of {len(wanted)} bands"
    raise RasterError(
        f"The checkpoint takes {takes} ({', '.join(wanted)}), but the file has "
        f"{len(colours)} ({_named(scene, colours)}){_besides(scene)}. "
        "Name the file's bands as the checkpoint does, or give `bands` or `indices`"
    )


def _repeated(names: Sequence[str | None], places: Sequence[int]) -> list[str]:
    """Whether the file seems to hold more dates than are taken: each name stands several times."""
    spelt = [(name or "").strip().casefold() for name in names]
    times = {spelt.count(spelt[i]) for i in places}
    if min(times) < 2:
        return []
    often = str(min(times)) if len(times) == 1 else f"{min(times)} to {max(times)}"
    return [
        f"Each of the bands' names stands {often} times in the file and the first was taken, for "
        "one date of it is asked for. `indices` choose others"
    ]


def _names(scene: AnyScene) -> list[str | None]:
    """The names of a file's bands; of a picture's their colours, for it has no others."""
    return [name or colour for name, colour in zip(scene.descriptions, scene.colours, strict=True)]


def _stands_in_order(
    scene: AnyScene, colours: list[int], wanted: Sequence[str], dates: int
) -> bool:
    """Whether the numbers agree, and no name says that the order is another."""
    if len(colours) != len(wanted) * dates:
        return False
    names, named = _names(scene), defaultdict(list)
    for i, name in enumerate(names):
        if name:
            named[name.strip().casefold()].append(i)
    elsewhere = any(
        not set(named[name.casefold()][:dates]) <= set(colours[i :: len(wanted)])
        for i, name in enumerate(wanted)
    )
    return not elsewhere and not _contradicts([names[i] for i in colours], list(wanted) * dates)


def _contradicts(names: Sequence[str | None], wanted: Sequence[str]) -> bool:
    """Whether some name means another band than the one wanted in its place, however it is read."""
    return any(
        mine is not None and all(other is not None and other != mine for other in others)
        for mine, *others in zip(
            readings(wanted)[0].meanings, *(one.meanings for one in readings(names)), strict=True
        )
    )


def _asked(
    scene: AnyScene, colours: list[int], wanted: tuple[str, ...], indices: list[int], dates: int
) -> tuple[int, ...]:
    if len(indices) not in (len(wanted), len(wanted) * dates):
        raise RasterError(_wrong_number("indices", wanted, dates, indices))
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


def _asked_by_name(
    scene: AnyScene,
    colours: list[int],
    wanted: tuple[str, ...],
    bands: Sequence[str | int],
    dates: int,
) -> BandChoice:
    numbers = [one for one in bands if isinstance(one, int)]
    names = [one for one in bands if isinstance(one, str)]
    if len(bands) != len(wanted) and (names or len(bands) != len(wanted) * dates):
        raise RasterError(_wrong_number("bands", wanted, dates, bands))
    if names and numbers and dates > 1:
        raise RasterError(
            "`bands` of a file of several dates must be all names or all numbers, "
            f"got {quoted(list(bands))}"
        )
    if numbers and not names:
        try:
            asked = _asked(scene, colours, wanted, [one - 1 for one in numbers], dates)
        except RasterError:
            raise RasterError(
                f"`bands` count from 1 and the file has {scene.count} bands"
                f"{'' if dates == 1 else f' of {dates} dates'}, got {quoted(numbers)}"
            ) from None
        return BandChoice(asked, "bands")
    if beyond := [one for one in numbers if one > scene.count]:
        raise RasterError(
            f"`bands` count from 1 and the file has {scene.count} bands, got {quoted(beyond)}"
        )
    found = match(names, _names(scene), dates)
    if found is None:
        once = "" if dates == 1 else f" {dates} times, once a date"
        raise RasterError(
            f"`bands` must be names or numbers of the file's bands{once}: it has "
            f"{_named(scene, colours)}, got {quoted(list(bands))}"
        )
    places = iter(found.places)
    chosen = [[one - 1] if isinstance(one, int) else next(places) for one in bands]
    return BandChoice(_by_date(chosen, dates), "bands", found.notes)


def _by_date(places: Sequence[Sequence[int]], dates: int) -> tuple[int, ...]:
    return tuple(one[date] for date in range(dates) for one in places)


def _wrong_number(field: str, wanted: tuple[str, ...], dates: int, given: Sequence[object]) -> str:
    each = "" if dates == 1 else f", or all {len(wanted) * dates} of the {dates} dates"
    return (
        f"`{field}` must name {len(wanted)} bands ({', '.join(wanted)}){each}, "
        f"got {quoted(list(given))}"
    )


def _named(scene: AnyScene, indices: list[int]) -> str:
    names = _names(scene)
    return cut(", ".join(names[i] or "unnamed" for i in indices), 200)


def _besides(scene: AnyScene) -> str:
    return " besides an alpha band, which is a mask" if any(scene.alpha) else ""
