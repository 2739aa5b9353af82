"""Pictures for people: a map of classes over the scene's true colours, with a legend."""

import io
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from vllm_raster_io.answers import ClassSummary
from vllm_raster_io.client import MapResult
from vllm_raster_io.errors import RasterError
from vllm_raster_io.maps import opened, rgb
from vllm_raster_io.rasters import Scene
from vllm_raster_io.tiling import Window
from vllm_raster_io.uploads import Upload

_OPACITY = 0.6
_STRETCH = (2, 98)
_SHORT_SIDE = 480
_MARGIN = 16
_FONT_SIZE = 18
_PAPER = (255, 255, 255)
_INK = (32, 32, 32)
_GLOW = (255, 64, 160)

Picture = npt.NDArray[np.uint8]


def preview(scene: bytes, result: MapResult) -> bytes:
    """Draws the scene, and beside it the map: of classes with a legend, of values by their size.

    Args:
        scene: The file that was mapped, or the first of them.
        result: Its map.

    Returns:
        A PNG file.
    """
    if result.answer.classes is not None:
        return class_preview(scene, result)
    return value_preview(scene, [result])


def class_preview(scene: bytes, result: MapResult) -> bytes:
    """Draws the scene, the map over it, and the legend, side by side.

    Args:
        scene: The file that was mapped, or the first of them.
        result: Its map, of classes.

    Returns:
        A PNG file.

    Raises:
        RasterError: The map is not of classes.
    """
    if result.answer.classes is None:
        raise RasterError(f"Only a map of classes has a preview, got {result.answer.product!r}")
    colours, valid = true_colour(scene, result)
    overlay = _overlay(colours, valid, result)
    zoom = max(1, round(_SHORT_SIDE / min(colours.shape[:2])))
    panels = [_enlarged(colours, zoom), _enlarged(overlay, zoom)]
    panels.append(_legend(result.answer.classes, panels[0].height))
    return _side_by_side(panels)


def value_preview(scene: bytes, results: Sequence[MapResult]) -> bytes:
    """Draws the scene, and beside it each map over it, with the words that asked for it.

    Of a map of several bands the first is shown, of an image its colours. Values beyond 0 to 1
    are shown between their 2nd and 98th percentile, which then stand above.

    Args:
        scene: The file that was mapped, or the first of them.
        results: Its maps, none of them of classes.

    Returns:
        A PNG file.

    Raises:
        RasterError: A map is of classes, or there is none.
    """
    if not results or any(one.answer.product == "classes" for one in results):
        raise RasterError("Only maps of values are shown side by side")
    colours, valid = true_colour(scene, results[0])
    zoom = max(1, round(_SHORT_SIDE / min(colours.shape[:2])))
    panels = [_titled(_enlarged(colours, zoom), "")]
    for one in results:
        title, picture = _shown(colours, valid, one)
        panels.append(_titled(_enlarged(picture, zoom), title))
    return _side_by_side(panels)


def true_colour(scene: bytes, result: MapResult) -> tuple[Picture, npt.NDArray[np.bool_]]:
    """The part that was mapped as an eye would see it, from its 2nd to its 98th percentile.

    Returns:
        (height, width, 3) and the valid pixels (height, width).
    """
    effective = result.answer.effective
    with Scene(Upload.of(scene), wanted=effective.bands) as source:
        column, row, width, height = effective.window or (0, 0, source.width, source.height)
        part = Window(row, column, height, width)
        picked = [effective.indices[i] for i in _red_green_blue(effective.bands)]
        if max(picked) >= source.count:  # of files of a band each this is the first
            picked = [0, 0, 0]
        pixels, valid = source.read(part, picked)
    return _stretched(pixels, valid), valid


def _red_green_blue(names: Sequence[str | None]) -> list[int]:
    """Where these colours are among bands, or the first bands where one is not."""
    known = [(name or "").casefold() for name in names]
    wanted = [known.index(one) for one in ("red", "green", "blue") if one in known]
    return wanted if len(wanted) == 3 else [min(i, len(known) - 1) for i in range(3)]


def _stretched(bands: npt.NDArray[Any], valid: npt.NDArray[np.bool_]) -> Picture:
    """Three bands as colours, white where they are not valid."""
    values = np.moveaxis(bands, 0, -1).astype(np.float32)
    if not valid.any():
        return np.full(values.shape, 255, dtype=np.uint8)
    low, high = np.percentile(values[valid], _STRETCH, axis=0)
    shares = np.clip((values - low) / np.maximum(high - low, 1e-6), 0, 1)
    shares[~valid] = 1
    return (shares * 255).astype(np.uint8)


