"""When a scene was taken: as the request says, else as the file does."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from vllm_raster_io.errors import RequestError
from vllm_raster_io.quoting import quoted
from vllm_raster_io.series import Series

_TAGS = (
    "acquisitiondatetime",  # GDAL's own, in the domain IMAGERY
    "acquisition_datetime",
    "acquisition_date",
    "date_acquired",  # Landsat
    "sensing_time",  # HLS
    "datetime",  # STAC
    "date",
)
_WRITTEN = "tifftag_datetime"
"""When the file was made: of some files that is when the scene was taken, so it comes last."""
_TIFF_DATE = re.compile(r"(\d{4}):(\d\d):(\d\d)")


@dataclass(frozen=True)
class Dated:
    """The day of one frame.

    Attributes:
        day: In UTC; None where unknown.
        by: `request`, or the name of the tag that tells it; None where unknown.
    """

    day: date | None = None
    by: str | None = None


def asked_dates(values: str | Sequence[str], frames: int) -> list[Dated]:
    """Reads the dates of a request.

    Args:
        values: One ISO date, or date and time, for each frame, in the frames' order; a single one
            may come without a list.
        frames: How many there must be.

    Raises:
        RequestError: There are more or fewer, or one is no date; says which.
    """
    values = [values] if isinstance(values, str) else values
    if len(values) != frames:
        raise RequestError(
            f"`dates` must be {frames}, one for each of the checkpoint's frames and in the order "
            f"of the files, got {len(values)}"
        )
    dates = [Dated(_iso_day(value), "request") for value in values]
    for value, one in zip(values, dates, strict=True):
        if one.day is None:
            raise RequestError(
                "`dates` must be ISO dates such as 2024-02-29 or 2024-02-29T10:30:00Z, "
                f"got {quoted(value)}"
            )
    return dates


def told_dates(series: Series) -> list[Dated]:
    """Reads the dates in the files' tags: of a frame's bands, then of its file.

    A tag of the file tells nothing where the file holds several frames.

    Raises:
        RasterError: A file is damaged.
    """
    return [_told(series, number) for number in range(series.frames)]


def _told(series: Series, number: int) -> Dated:
    scene, indices = series.frame(number)
    for index in dict.fromkeys(indices):
        if (found := _tagged(scene.tags(index), _TAGS)).day is not None:
            return found
    if len(series.scenes) < series.frames:
        return Dated()
    return _tagged(scene.tags(), (*_TAGS, _WRITTEN))


def _tagged(tags: Mapping[str, str], names: Sequence[str]) -> Dated:
    known = {name.casefold(): name for name in tags}
    for name in names:
        if name in known and (day := _tag_day(tags[known[name]])) is not None:
            return Dated(day, known[name])
    return Dated()


def _tag_day(text: str) -> date | None:
    """The day of a tag: the first, if it tells several, and also as TIFF writes it."""
    first = text.split(";")[0].strip()
    return _iso_day(_TIFF_DATE.sub(r"\1-\2-\3", first, count=1))


def _iso_day(text: str) -> date | None:
    """The day in UTC of an ISO date or time; None for other text."""
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo is None else moment.astimezone(UTC)).date()
    except (ValueError, OverflowError):
        return None
