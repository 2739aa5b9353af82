"""Pictures for people: a map of classes over the scene's true colours, with a legend."""

import io
from collections.abc import Sequence
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

    Args:
        scene: The file that was mapped.
        results: Its maps, each of one band of values from 0 to 1.

    Returns:
        A PNG file.

    Raises:
        RasterError: A map is of classes, or there is none.
    """
    if not results or any(one.answer.kind == "classes" for one in results):
        raise RasterError("Only maps of values are shown side by side")
    colours, valid = true_colour(scene, results[0])
    zoom = max(1, round(_SHORT_SIDE / min(colours.shape[:2])))
    pictures = {"": colours}
    for one in results:
        pictures[one.answer.effective.prompt or ""] = _glow(colours, valid, one)
    return _side_by_side([_titled(_enlarged(one, zoom), title) for title, one in pictures.items()])


def true_colour(scene: bytes, result: MapResult) -> tuple[Picture, npt.NDArray[np.bool_]]:
    """The part that was mapped as an eye would see it, from its 2nd to its 98th percentile.

    Returns:
        (height, width, 3) and the valid pixels (height, width).
    """
    effective = result.answer.effective
    names = [name.casefold() for name in effective.bands]
    wanted = [names.index(one) for one in ("red", "green", "blue") if one in names]
    shown = wanted if len(wanted) == 3 else [0, min(1, len(names) - 1), min(2, len(names) - 1)]
    with Scene(Upload.of(scene), wanted=effective.bands) as source:
        column, row, width, height = effective.window or (0, 0, source.width, source.height)
        part = Window(row, column, height, width)
        picked = [effective.indices[i] for i in shown]
        if max(picked) >= source.count:  # of files of a band each this is the first
            picked = [0, 0, 0]
        pixels, valid = source.read(part, picked)
    values = np.moveaxis(pixels, 0, -1).astype(np.float32)
    if not valid.any():
        return np.full(values.shape, 255, dtype=np.uint8), valid
    low, high = np.percentile(values[valid], _STRETCH, axis=0)
    stretched = np.clip((values - low) / np.maximum(high - low, 1e-6), 0, 1)
    picture = (stretched * 255).astype(np.uint8)
    picture[~valid] = 255
    return picture, valid


def _overlay(colours: Picture, valid: npt.NDArray[np.bool_], result: MapResult) -> Picture:
    assert result.answer.classes is not None
    ids = _band(result, valid.shape)
    palette = np.array([rgb(one.color) for one in result.answer.classes], dtype=np.float32)
    known = valid & (ids < len(palette))
    mixed = colours.astype(np.float32)
    mixed[known] = mixed[known] * (1 - _OPACITY) + palette[ids[known]] * _OPACITY
    return mixed.round().astype(np.uint8)


def _glow(colours: Picture, valid: npt.NDArray[np.bool_], result: MapResult) -> Picture:
    """The scene in gray, coloured the more the greater the value."""
    values = np.where(valid, np.nan_to_num(_band(result, valid.shape)), 0)[..., None]
    gray = colours.mean(axis=-1, keepdims=True)
    mixed = gray * (1 - _OPACITY * values) + np.array(_GLOW) * _OPACITY * values
    return mixed.round().astype(np.uint8)


def _band(result: MapResult, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """The map's first band at each of the scene's pixels."""
    effective = result.answer.effective
    if result.answer.format not in ("geotiff", "cog") or not result.data:
        raise RasterError(
            f"A preview needs the map as 'geotiff' or 'cog', got {result.answer.format!r}"
        )
    with opened(result.data) as dataset:
        values = dataset.read(1)
    rows, columns = (np.arange(size) * effective.upscale // effective.downscale for size in shape)
    return values[np.ix_(rows, columns)]


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
