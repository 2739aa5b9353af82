"""Pictures that Pillow writes, and the bands that it reads: another reader than GDAL."""

import io
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from .scenes import Array

ORIENTATION = 274
RGB = ("RED", "GREEN", "BLUE")


def picture(height: int = 24, width: int = 40, bands: int = 3) -> Image.Image:
    """A smooth one, which JPEG keeps nearly as it is, and whose eight turns all differ."""
    row, column = np.indices((height, width))
    bands_of_it = [5 + 3 * row + 2 * column, 40 + row + 3 * column, 200 - 4 * row - column]
    array = np.stack(bands_of_it[:bands], axis=-1).clip(0, 255).astype(np.uint8)
    return Image.fromarray(array[..., 0] if bands == 1 else array)


def with_alpha(image: Image.Image, alpha: Array) -> Image.Image:
    image = image.copy()
    image.putalpha(Image.fromarray(alpha))
    return image


def saved(image: Image.Image, form: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def exif(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[ORIENTATION] = orientation
    return tags


def pillow_reads(content: bytes, mode: str = "RGB") -> Array:
    """The bands (bands, height, width) of the upright picture."""
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
    array = np.asarray(image.convert(mode))
    return array[np.newaxis] if array.ndim == 2 else np.moveaxis(array, -1, 0)
