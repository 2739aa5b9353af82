"""What a network is told besides pixels: when and where each window was taken."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from vllm_raster_io.contract import InputContract
from vllm_raster_io.dates import Dated, asked_dates, told_dates
from vllm_raster_io.errors import RequestError
from vllm_raster_io.places import centres
from vllm_raster_io.requests import RasterRequest
from vllm_raster_io.series import Series

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Coordinates:
    """The dates of all windows and the place of each; None for what the network does not take.

    Attributes:
        dates: One a frame.
        places: (windows, 2), latitude and longitude in degrees; NaN where unknown.
        places_by: What tells the places; None where nothing does.
        notes: What could not be told, or looks odd, in words for the client.
        first_day: Number of 1 January.
        middle: Latitude and longitude of the middle of what is mapped, if places are told and
            it has one.
    """

    dates: tuple[Dated, ...] | None
    places: Array | None
    places_by: Literal["request", "georeference"] | None
    notes: tuple[str, ...]
    first_day: int = 1
    middle: list[float] | None = None

    def item(self, window: int) -> dict[str, Array]:
        """What goes into a window's image item, without what is unknown.

        Args:
            window: Its number.

        Returns:
            `temporal_coords` (frames, 2), year and day of the year, NaN for a frame without a
            date; `location_coords` (2,), latitude and longitude.
        """
        item = {}
        if self.told_time and self.dates is not None:
            item["temporal_coords"] = np.array(
                [self._year_and_day(one) for one in self.dates], dtype=np.float64
            )
        if self.places is not None and not np.isnan(self.places[window]).any():
            item["location_coords"] = self.places[window]
        return item

    @property
    def told_time(self) -> bool:
        """Whether the date of some frame is known."""
        return any(one.day is not None for one in self.dates or ())

    @property
    def names(self) -> list[str]:
        """Names of what the network is told."""
        told = {"time": self.told_time, "location": self.places_by is not None}
        return [name for name, known in told.items() if known]

    @property
    def days(self) -> list[str | None] | None:
        """The date of each frame as ISO writes it."""
        if self.dates is None:
            return None
        return [None if one.day is None else one.day.isoformat() for one in self.dates]

    @property
    def days_by(self) -> list[str | None] | None:
        """What tells the date of each frame."""
        return None if self.dates is None else [one.by for one in self.dates]

    def _year_and_day(self, one: Dated) -> tuple[float, float]:
        if one.day is None:
            return (np.nan, np.nan)
        return (one.day.year, one.day.timetuple().tm_yday - 1 + self.first_day)


def find_coordinates(
    request: RasterRequest,
    contract: InputContract,
    series: Series,
    middles: Sequence[tuple[float, float]],
    middle: tuple[float, float],
) -> Coordinates:
    """Finds what the checkpoint takes, in the request and in the files.

    Args:
        request: What is asked.
        contract: What the checkpoint takes.
        series: The files.
        middles: Row and column of the middle of each window, in the scene's pixels.
        middle: That of all that is mapped.

    Raises:
        RequestError: The request gives what the checkpoint does not take, what is no date, or a
            place to a file that tells its own.
        RasterError: A file is damaged.
    """
    for field, name in (("dates", "time"), ("location", "location")):
        if getattr(request, field) is not None and name not in contract.coordinates:
            raise RequestError(
                f"`{field}` is refused: this checkpoint's network is not told the {name}. "
                "Leave it out"
            )
    notes: list[str] = []
    dates = places = places_by = whole = None
    if "time" in contract.coordinates:
        dates = _find_dates(request, contract, series, notes)
    if "location" in contract.coordinates:
        places, places_by = _find_places(request, series, middles, notes)
        if places_by == "request":
            whole = list(request.location or ())
        elif places_by is not None:
            whole = _middle(series, middle)
    return Coordinates(dates, places, places_by, tuple(notes), contract.first_day, whole)


def _middle(series: Series, middle: tuple[float, float]) -> list[float] | None:
    found = centres(series.dataset, [middle])
    return None if found is None else [float(one) for one in found[0]]


def _find_dates(
    request: RasterRequest, contract: InputContract, series: Series, notes: list[str]
) -> tuple[Dated, ...]:
    if request.dates is not None:
        dates = asked_dates(request.dates, contract.frames)
    else:
        dates = told_dates(series)
    unknown = [str(i) for i, one in enumerate(dates, 1) if one.day is None]
    if unknown:
        which = f" (frame {', '.join(unknown)})" if contract.frames > 1 else ""
        notes.append(
            f"The date{which} is unknown and the network was not told: no tag of the file says it. "
            "Give `dates`"
        )
    days = [one.day for one in dates if one.day is not None]
    if days != sorted(days):
        notes.append("The dates are not in order of time; the frames were left in the order given")
    return tuple(dates)


def _find_places(
    request: RasterRequest,
    series: Series,
    middles: Sequence[tuple[float, float]],
    notes: list[str],
) -> tuple[Array | None, Literal["request", "georeference"] | None]:
    places = centres(series.dataset, middles)
    if request.location is not None:
        if places is not None:
            raise RequestError(
                "`location` is refused: the file's georeference tells where each window lies. "
                "Leave it out"
            )
        return np.tile(np.array(request.location, dtype=np.float64), (len(middles), 1)), "request"
    if places is None:
        notes.append(
            "The location is unknown and the network was not told: the file has no georeference "
            "from a transform or control points in a system of this Earth. Give `location`"
        )
        return None, None
    if lost := int(np.isnan(places).any(axis=1).sum()):
        notes.append(
            f"The location of {lost} of {len(middles)} windows is unknown and the network was not "
            "told: they are not on Earth"
        )
    return places, "georeference"
