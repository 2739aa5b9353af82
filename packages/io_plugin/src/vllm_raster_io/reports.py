"""The answer to a request: its map, made, written and described."""

from typing import Any, Literal

import numpy as np

from vllm_raster_io.access import deliver
from vllm_raster_io.answers import ClassSummary, ConfidenceFile, Effective, RasterAnswer
from vllm_raster_io.contract import OutputContract
from vllm_raster_io.maps import RasterMap
from vllm_raster_io.options import MEDIA_TYPES
from vllm_raster_io.plans import Plan
from vllm_raster_io.products import ScoreField, class_counts, confidence_map, make_product


def answer_of(plan: Plan, field: ScoreField, request_id: str | None) -> RasterAnswer:
    """Makes, writes and describes the map of a request.

    Args:
        plan: The request.
        field: The scores of its map, which are used up.
        request_id: As the server knows the request.

    Raises:
        RasterIOError: It cannot be written where it is to be.
    """
    encoding, output, tags = plan.encoding, plan.contract.output, plan.series.tags
    plan.go_on()
    beside = _confidence(plan, field) if encoding.confidence else None
    plan.go_on()
    raster = make_product(encoding.product, field, output, encoding.dtype)
    plan.go_on()
    content, picture = encoding.write(raster, plan.place, tags)
    plan.go_on()
    data_format, data = deliver(content, plan.target)
    confidence = None
    if beside is not None:
        told, content = beside
        beside_format, beside_data = deliver(content, plan.confidence_target)
        confidence = ConfidenceFile(data_format=beside_format, data=beside_data, **told)
    _, height, width = field.shape
    crs, transform = plan.place.crs, plan.place.transform
    return RasterAnswer(
        data_format=data_format,
        data=data,
        request_id=request_id,
        format=encoding.format,
        media_type=MEDIA_TYPES[encoding.format],
        picture=picture,
        kind=output.kind,
        product=encoding.product,
        width=width,
        height=height,
        dtype=str(raster.pixels.dtype),
        nodata=_told(raster.nodata),
        scale=raster.scale,
        invalid_pixels=int(np.count_nonzero(field.invalid)),
        crs=None if crs is None else crs.to_string(),
        transform=None if transform is None else [float(one) for one in transform[:6]],
        classes=_summary(raster, output) if encoding.product == "classes" else None,
        confidence=confidence,
        effective=_effective(plan),
    )


def _confidence(plan: Plan, field: ScoreField) -> tuple[dict[str, Any], bytes]:
    raster = confidence_map(field, plan.encoding.dtype)
    content, _ = plan.encoding.write(raster, plan.place, plan.series.tags)
    told = {
        "dtype": str(raster.pixels.dtype),
        "nodata": _told(raster.nodata),
        "scale": raster.scale,
    }
    return told, content


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
