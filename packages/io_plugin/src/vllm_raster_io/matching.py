"""Finding bands by their names, in whichever vocabularies both sides are written."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from vllm_raster_io.errors import RasterError
from vllm_raster_io.vocabularies import WIDER, Reading, readings


@dataclass(frozen=True)
class Match:
    """Where the wanted bands are.

    Attributes:
        places: For each wanted band its places among the names, one a date.
        notes: How the names were understood, where that is not plain.
    """

    places: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...] = ()


def match(wanted: Sequence[str], names: Sequence[str | None], dates: int = 1) -> Match | None:
    """Finds bands that are wanted by name among those that a file has.

    Args:
        wanted: Names of the bands wanted.
        names: Names of the file's bands, None for one without.
        dates: How often each name stands in the file; once a date.

    Returns:
        The first of the same name for a single date; None where some band is not there.

    Raises:
        RasterError: The names mean different bands in different vocabularies.
    """
    spelt = [None if name is None else name.strip().casefold() for name in names]
    as_spelt = _find([one.strip().casefold() for one in wanted], spelt, dates)
    if as_spelt is not None:
        return Match(as_spelt)
    ways = readings(names)
    found: dict[tuple[tuple[int, ...], ...], tuple[Reading, Reading, bool]] = {}
    for mine in readings(wanted):
        for theirs in ways:
            places, widened = _find_meanings(wanted, mine, names, theirs, dates)
            if places is not None:
                found.setdefault(places, (mine, theirs, widened))
    if not found:
        return None
    if len(found) > 1:
        read = list(dict.fromkeys(theirs.vocabulary for _, theirs, _ in found.values()))
        whose = "The names of the file's bands"
        if len(read) == 1:
            read = list(dict.fromkeys(mine.vocabulary for mine, _, _ in found.values()))
            whose = f"The names {', '.join(wanted)}"
        raise RasterError(
            f"{whose} can be read as {' or '.join(read)}, which are different bands. "
            "Give `bands`, as the file names them or by number"
        )
    ((places, (_, reading, widened)),) = found.items()
    notes = []
    if len(ways) > 1:
        others = ", ".join(one.vocabulary for one in ways if one is not reading)
        notes.append(
            f"The names of the file's bands were read as those of {reading.vocabulary}; they could "
            f"be of {others}, but then not all bands would be there"
        )
    if widened:
        named = ", ".join(str(names[one[0]]) for one in places)
        notes.append(f"The nearest bands of the file were taken for general names: {named}")
    return Match(places, tuple(notes))


def _find(
    wanted: Sequence[str], keys: Sequence[str | None], dates: int
) -> tuple[tuple[int, ...], ...] | None:
    at: dict[str, list[int]] = defaultdict(list)
    for i, key in enumerate(keys):
        if key:
            at[key].append(i)
    found = [at[key] for key in wanted]
    if not all(len(one) >= 1 if dates == 1 else len(one) == dates for one in found):
        return None
    return tuple(tuple(one[:dates]) for one in found)


def _find_meanings(
    wanted: Sequence[str],
    mine: Reading,
    names: Sequence[str | None],
    theirs: Reading,
    dates: int,
) -> tuple[tuple[tuple[int, ...], ...] | None, bool]:
    """The places, and whether a general name had to be taken for a special one."""
    keys = [_key(name, meaning) for name, meaning in zip(names, theirs.meanings, strict=True)]
    asked, widened = [], False
    for name, meaning in zip(wanted, mine.meanings, strict=True):
        key = _key(name, meaning) or ""
        special = [one for one in WIDER.get(key, ()) if one in keys]
        if key not in keys and len(special) == 1:
            key, widened = special[0], True
        asked.append(key)
    return _find(asked, keys, dates), widened


def _key(name: str | None, meaning: str | None) -> str | None:
    """What a name is found by: its meaning, or where none is known itself."""
    return meaning or (None if name is None else f"={name.strip().casefold()}")
