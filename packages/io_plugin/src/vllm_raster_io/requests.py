"""What may be asked of the service.

Fields go by the names that TerraTorch's clients send, so that such a client works unchanged.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, JsonValue, ValidationError, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from vllm_raster_io.errors import RequestError
from vllm_raster_io.options import AGREEMENTS, MapOptions, not_both
from vllm_raster_io.quoting import cut, quoted
from vllm_raster_io.uploads import Upload

_MOST_PROBLEMS = 3

Degrees = Annotated[
    float, Field(allow_inf_nan=False, json_schema_extra={"minimum": -180, "maximum": 180})
]
_PLACE: dict[str, JsonValue] = {
    "prefixItems": [{"type": "number", "minimum": -at, "maximum": at} for at in (90, 180)]
}


_THE_SERVERS = ("priority",)
"""Fields that clients of vLLM's send beside `data` as well."""


def _one_or_more(schema: dict[str, Any]) -> None:
    """Says of a field of one or several that there is at least one."""
    for form in schema["anyOf"]:
        if form.get("type") == "array":
            form["minItems"] = 1


class RasterRequest(MapOptions):
    """The `data` of a request to `/pooling`, or of the prompt of `LLM.encode`."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        arbitrary_types_allowed=True,
        json_schema_extra={"allOf": [*AGREEMENTS, not_both("bands", "indices")]},
    )

    data: str | SkipJsonSchema[Upload] | list[str | SkipJsonSchema[Upload]] = Field(
        description="The raster: a whole file in base64 or as a data URI, its path or its URL; or "
        "a list of files, one a date or one a band, all bands of the first date first.",
        repr=False,
        json_schema_extra=_one_or_more,
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
        "as its format's files do, or a folder's, in which the file gets a random name. The "
        "folder must exist. Without it, it is the first folder that the server may write to. "
        "Refused with out_data_format `b64_json`.",
    )
    overwrite: bool = Field(
        default=False,
        description="With out_data_format `path`: whether a file may be there already, which is "
        "then replaced.",
    )
    image_format: (
        Literal["tiff", "geotiff", "tif", "png", "jpeg", "jpg", "webp", "jp2", "npy"] | None
    ) = Field(
        default=None,
        description="What the file is. Taken for the sake of clients that send it: the file "
        "itself tells.",
    )
    indices: (
        Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1, fail_fast=True)] | None
    ) = Field(
        default=None,
        description="Which bands of the file to use, **counted from 0**, in the order in which the "
        "checkpoint names its bands; of several dates, of each. Not beside `bands`.",
    )

    prompt: Annotated[str, Field(max_length=1000)] | None = Field(
        default=None,
        description="What to map, in words. Needed by a checkpoint that has a language model, "
        "refused by one that has none.",
    )
    dates: str | Annotated[list[str], Field(min_length=1, fail_fast=True)] | None = Field(
        default=None,
        description="When the scene was taken, as ISO dates or times, in UTC unless they say: one "
        "for each frame of the checkpoint, in the order of the files. Without it the files' tags "
        "are read. Refused by a checkpoint that is not told the time.",
    )
    location: (
        Annotated[list[Degrees], Field(min_length=2, max_length=2, json_schema_extra=_PLACE)] | None
    ) = Field(
        default=None,
        description="Latitude and longitude in degrees on WGS 84 of a scene whose file does not "
        "tell where it lies. "
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

    @model_validator(mode="after")
    def _names_bands_once(self) -> Self:
        if self.indices is not None and self.bands is not None:
            raise ValueError("`bands` and `indices` both say which bands to use: leave one out")
        return self

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


def refuse_fields_beside_data(beside: Iterable[str]) -> None:
    """Refuses a request's own fields one level too high, where nothing would read them.

    Args:
        beside: What the body holds beside what the server itself takes.

    Raises:
        RequestError: Names them, and where they belong.
    """
    ours = [name for name in RasterRequest.model_fields if name not in _THE_SERVERS]
    if misplaced := [name for name in ours if name in beside]:
        told = " and ".join(f"`{name}`" for name in misplaced)
        raise RequestError(
            f"{told} must stand within the body's `data`, beside the raster: "
            f'{{"data": {{"data": …, "{misplaced[0]}": …}}}}'
        )


def _fields() -> str:
    """All fields, the raster's first."""
    own = [name for name in RasterRequest.model_fields if name not in MapOptions.model_fields]
    return ", ".join(f"`{name}`" for name in (*own, *MapOptions.model_fields))


def _problems(error: ValidationError) -> str:
    """The first few of what is wrong, each with what came and what may be there."""
    told = [_problem(dict(one)) for one in error.errors(include_url=False)[:_MOST_PROBLEMS]]
    if more := error.error_count() - len(told):
        told.append(f"and {more} more")
    text = "; ".join(told)
    unknown = any(one["type"] == "extra_forbidden" for one in error.errors(include_url=False))
    return f"{text}. There are the fields {_fields()}" if unknown else text


def _problem(error: dict[str, Any]) -> str:
    where = cut(".".join(map(str, error["loc"])))
    if error["type"] == "extra_forbidden":
        near = get_close_matches(where.casefold(), RasterRequest.model_fields, 1)
        meant = f" (did you mean `{near[0]}`?)" if near else ""
        return f"`{where}` is not a field of a request{meant}"
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    if error["type"] == "missing":
        return f"`{where}` is missing; a request needs the raster in `data`"
    return f"`{where}`: {error['msg'][0].lower()}{error['msg'][1:]}, got {_shortly(error['input'])}"


def _shortly(value: object) -> str:
    kind = str if isinstance(value, Upload) else type(value)
    return f"{kind.__name__} {quoted(value)}"
