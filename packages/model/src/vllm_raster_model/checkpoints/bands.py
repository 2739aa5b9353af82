"""Bands as TerraTorch's configurations name them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from vllm_raster_model.checkpoints.settings import MOST, shown
from vllm_raster_model.errors import ContractError

_ENUMERATIONS = ("HLSBands.", "OpticalBands.", "SARBands.", "MetadataBands.")
_NEAR_INFRARED = ("NIR_NARROW", "NIR_BROAD")


@dataclass(frozen=True)
class BandList:
    """Some bands in order.

    Attributes:
        count: How many there are.
        names: Their names; None where the list has numbers instead.
    """

    count: int
    names: tuple[str, ...] | None

    @classmethod
    def of(cls, where: str, listed: Sequence[Any]) -> Self:
        """Reads a list of names, members of an enumeration, numbers, or intervals of numbers.

        Raises:
            ContractError: It is something else, or a band comes twice.
        """
        count, names = 0, []
        for one in listed:
            if isinstance(one, str) and one.strip():
                count += 1
                names.append(plain_name(one))
            elif isinstance(one, int) and not isinstance(one, bool):
                count += 1
            elif _is_interval(one):
                # TerraTorch's intervals hold both of their ends.
                count += one[1] - one[0] + 1
            else:
                raise ContractError(f"{where} must name bands, got {shown(one)} among them")
        if not 1 <= count <= MOST:
            raise ContractError(f"{where} must name from 1 to {MOST} bands, got {count}")
        if len(set(names)) != len(names):
            raise ContractError(f"{where} names a band twice: {shown(names)}")
        return cls(count, tuple(names) if len(names) == count else None)


def plain_name(name: str) -> str:
    """The name of a band without the enumeration it may come from: HLSBands.BLUE is BLUE."""
    name = name.strip()
    for prefix in _ENUMERATIONS:
        name = name.removeprefix(prefix)
    return name


def spelling(name: str) -> str:
    """A name as it is compared with others: COASTAL AEROSOL is COASTAL_AEROSOL."""
    return plain_name(name).upper().replace(" ", "_").replace("-", "_")


def same_kind(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether two lists name the same bands in the same order, near infrared being one kind."""
    return [_kind(one) for one in first] == [_kind(one) for one in second]


def _kind(name: str) -> str:
    return "NIR" if spelling(name) in _NEAR_INFRARED else spelling(name)


def _is_interval(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) == 2
        and all(isinstance(one, int) and not isinstance(one, bool) for one in value)
        and 0 <= value[0] <= value[1] < MOST
    )
