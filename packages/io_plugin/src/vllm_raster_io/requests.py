"""What may be asked of the service, and what it answers.

Fields go by the names that TerraTorch's clients send, so that such a client works unchanged.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from vllm_raster_io.errors import RequestError
from vllm_raster_io.quoting import cut, quoted
from vllm_raster_io.uploads import Upload

_MOST_PROBLEMS = 3

Degrees = Annotated[float, Field(allow_inf_nan=False)]


class RasterRequest(BaseModel):
    """The `data` of a request to `/pooling`, or of the prompt of `LLM.encode`."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True
    )

    data: str | SkipJsonSchema[Upload] | list[str | SkipJsonSchema[Upload]] = Field(
        description="The raster: a whole file in base64 or as a data URI, its path or its URL; or "
        "a list of files, one a date or one a band, all bands of the first date first.",
        repr=False,
    )
    data_format: Literal["b64_json", "path", "url"] = Field(
        default="b64_json",
        description="How `data` is given: as the file itself, or as its path on the server or its "
        "URL. The server refuses both unless it is set up for them.",
    )
    out_data_format: Literal["b64_json", "path"] = Field(
        default="b64_json",
        description="How the map is to be given back: in the answer, or as a file on the server. "
        "The server refuses the latter unless it is set up for it.",
    )
    out_path: Annotated[str, Field(min_length=1, max_length=4096)] | None = Field(
        default=None,
        description="With out_data_format `path`: where to write the map, a file's path that ends "
        "with .tif or .tiff, or a folder's, in which the file gets a random name. The folder must "
        "exist. Without it, it is the first folder that the server may write to.",
    )
    overwrite: bool = Field(
        default=False, description="Whether a file may be there already, which is then replaced."
    )
    image_format: Literal["tiff", "geotiff", "tif", "png", "jpeg"] | None = Field(
        default=None,
        description="What the file is. Taken for the sake of clients that send it: the file "
        "itself tells.",
    )
    indices: (
        Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1, fail_fast=True)] | None
    ) = Field(
        default=None,
        description="Which bands of the file to use, counted from 0, in the order in which the "
        "checkpoint names its bands. Without it they are found by name, or taken in order.",
    )

    prompt: Annotated[str, Field(min_length=1, max_length=1000)] | None = Field(
        default=None,
        description="What to map, in words. Needed by a checkpoint that has a language model, "
        "refused by one that has none.",
    )
    dates: str | Annotated[list[str], Field(min_length=1, fail_fast=True)] | None = Field(
        default=None,
        description="When the scene was taken, as ISO dates or times: one for each frame of the "
        "checkpoint, in the order of the files. Without it the files' tags are read. Refused by a "
        "checkpoint that is not told the time.",
    )
    location: Annotated[list[Degrees], Field(min_length=2, max_length=2)] | None = Field(
        default=None,
        description="Latitude and longitude in degrees of a scene whose file does not tell. "
        "Refused by a checkpoint that is not told the location.",
    )

    @field_validator("data", mode="before")
    @classmethod
    def _is_text(cls, value: object) -> object:
        # The server may have taken the text in already, but that is nothing to tell a client.
        files = value if isinstance(value, list) and value else [value]
        if not all(isinstance(one, str | Upload) for one in files):
            raise PydanticCustomError(
                "string_type", "Input should be a string in base64, or a list of such strings"
            )
        return value

    @field_validator("dates", mode="before")
    @classmethod
    def _is_dates(cls, value: object) -> object:
        whole = isinstance(value, list) and all(isinstance(one, str) for one in value) and value
        if not (whole or value is None or isinstance(value, str)):
            raise PydanticCustomError(
                "dates_type", "Input should be an ISO date, or a list of such strings"
            )
        return value

    @field_validator("location")
    @classmethod
    def _is_place(cls, value: list[float] | None) -> list[float] | None:
        if value is not None and not (abs(value[0]) <= 90 and abs(value[1]) <= 180):
            raise PydanticCustomError(
                "location_range",
                "Input should be a latitude from -90 to 90 and a longitude from -180 to 180",
            )
        return value

    @classmethod
    def parse(cls, data: object) -> Self:
        """Reads what a client sent.

        Raises:
            RequestError: A field is missing, unknown or has a value that cannot be; names each,
                and what may be there instead.
        """
        if not isinstance(data, dict):
            raise RequestError(
                f"`data` must be an object with the fields {_fields()}, got {_shortly(data)}"
            )
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise RequestError(_problems(error)) from None


