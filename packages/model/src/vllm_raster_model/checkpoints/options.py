"""What a person says where a source says nothing, or something else."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vllm_raster_model.errors import ContractError

_COORDINATES = ("time", "location")
_LISTED_AT_MOST = 12


@dataclass(frozen=True)
class Options:
    """Each is None where a person leaves it to the source.

    Attributes:
        bands: Names of the bands in the network's order, each text one or several of them.
        mean: One number a band or one for all, in the unit after scale and offset.
        std: Like `mean`.
        scale: Factor from stored counts to the unit of `mean` and `std`.
        offset: Added after the factor.
        nodata_fill: Stands in for missing pixels, in the unit of `mean`.
        tile: Side of the largest window in pixels.
        overlap: Pixels that neighbouring windows share.
        classes: Names of the classes, each text one or several of them; or their number.
        coordinates: What the network is told besides: `time`, `location`.
        unit: Of the values that a network for regression gives.
        task: What a bare encoder is served as, `features` or `reconstruction`.
        backbone: The name of a bare encoder.
        frames: Dates in one input of a bare encoder.
        weights: The file of the weights, where there are several.
        config: The file of the configuration, where there are several.
    """

    bands: tuple[str, ...] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    scale: float | None = None
    offset: float | None = None
    nodata_fill: float | None = None
    tile: int | None = None
    overlap: int | None = None
    classes: tuple[str, ...] | None = None
    coordinates: tuple[str, ...] | None = None
    unit: str | None = None
    task: str | None = None
    backbone: str | None = None
    frames: int | None = None
    weights: Path | None = None
    config: Path | None = None

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            numbers = getattr(self, name)
            if numbers is not None and not all(map(math.isfinite, numbers)):
                raise ContractError(f"--{name} must be finite numbers, got {list(numbers)}")
        for name in ("scale", "offset", "nodata_fill"):
            number = getattr(self, name)
            if number is not None and not math.isfinite(number):
                raise ContractError(f"--{name.replace('_', '-')} must be finite, got {number}")
        if self.task not in (None, "features", "reconstruction"):
            raise ContractError(f"--task must be features or reconstruction, got {self.task!r}")
        if unknown := set(self.coordinates or ()) - set(_COORDINATES):
            raise ContractError(
                f"--coordinates may have {' and '.join(_COORDINATES)}, got {sorted(unknown)}"
            )

    @classmethod
    def parse(
        cls,
        *,
        mean: Sequence[str] | None = None,
        std: Sequence[str] | None = None,
        coordinates: Sequence[str] | None = None,
        bands: Sequence[str] | None = None,
        classes: Sequence[str] | None = None,
        **others: object,
    ) -> Self:
        """Reads options as they stand on a command line.

        Commas, spaces and repetition part the numbers and names of an option.

        Raises:
            ContractError: A number is none.
        """
        parted = [one for text in coordinates or () for one in _parts(text)]
        return cls(
            bands=tuple(bands) if bands else None,
            classes=tuple(classes) if classes else None,
            mean=_numbers("mean", mean),
            std=_numbers("std", std),
            coordinates=tuple(c for c in parted if c != "none") if coordinates else None,
            **others,  # type: ignore[arg-type]
        )

    @staticmethod
    def named(option: str, texts: Sequence[str], count: int) -> tuple[str, ...]:
        """Parts texts into as many names as there have to be.

        A name may hold spaces, so these part names only in a single text without commas; one
        number alone is how many there are.

        Raises:
            ContractError: There are more or fewer.
        """
        by_commas = [one.strip() for text in texts for one in text.split(",") if one.strip()]
        if option == "classes" and len(by_commas) == 1 and by_commas[0].isdecimal():
            if by_commas[0] != str(count):
                raise ContractError(f"--classes must be the network's {count}, got {by_commas[0]}")
            return tuple(f"class {i}" for i in range(count))
        names = by_commas
        if len(texts) == 1 and "," not in texts[0] and len(by_commas) != count:
            names = texts[0].split()
        if len(names) == count:
            return tuple(names)
        more = " …" if len(names) > _LISTED_AT_MOST else ""
        raise ContractError(
            f"--{option} must be the network's {count}, got {len(names)}: "
            f"{names[:_LISTED_AT_MOST]}{more} (names that hold spaces: --{option} 'a b,c d')"
        )


def _parts(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _numbers(option: str, texts: Sequence[str] | None) -> tuple[float, ...] | None:
    if not texts:
        return None
    parted = [one for text in texts for one in _parts(text)]
    try:
        return tuple(float(one) for one in parted) or None
    except ValueError:
        raise ContractError(f"--{option} must be numbers, got {parted}") from None