def _overlay(colours: Picture, valid: npt.NDArray[np.bool_], result: MapResult) -> Picture:
    assert result.answer.classes is not None
    (ids,) = _bands(result, valid.shape, [0])
    palette = np.array([rgb(one.color) for one in result.answer.classes], dtype=np.float32)
    known = valid & (ids < len(palette))
    mixed = colours.astype(np.float32)
    mixed[known] = mixed[known] * (1 - _OPACITY) + palette[ids[known]] * _OPACITY
    return mixed.round().astype(np.uint8)


def _shown(
    colours: Picture, valid: npt.NDArray[np.bool_], result: MapResult
) -> tuple[str, Picture]:
    """A map that is not of classes, and what to write above it."""
    with _map_of(result) as dataset:
        names, unit, nodata = dataset.descriptions, dataset.units[0], dataset.nodata
    title = result.answer.effective.prompt or names[0] or ""
    if result.answer.kind == "image" and len(names) >= 3:
        bands = _bands(result, valid.shape, _red_green_blue(names))
        return "", _stretched(bands, valid & np.isfinite(bands).all(axis=0))
    (values,) = _bands(result, valid.shape, [0])
    known = valid & np.isfinite(values) & (values != nodata)
    values = values * (result.answer.scale or 1)
    if known.any() and (values[known].min() < 0 or values[known].max() > 1):
        low, high = np.percentile(values[known], _STRETCH)
        values = np.clip((values - low) / max(high - low, 1e-6), 0, 1)
        title = f"{title} {low:.4g} – {high:.4g} {unit or ''}".strip()
    return title, _glow(colours, np.where(known, values, 0))


def _glow(colours: Picture, shares: npt.NDArray[Any]) -> Picture:
    """The scene in gray, coloured the more the greater the share."""
    gray, parts = colours.mean(axis=-1, keepdims=True), shares[..., None]
    mixed = gray * (1 - _OPACITY * parts) + np.array(_GLOW) * _OPACITY * parts
    return mixed.round().astype(np.uint8)


def _bands(result: MapResult, shape: tuple[int, ...], shown: Sequence[int]) -> npt.NDArray[Any]:
    """Some of the map's bands, counted from 0, at each of the scene's pixels."""
    effective = result.answer.effective
    with _map_of(result) as dataset:
        values = dataset.read([one + 1 for one in shown])
    rows, columns = (np.arange(size) * effective.upscale // effective.downscale for size in shape)
    return values[:, rows[:, None], columns]


def _map_of(result: MapResult) -> AbstractContextManager[Any]:
    if result.answer.format not in ("geotiff", "cog") or not result.data:
        raise RasterError(
            f"A preview needs the map as 'geotiff' or 'cog', got {result.answer.format!r}"
        )
    return opened(result.data)


def _titled(image: Image.Image, title: str) -> Image.Image:
    sheet = Image.new("RGB", (image.width, image.height + 2 * _FONT_SIZE), _PAPER)
    sheet.paste(image, (0, 2 * _FONT_SIZE))
    font = ImageFont.load_default(_FONT_SIZE)
    ImageDraw.Draw(sheet).text((0, _FONT_SIZE // 3), title, fill=_INK, font=font)
    return sheet


def _enlarged(picture: Picture, zoom: int) -> Image.Image:
    height, width = picture.shape[:2]
    return Image.fromarray(picture).resize((width * zoom, height * zoom), Image.Resampling.NEAREST)


def _legend(classes: Sequence[ClassSummary], height: int) -> Image.Image:
    font = ImageFont.load_default(_FONT_SIZE)
    total = max(1, sum(one.pixels for one in classes))
    lines = [f"{one.name}  {one.pixels / total:.0%}" for one in classes]
    box = _FONT_SIZE
    width = box * 2 + round(max(font.getlength(line) for line in lines))
    image = Image.new("RGB", (width, height), _PAPER)
    draw = ImageDraw.Draw(image)
    for i, (one, line) in enumerate(zip(classes, lines, strict=True)):
        top = i * box * 2
        draw.rectangle((0, top, box, top + box), fill=rgb(one.color), outline=_INK)
        draw.text((box * 1.5, top - 2), line, fill=_INK, font=font)
    return image


def _side_by_side(panels: Sequence[Image.Image]) -> bytes:
    width = sum(one.width for one in panels) + _MARGIN * (len(panels) + 1)
    height = max(one.height for one in panels) + 2 * _MARGIN
    sheet = Image.new("RGB", (width, height), _PAPER)
    left = _MARGIN
    for one in panels:
        sheet.paste(one, (left, _MARGIN))
        left += one.width + _MARGIN
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
