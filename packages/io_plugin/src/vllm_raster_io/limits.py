"""How much one request may ask of the server; checked before anything is decoded."""

from collections import Counter
from dataclasses import dataclass

from vllm_raster_io.errors import LimitError


@dataclass(frozen=True)
class Limits:
    """Upper limits for one request, each inclusive; for the sum over its files, if it has several.

    Attributes:
        encoded_bytes: Characters of base64.
        pixels: Rows times columns of the scene.
        bands: Bands of the file, whether used or not.
        directories: Directories of a TIFF: its images, overviews and masks.
        metadata_bytes: Bytes of GDAL's metadata in all of them, or of all texts of a PNG.
        block_bytes: Bytes of one tile or strip of the file once it is decompressed, which is
            the least that must be held to read a pixel of it.
        windows: Windows that the scene is cut into.
        score_bytes: Bytes of all scores of the map, which are in memory at once.
    """

    encoded_bytes: int = 4 * 2**30
    pixels: int = 30_000 * 30_000
    bands: int = 1024
    directories: int = 4096
    metadata_bytes: int = 2**20
    block_bytes: int = 2**29
    windows: int = 50_000
    score_bytes: int = 8 * 2**30

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
                "send the scene in parts"
            )


LIMITS = Limits()
"""The limits in force."""

Tally = Counter[str]
"""What the files of one request have taken so far, by the names of the limits."""
