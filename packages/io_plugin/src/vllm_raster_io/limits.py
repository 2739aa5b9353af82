"""How much one request may ask of the server; checked before anything is decoded."""

from collections import Counter
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from vllm_raster_io.errors import LimitError


def _limit(default: int, description: str, least: int = 1) -> Any:
    return Field(default=default, ge=least, strict=True, description=description)


_ADVICE = {
    "files": "send one file with all bands of a date, or of all dates",
    "frames": "send fewer dates, or have the server started with a greater max_frames",
}


class Limits(BaseModel):
    """Upper limits for one request, each inclusive; for the sum over its files, if it has several.

    Whoever starts a server sets each by the name `max_…`, see `Settings`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes: int = _limit(
        4 * 2**30, "Bytes of the files as they come: characters of base64, or as read or fetched."
    )
    files: int = _limit(
        512,
        "Files of the request. Each that is named by path or URL stays open, and most systems let "
        "a process have 1,024 open at least.",
    )
    frames: int = _limit(64, "Dates of the request, where they come as more than one file.")
    pixels: int = _limit(
        30_000 * 30_000,
        "Rows times columns of the scene: the sum over files of one date each, but once for files "
        "of one band each, which are one scene.",
    )
    bands: int = _limit(1024, "Bands of the file, whether used or not.")
    directories: int = _limit(
        4096,
        "Directories of a TIFF: its images, overviews and masks; or chunks of a PNG, segments of a "
        "JPEG, boxes of a JPEG 2000 before its pixels.",
    )
    blocks: int = _limit(2**22, "Tiles or strips of a TIFF.")
    scans: int = _limit(100, "Passes in which a JPEG comes.")
    metadata_bytes: int = _limit(
        2**20, "Bytes of GDAL's metadata in all directories, or of all texts of a PNG."
    )
    block_bytes: int = _limit(
        2**29,
        "Bytes of one tile or strip of the file once it is decompressed, which is the least that "
        "must be held to read a pixel of it.",
    )
    windows: int = _limit(50_000, "Windows that the scene is cut into.")
    score_bytes: int = _limit(
        8 * 2**30,
        "Bytes of the map's numbers and of the scores of one row of windows, which are in memory "
        "at once.",
    )
    seconds: int = _limit(3600, "Seconds from the request to its answer.")
    fetch_seconds: int = _limit(60, "Seconds for fetching the files that a request names by URL.")
    redirects: int = _limit(5, "Redirects that are followed for one URL.", least=0)

    def check(self, name: str, value: int) -> None:
        """Compares one value with its limit.

        Raises:
            LimitError: The value is above it; names both.
        """
        limit = getattr(self, name)
        if value > limit:
            what = name.replace("_", " ")
            raise LimitError(
                f"The request has {value} {what}, and at most {limit} are allowed; "
                f"{_ADVICE.get(name, 'send the scene in parts')}"
            )


class LimitsInForce:
    """The limits of this process: those of `Limits`, unless whoever started it set others."""

    def __init__(self) -> None:
        self._limits = Limits()

    def set(self, limits: Limits) -> None:
        """Puts others in force, for what comes from now on."""
        self._limits = limits

    def check(self, name: str, value: int) -> None:
        """Like `Limits.check`.

        Raises:
            LimitError: The value is above its limit; names both.
        """
        self._limits.check(name, value)

    def __getattr__(self, name: str) -> int:
        value: int = getattr(self._limits, name)
        return value


LIMITS = LimitsInForce()
"""The limits in force."""

Tally = Counter[str]
"""What the files of one request have taken so far, by the names of the limits."""
