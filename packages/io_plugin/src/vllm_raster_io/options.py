"""How a request wants its map made and written: all that has a default."""

import sys
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from vllm_raster_io.augmentation import Augment
from vllm_raster_io.blending import Profile

Product = Literal["classes", "probabilities", "logits", "values", "image"]
Format = Literal["geotiff", "cog", "png", "webp", "jpeg", "npy"]
Compression = Literal["none", "deflate", "lzw", "zstd"]

_LARGEST = sys.float_info.max
_BOUNDS: dict[str, JsonValue] = {"minimum": -_LARGEST, "maximum": _LARGEST}
"""What json can write, but 64 bits cannot hold, is for the schema to refuse as well."""

Finite = Annotated[float, Field(allow_inf_nan=False, json_schema_extra=_BOUNDS)]
Positive = Annotated[
    float, Field(allow_inf_nan=False, gt=0, json_schema_extra={"maximum": _LARGEST})
]
Whole = Annotated[int, Field(ge=-(2**63), lt=2**64)]
Count = Annotated[int, Field(ge=1, lt=2**31)]
Pixels = Annotated[int, Field(ge=0, lt=2**31)]
Name = Annotated[str, Field(min_length=1, max_length=200)]

_PIXELS: dict[str, JsonValue] = {"type": "integer", "minimum": 0, "exclusiveMaximum": 2**31}
_SIDE: dict[str, JsonValue] = {**_PIXELS, "minimum": 1}
_PART: dict[str, JsonValue] = {"prefixItems": [_PIXELS, _PIXELS, _SIDE, _SIDE]}
"""Of a part's numbers the last two are greater than 0, which pydantic's own schema does not say."""

_FORMS = {
    "bands": "a list of names or of numbers from 1",
    "scale": "a number, or a list of one a band",
    "offset": "a number, or a list of one a band",
    "nodata": "a number, 'nan' or 'none'",
    "resolution": "a number above 0, or a list of two",
}
"""What fields may be that have several forms."""


def not_both(first: str, second: str) -> dict[str, JsonValue]:
    """What a schema says of two fields of which one must be left out or null."""
    given: dict[str, JsonValue] = {"not": {"type": "null"}}
    return {"not": {"required": [first, second], "properties": {first: given, second: given}}}


AGREEMENTS: list[JsonValue] = [
    not_both("bbox", "window"),
    {
        "if": {"required": ["bbox_crs"], "properties": {"bbox_crs": {"not": {"type": "null"}}}},
        "then": {"required": ["bbox"], "properties": {"bbox": {"not": {"type": "null"}}}},
    },
]
"""What a schema says of several fields together."""


