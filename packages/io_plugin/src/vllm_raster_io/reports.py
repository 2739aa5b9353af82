"""The answer to a request: its map, made, written and described."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Literal

import numpy as np

from vllm_raster_io.access import delivered
from vllm_raster_io.answers import ClassSummary, ConfidenceFile, Effective, RasterAnswer
from vllm_raster_io.assembly import Assembly
from vllm_raster_io.contract import OutputContract
from vllm_raster_io.maps import INSTRUCTION_TAG, RasterMap
from vllm_raster_io.options import MEDIA_TYPES
from vllm_raster_io.plans import Plan
from vllm_raster_io.products import class_counts


def answer_of(plan: Plan, assembly: Assembly, request_id: str | None) -> RasterAnswer:
    """Makes, writes and describes the map of a request, and closes its scene.

    Args:
        plan: The request.
        assembly: What makes its map, with all windows.
        request_id: As the server knows the request.

    Raises:
        ServingError: Windows are missing.
        RasterIOError: It cannot be written where it is to be.
    """
    plan.go_on()
    raster, beside = assembly.finish()
    invalid = int(np.count_nonzero(plan.invalid()))
    effective, tags = _effective(plan), _tags(plan)
    # What is left to do needs no pixel of the scene, and may take as much memory.
    plan.close()
    confidence = None if beside is None else _written(plan, beside, tags)
    del beside
    written = _written(plan, raster, tags)
    del raster
    (height, width), output = plan.map_size, plan.contract.output
    crs, transform = plan.place.crs, plan.place.transform
    with ExitStack() as files:  # both are there at the end, or none
        given = files.enter_context(delivered(written.pop("content"), plan.target))
        if confidence is not None:
            content = confidence.pop("content")
            its = files.enter_context(delivered(content, plan.confidence_target))
            confidence |= {"data_format": its[0], "data": its[1]}
    return RasterAnswer(
        data_format=given[0],
        data=given[1],
        request_id=request_id,
        format=plan.encoding.format,
        media_type=MEDIA_TYPES[plan.encoding.format],
        kind=output.kind,
        product=plan.encoding.product,
        width=width,
        height=height,
        invalid_pixels=invalid,
        crs=None if crs is None else crs.to_string(),
        transform=None if transform is None else [float(one) for one in transform[:6]],
        confidence=None if confidence is None else _confidence(confidence),
        effective=effective,
        **written,
    )


def _tags(plan: Plan) -> dict[str, str]:
    """The scene's, and what was asked in words, in place of what it was made by itself."""
    tags = {name: told for name, told in plan.series.tags.items() if name != INSTRUCTION_TAG}
    if plan.instruction is not None:
        # Of other characters some end a tag, or cannot be written.
        printable = (one if one.isprintable() else " " for one in plan.instruction)
        tags[INSTRUCTION_TAG] = "".join(printable)
    return tags


def _written(plan: Plan, raster: RasterMap, tags: Mapping[str, str]) -> dict[str, Any]:
    """A map as a file, `content`, and what is told of it."""
    plan.go_on()
    content, picture = plan.encoding.write(raster, plan.place, tags)
    plan.go_on()
    return {
        "content": content,
        "picture": picture,
        "dtype": str(raster.pixels.dtype),
        "nodata": _told(raster.nodata),
        "scale": raster.scale,
        "classes": _summary(raster, plan.contract.output) if raster.colours else None,
    }


def _confidence(written: Mapping[str, Any]) -> ConfidenceFile:
    told = ("data_format", "data", "dtype", "nodata", "scale")
    return ConfidenceFile(**{name: written[name] for name in told})


def _told(nodata: float) -> int | Literal["nan"]:
    return "nan" if np.isnan(nodata) else int(nodata)


def _summary(raster: RasterMap, output: OutputContract) -> list[ClassSummary]:
    counts = class_counts(raster, len(output.classes))
    return [
        ClassSummary(id=i, name=one.name, color=one.color, pixels=pixels)
        for i, (one, pixels) in enumerate(zip(output.classes, counts, strict=True))
    ]


def _effective(plan: Plan) -> Effective:
    contract, request, told = plan.contract, plan.request, plan.coordinates
    window, resolution = plan.region.window, plan.region.resolution
    return Effective(
        indices=list(plan.series.indices),
        bands=list(contract.input.bands),
        file_bands=plan.series.names,
        bands_by=plan.series.bands_by,
        scale=None if plan.units is None else list(plan.units.scales),
        offset=None if plan.units is None else list(plan.units.offsets),
        nodata=request.nodata,
        window=[window.column, window.row, window.width, window.height],
        resolution=None if resolution is None else list(resolution),
        resampling=_resampling(plan),
        tile_size=plan.tiling.tile,
        overlap=plan.tiling.rows.overlap * plan.tiling.step,
        blending=request.blending,
        augment=request.augment,
        windows=len(plan.windows) * len(plan.ways),
        compression=plan.encoding.compression,
        quality=plan.encoding.quality,
        priority=request.priority,
        upscale=contract.output.upscale,
        downscale=contract.output.downscale,
        frames=contract.input.frames,
        coordinates=told.names,
        dates=told.days,
        dates_by=told.days_by,
        location_by=told.places_by,
        location=told.middle,
        prompt=plan.instruction,
        notes=[*plan.remarks, *plan.series.notes, *told.notes],
    )


def _resampling(plan: Plan) -> str | None:
    """How each axis was brought to another size, and the scores back."""
    if not plan.view.resamples:
        return None
    kinds = [
        "none" if one == 1 else "mean, back bilinear" if one > 1 else "bilinear, back mean"
        for one in reversed(plan.region.ratios)
    ]
    return kinds[0] if kinds[0] == kinds[1] else f"across {kinds[0]}; down {kinds[1]}"
