"""Maps as pictures: PNG, WebP and JPEG, for people and for what knows no rasters."""

import io
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from vllm_raster_io.maps import RasterMap
from vllm_raster_io.options import Format

_STRETCH = (2, 98)
_JPEG_QUALITY = 90
_PAPER = 255
"""What stands for nodata in a JPEG, which has no transparency."""
_SAMPLE = 2**20
"""Pixels that a stretch is found from; of more, every so many."""
LARGEST = {"webp": 16_383, "jpeg": 65_500}
"""Pixels of a side that a format holds at most."""

Picture = npt.NDArray[np.uint8]


def holds_ids(raster: RasterMap, kind: Format) -> bool:
    """Whether a picture holds the ids of a map themselves."""
    return kind == "png" and bool(raster.colours) and raster.pixels.dtype.itemsize <= 2


def write_picture(
    raster: RasterMap, kind: Format, quality: int | None = None
) -> tuple[bytes, str | None]:
    """Draws a map.

    A PNG of class ids holds the ids, with their colours as its palette. All others are only to be
    looked at: classes in their colours, numbers stretched over the gray or colours of a screen.

    Args:
        raster: The map.
        kind: `png`, `webp` or `jpeg`.
        quality: From 1 to 100; without it a WebP is lossless.

    Returns:
        The file, and how its colours came about; None where it holds the numbers themselves.
    """
    if holds_ids(raster, kind):
        return _saved(_of_ids(raster), "PNG", transparency=_transparent(raster)), None
    colours, valid, told = _coloured(raster) if raster.colours else _stretched(raster)
    if kind == "jpeg":
        colours[~valid] = _PAPER
        image = Image.fromarray(colours[..., 0] if colours.shape[-1] == 1 else colours)
        told = f"{told}; nodata is white"
        return _saved(image, "JPEG", quality=quality or _JPEG_QUALITY), told
    alpha = np.where(valid, np.uint8(255), np.uint8(0))[..., None]
    image = Image.fromarray(np.concatenate([colours, alpha], axis=-1))
    told = f"{told}; nodata is transparent"
    if kind == "png":
        return _saved(image, "PNG"), told
    image = image.convert("RGBA")
    if quality is None:
        return _saved(image, "WEBP", lossless=True), told
    return _saved(image, "WEBP", quality=quality), told


def _of_ids(raster: RasterMap) -> Image.Image:
    image = Image.fromarray(raster.pixels[0])
    if raster.pixels.dtype == np.uint8:
        image.putpalette(np.array(_palette(raster), np.uint8).tobytes())
    return image


def _transparent(raster: RasterMap) -> int | None:
    return int(raster.nodata) if raster.pixels.dtype == np.uint8 else None


def _palette(raster: RasterMap) -> list[tuple[int, int, int]]:
    """A colour for each byte; those that are no class are white."""
    rest = 256 - len(raster.colours)
    return [*raster.colours, *([(_PAPER, _PAPER, _PAPER)] * rest)]


def _coloured(raster: RasterMap) -> tuple[Picture, npt.NDArray[np.bool_], str]:
    ids = raster.pixels[0]
    valid = ids < len(raster.colours)
    palette = np.array(raster.colours, np.uint8)
    return palette[np.where(valid, ids, 0)], valid, "Classes in their colours"


def _stretched(raster: RasterMap) -> tuple[Picture, npt.NDArray[np.bool_], str]:
    bands = [0, 1, 2] if len(raster.pixels) >= 3 else [0]
    shown = raster.pixels[bands]
    if np.isnan(raster.nodata):
        valid = np.isfinite(shown).all(axis=0)
    else:
        valid = (shown != raster.nodata).all(axis=0)
    picture = np.empty((*valid.shape, len(bands)), np.uint8)
    told = []
    for i, band in enumerate(bands):
        low, high = _ends(shown[i], valid)
        with np.errstate(invalid="ignore", over="ignore"):
            part = (shown[i].astype(np.float64) - low) / max(high - low, 1e-30)
        part = np.nan_to_num(part, nan=0.0, posinf=1.0, neginf=0.0)
        picture[..., i] = np.rint(np.clip(part, 0, 1) * 255)
        name = raster.names[band] if raster.names else f"band {band + 1}"
        scale = raster.scale or 1
        told.append(f"{name} from {low * scale:.6g} to {high * scale:.6g}")
    return picture, valid, f"{'Red, green, blue' if len(bands) == 3 else 'Gray'}: {', '.join(told)}"


def _ends(band: npt.NDArray[Any], valid: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """What black and full colour stand for."""
    step = max(1, int(np.sqrt(band.size / _SAMPLE)))
    seen = band[::step, ::step][valid[::step, ::step]]
    if not seen.size:
        return 0.0, 1.0
    low, high = np.percentile(seen.astype(np.float64), _STRETCH)
    return float(low), float(high)


def _saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **{k: v for k, v in options.items() if v is not None})
    return buffer.getvalue()