class MapOptions(BaseModel):
    """The fields of a request beside the raster itself; the answer tells each as it was used."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    bands: Annotated[list[Name | Count], Field(min_length=1, fail_fast=True)] | None = Field(
        default=None,
        description="Which bands of the file to use, in the order in which the checkpoint names "
        "its own: by the file's names, in any of the common vocabularies, or by number, "
        "**counted from 1** as GDAL does. Without it and `indices` they are found by name, or "
        "taken in order.",
    )
    scale: Finite | Annotated[list[Finite], Field(min_length=1)] | None = Field(
        default=None,
        description="What one count of the file stands for, in place of the checkpoint's "
        "`input.scale`; one number, or one a band of the checkpoint. "
        "Beside `offset`, if the checkpoint has one.",
    )
    offset: Finite | Annotated[list[Finite], Field(min_length=1)] | None = Field(
        default=None,
        description="Added after `scale`, in the checkpoint's unit and in place of its "
        "`input.offset`; one number, or one a band.",
    )
    nodata: Whole | Finite | Literal["nan", "none"] | None = Field(
        default=None,
        description="Value of invalid pixels, in the file's counts and in place of its own; `none` "
        "if no value is invalid. NaN always is, and masks hold as well.",
    )
    window: (
        Annotated[list[Pixels], Field(min_length=4, max_length=4, json_schema_extra=_PART)] | None
    ) = Field(
        default=None,
        description="Part of the scene to map, in its pixels: first column and first row, counted "
        "from 0, number of columns, number of rows. It must lie within the scene. Not beside "
        "`bbox`.",
    )
    bbox: Annotated[list[Finite], Field(min_length=4, max_length=4)] | None = Field(
        default=None,
        description="Part of the scene to map: west, south, east, north, in the unit of "
        "`bbox_crs`, with west < east and south < north. All pixels that it touches, within the "
        "scene. Not beside `window`.",
    )
    bbox_crs: Name | None = Field(
        default=None,
        description="Reference system of `bbox`, by authority and number as `EPSG:4326`, longitude "
        "before latitude; without it the scene's. Only beside `bbox`.",
    )
    resolution: Positive | Annotated[list[Positive], Field(min_length=2, max_length=2)] | None = (
        Field(
            default=None,
            description="Size of the pixels that the network is to see, in the unit of the scene's "
            "reference system; one number, or across and down. From 1/16 to 32 times the scene's. "
            "The map has the scene's own pixels.",
        )
    )
    tile_size: Count | None = Field(
        default=None,
        description="Largest side of a window in pixels; at most the checkpoint's, its default.",
    )
    overlap: Pixels | None = Field(
        default=None,
        description="Least overlap of neighbouring windows in pixels, less than `tile_size`; by "
        "default the checkpoint's, or as great a part of a smaller tile.",
    )
    blending: Profile = Field(
        default="linear",
        description="How weights fall off across an overlap of windows: not at all, `none`; in a "
        "line; as a cosine; as a bell over the whole window.",
    )
    augment: Augment = Field(
        default="none",
        description="Ways in which the network sees each window, whose scores are averaged: "
        "`none`, as it is; `flips`, mirrored, 4 ways; `flips_rotations`, mirrored and turned, 8 "
        "ways.",
    )
    product: Product | None = Field(
        default=None,
        description="What the map holds: of a checkpoint that knows classes their ids, "
        "probabilities or logits; of others the values or the image that it gives. By default the "
        "first of these.",
    )
    dtype: Literal["float32", "uint8"] | None = Field(
        default=None,
        description="Type of probabilities and of confidence: `float32`, or `uint8` from 0 to 254, "
        "which stand for 0 to 1. By default float32.",
    )
    confidence: bool = Field(
        default=False,
        description="Whether to give, beside class ids, a second file with the probability of "
        "each pixel's class.",
    )
    format: Format = Field(default="geotiff", description="What the map is written as.")
    compression: Compression | None = Field(
        default=None, description="Of `geotiff` and `cog`, lossless; by default deflate."
    )
    quality: Annotated[int, Field(ge=1, le=100)] | None = Field(
        default=None,
        description="Of `jpeg`, by default 90, and of `webp`, which is lossless without it: 100 "
        "loses least.",
    )
    priority: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = Field(
        default=None,
        description="Requests with a smaller number come first, on a server that was started with "
        "`--scheduling-policy priority`; any other refuses what is not 0. It may also stand beside "
        "`data` in the body, where vLLM has it.",
    )

    @field_validator(*_FORMS, mode="wrap")
    @classmethod
    def _says_it_once(
        cls, value: object, handler: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> object:
        # Else each of the forms is said to be missed, and none of them in words.
        try:
            return handler(value)
        except ValidationError:
            form = _FORMS[str(info.field_name)]
            raise PydanticCustomError("form", f"Input should be {form}") from None

    @field_validator("window")
    @classmethod
    def _has_pixels(cls, value: list[int] | None) -> list[int] | None:
        if value is not None and not (value[2] and value[3]):
            raise PydanticCustomError(
                "window_empty", "Input should be a column, a row, and columns and rows above 0"
            )
        return value

    @field_validator("bbox")
    @classmethod
    def _is_box(cls, value: list[float] | None) -> list[float] | None:
        if value is not None and not (value[0] < value[2] and value[1] < value[3]):
            raise PydanticCustomError(
                "bbox_order",
                "Input should be west, south, east, north with west < east and south < north",
            )
        return value

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.bbox is not None and self.window is not None:
            raise ValueError("`bbox` and `window` both say what part to map: leave one out")
        if self.bbox is None and self.bbox_crs is not None:
            raise ValueError("`bbox_crs` says nothing without `bbox`: leave it out")
        return self


ENDINGS: dict[Format, tuple[str, ...]] = {
    "geotiff": (".tif", ".tiff"),
    "cog": (".tif", ".tiff"),
    "png": (".png",),
    "webp": (".webp",),
    "jpeg": (".jpg", ".jpeg"),
    "npy": (".npy",),
}
"""How the name of a file of each format may end; by default as the first."""

MEDIA_TYPES: dict[Format, str] = {
    "geotiff": "image/tiff; application=geotiff",
    "cog": "image/tiff; application=geotiff; profile=cloud-optimized",
    "png": "image/png",
    "webp": "image/webp",
    "jpeg": "image/jpeg",
    "npy": "application/x-npy",
}