class ClassSummary(BaseModel):
    """One class of a map: its id in the map, what it is, and on how many pixels it was found."""

    id: int
    name: str
    color: str | None
    pixels: int


class Effective(BaseModel):
    """What was done, in full, whether it was asked for or followed from the checkpoint."""

    indices: list[int] = Field(
        description="Bands of the file that were used, counted from 0; of several dates, one date "
        "after the other, each counted in its own file."
    )
    bands: list[str] = Field(description="The checkpoint's names of those bands.")
    bands_by: Literal["indices", "names", "order"] = Field(description="How they were chosen.")
    tile_size: int = Field(description="Largest side of a window in pixels.")
    overlap: int = Field(description="Least overlap of neighbouring windows in pixels.")
    blending: str = Field(description="How weights fall off across an overlap.")
    windows: int = Field(description="Number of windows.")
    upscale: int = Field(default=1, description="Pixels of the map to one of the scene.")
    downscale: int = Field(default=1, description="Pixels of the scene to one of the map.")
    frames: int = Field(default=1, description="Dates that the network saw.")
    coordinates: list[str] = Field(description="What the network was told besides the pixels.")
    dates: list[str | None] | None = Field(
        default=None,
        description="Day (UTC) of each frame as the network was told it, null where unknown; null "
        "for a network that is not told the time.",
    )
    dates_by: list[str | None] | None = Field(
        default=None, description="What said each: `request`, or the name of the file's tag."
    )
    location_by: Literal["request", "georeference"] | None = Field(
        default=None, description="What said where each window lies, if the network was told."
    )
    prompt: str | None = Field(default=None, description="The instruction, where there was one.")
    notes: list[str] = Field(default=[], description="What was unknown or looks odd.")


class RasterAnswer(BaseModel):
    """The `data` of the service's answer, or the output of `LLM.encode`."""

    data_format: Literal["b64_json", "path"] = "b64_json"
    data: str = Field(
        description="The map: a GeoTIFF in base64, or the path of one, as the client may name it.",
        repr=False,
    )
    request_id: str | None = Field(default=None, description="As the server knows the request.")
    media_type: str = "image/tiff; application=geotiff"
    kind: Literal["classes", "values", "image"]
    width: int
    height: int
    dtype: str = Field(description="Type of the map's pixels.")
    nodata: int | float | str = Field(
        description="Value of invalid pixels, which no prediction takes; `nan` for floats."
    )
    invalid_pixels: int = Field(description="Pixels of the map that are nodata.")
    crs: str | None = Field(description="Coordinate reference system, None where there is none.")
    classes: list[ClassSummary] | None = None
    effective: Effective


def _fields() -> str:
    return ", ".join(f"`{name}`" for name in RasterRequest.model_fields)


def _problems(error: ValidationError) -> str:
    """The first few of what is wrong, each with what came and what may be there."""
    told = [_problem(dict(one)) for one in error.errors(include_url=False)[:_MOST_PROBLEMS]]
    if more := error.error_count() - len(told):
        told.append(f"and {more} more")
    return "; ".join(told)


def _problem(error: dict[str, Any]) -> str:
    where = cut(".".join(map(str, error["loc"])))
    if error["type"] == "extra_forbidden":
        return f"`{where}` is not a field of a request; there are {_fields()}"
    if error["type"] == "missing":
        return f"`{where}` is missing; a request needs the raster in `data`"
    return f"`{where}`: {error['msg'][0].lower()}{error['msg'][1:]}, got {_shortly(error['input'])}"


def _shortly(value: object) -> str:
    kind = str if isinstance(value, Upload) else type(value)
    return f"{kind.__name__} {quoted(value)}"
