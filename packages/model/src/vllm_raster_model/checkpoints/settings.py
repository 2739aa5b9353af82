"""Looking things up in a stored configuration: a wrong type is an error that names the key."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from reprlib import Repr
from typing import Any, Self

from vllm_raster_model.errors import ContractError

_repr = Repr()
_repr.maxstring = _repr.maxother = 60

MOST = 65_536
"""Largest number of blocks, channels, classes… that is believed."""


def shown(value: object) -> str:
    """A value as Python writes it; of a long one the beginning."""
    return _repr.repr(value)


@dataclass(frozen=True)
class Settings:
    """Keys and values, and where they stand; a key that is null counts as absent.

    Attributes:
        where: The key that they stand under.
        values: Without those that are null.
        prefix: What their names begin with there, and not in `values`.
    """

    where: str
    values: Mapping[str, Any]
    prefix: str = ""

    @classmethod
    def of(cls, where: str, value: Any) -> Self:
        """Takes a part of a configuration.

        Raises:
            ContractError: It is neither keys and values nor absent.
        """
        if value is None:
            value = {}
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise ContractError(f"{where} must hold keys and values, got {shown(value)}")
        return cls(where, {key: one for key, one in value.items() if one is not None})

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def path(self, key: str) -> str:
        """Where a key stands, for messages."""
        return f"{self.where}.{self.prefix}{key}"

    def get(self, key: str) -> Any:
        """The value as it stands, or None."""
        return self.values.get(key)

    def section(self, key: str) -> Self:
        """The keys and values under a key."""
        return self.of(self.path(key), self.get(key))

    def starting(self, prefix: str) -> Self:
        """The keys that start so, without their start."""
        cut = {k.removeprefix(prefix): v for k, v in self.values.items() if k.startswith(prefix)}
        return type(self)(self.where, cut, prefix)

    def text(self, key: str) -> str | None:
        """A text."""
        value = self.get(key)
        if value is not None and not isinstance(value, str):
            raise self._wrong(key, "a text")
        return value

    def whole(self, key: str) -> int | None:
        """A whole number from 1 up."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
            raise self._wrong(key, f"a whole number from 1 to {MOST}")
        return value

    def number(self, key: str) -> float | None:
        """A finite number."""
        value = self.get(key)
        if value is None:
            return None
        if (number := _number(value)) is None:
            raise self._wrong(key, "a finite number")
        return number

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def items(self, key: str) -> list[Any] | None:
        """A list."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, (list, tuple)):
            raise self._wrong(key, "a list")
        return list(value)

    def numbers(self, key: str) -> list[float] | list[list[float]] | None:
        """A list of numbers, or of lists of numbers."""
        listed = self.items(key)
        if listed is None:
            return None
        if listed and all(isinstance(one, (list, tuple)) for one in listed):
            return [self._row(key, one) for one in listed]
        return self._row(key, listed)

    def _row(self, key: str, listed: Sequence[Any]) -> list[float]:
        found = [number for one in listed if (number := _number(one)) is not None]
        if not found or len(found) != len(listed):
            raise self._wrong(key, "finite numbers")
        return found

    def refuse_unknown(self, known: Iterable[str], hint: str) -> None:
        """Refuses keys that are not among the known ones, by name."""
        if unknown := sorted(self.values.keys() - set(known)):
            names = ", ".join(self.prefix + one for one in unknown)
            raise ContractError(f"{self.where} has {names}: {hint}")

    def _wrong(self, key: str, wanted: str) -> ContractError:
        return ContractError(f"{self.path(key)} must be {wanted}, got {shown(self.get(key))}")


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
