"""Which format a file is in: told by its first bytes, whatever it is said to be."""

from collections.abc import Callable
from dataclasses import dataclass

from vllm_raster_io.arrays import check_array
from vllm_raster_io.chunks import check_chunks
from vllm_raster_io.codestreams import check_codestream
from vllm_raster_io.directories import check_directories
from vllm_raster_io.errors import RasterError
from vllm_raster_io.files import Content, SceneFile
from vllm_raster_io.limits import Tally
from vllm_raster_io.riff import check_riff
from vllm_raster_io.segments import check_segments


@dataclass(frozen=True)
class Format:
    """One format that is read.

    Attributes:
        name: As people call it.
        driver: GDAL's name of the only driver that opens it; None for what is read without GDAL.
        check: Measures what the file says of itself, before anything is decoded or allocated.
        is_picture: Whether its bands are colours, for nothing else can be in it.
    """

    name: str
    driver: str | None
    check: Callable[[Content, Tally], None]
    is_picture: bool = False


TIFF = Format("GeoTIFF", "GTiff", check_directories)
PNG = Format("PNG", "PNG", check_chunks, is_picture=True)
JPEG = Format("JPEG", "JPEG", check_segments, is_picture=True)
WEBP = Format("WebP", "WEBP", check_riff, is_picture=True)
JPEG_2000 = Format("JPEG 2000", "JP2OpenJPEG", check_codestream)
ARRAY = Format("NumPy", None, check_array)

_BEGINNINGS = (
    (b"II*\0", TIFF),
    (b"MM\0*", TIFF),
    (b"II+\0", TIFF),  # BigTIFF
    (b"MM\0+", TIFF),
    (b"\x89PNG", PNG),
    (b"\xff\xd8\xff", JPEG),
    (b"\0\0\0\x0cjP  \r\n\x87\n", JPEG_2000),
    (b"\xff\x4f\xff\x51", JPEG_2000),  # a codestream without a file around it
    (b"\x93NUMPY", ARRAY),
)
_NAMES = "GeoTIFF, PNG, JPEG, WebP, JPEG 2000 or NumPy (.npy)"


def format_of(file: SceneFile) -> Format:
    """The format of a file.

    Raises:
        RasterError: It is none of those that are read.
    """
    for magic, one in _BEGINNINGS:
        if file.head.startswith(magic):
            return one
    if file.head[:4] == b"RIFF" and file.head[8:12] == b"WEBP":
        return WEBP
    # Of files that the client only names, nothing is told that it could not read otherwise.
    begins = f"begins with {file.head[:8]!r}, as" if file.sent else "begins as"
    raise RasterError(f"The data must be a {_NAMES} file, but {begins} none of them does")
