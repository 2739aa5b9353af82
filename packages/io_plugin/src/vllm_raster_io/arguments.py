"""What a client may ask for beside the raster, as keywords."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from vllm_raster_io.augmentation import Augment
from vllm_raster_io.blending import Profile
from vllm_raster_io.errors import RequestError
from vllm_raster_io.options import Compression, Format, Product


class MapArguments(TypedDict, total=False):
    """A request's fields, see `RasterRequest`; what is None is not sent."""

    bands: Sequence[str | int] | None
    indices: Sequence[int] | None
    scale: float | Sequence[float] | None
    offset: float | Sequence[float] | None
    nodata: float | Literal["nan", "none"] | None
    prompt: str | None
    dates: str | Sequence[str] | None
    location: Sequence[float] | None
    window: Sequence[int] | None
    bbox: Sequence[float] | None
    bbox_crs: str | None
    resolution: float | Sequence[float] | None
    tile_size: int | None
    overlap: int | None
    blending: Profile | None
    augment: Augment | None
    product: Product | None
    dtype: Literal["float32", "uint8"] | None
    confidence: bool | None
    format: Format | None
    compression: Compression | None
    quality: int | None
    priority: int | None
    data_format: Literal["b64_json", "path", "url"] | None
    out_data_format: Literal["b64_json", "path"] | None
    out_path: str | Path | None
    overwrite: bool | None


def fields_of(arguments: MapArguments) -> dict[str, Any]:
    """The fields to send.

    Raises:
        TypeError: There is no such argument.
        RequestError: A number is one that json does not have.
    """
    known = MapArguments.__annotations__
    if unknown := [name for name in arguments if name not in known]:
        raise TypeError(f"map() has no argument {unknown[0]!r}; there are {', '.join(known)}")
    return {name: _plain(name, value) for name, value in arguments.items() if value is not None}


def _plain(name: str, value: Any) -> Any:
    """A value as json has it."""
    if name == "nodata" and value != value:
        return "nan"  # as rasterio's datasets tell it
    numbers = value if isinstance(value, Sequence) else [value]
    if any(isinstance(one, float) and not math.isfinite(one) for one in numbers):
        raise RequestError(f"`{name}` must be made of finite numbers, got {value!r}")
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(value)
    return value
