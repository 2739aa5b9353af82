"""The request and the answer as JSON Schema, for those who write clients.

The files of the folder `schemas` are what the models say, written by tools/write_reference.py;
reading them imports neither the models nor pydantic.
"""

import json
from collections.abc import Iterable
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from pydantic import BaseModel

SchemaName = Literal["request", "answer"]
NAMES: tuple[SchemaName, ...] = get_args(SchemaName)
"""The schemas that there are: of the `data` of a request's body, and of an answer's."""

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_text(name: SchemaName) -> str:
    """The schema in json, as it is shipped.

    Raises:
        ValueError: There is no such schema.
    """
    if name not in NAMES:
        raise ValueError(f"there is no schema {name!r}, only {' and '.join(NAMES)}")
    return (files("vllm_raster_io") / "schemas" / f"{name}.json").read_text("utf-8")


def made_text(name: SchemaName) -> str:
    """The schema in json, made from the model."""
    return f"{json.dumps(_made(name), indent=2, ensure_ascii=False)}\n"


def _made(name: SchemaName) -> dict[str, Any]:
    from vllm_raster_io.answers import RasterAnswer
    from vllm_raster_io.options import MapOptions
    from vllm_raster_io.requests import RasterRequest

    if name == "answer":
        return _dressed(RasterAnswer, RasterAnswer.model_json_schema(mode="serialization"))
    schema = RasterRequest.model_json_schema()
    inherited = MapOptions.model_fields
    own = [field for field in RasterRequest.model_fields if field not in inherited]
    return _dressed(RasterRequest, schema, [*own, *inherited])


def _dressed(
    model: "type[BaseModel]", schema: dict[str, Any], order: Iterable[str] = ()
) -> dict[str, Any]:
    """With a head, fields in an order of one's own, and no titles that repeat their names."""
    properties = schema.pop("properties")
    rest = {key: one for key, one in schema.items() if key not in ("title", "description", "type")}
    return {
        "$schema": _DIALECT,
        "title": model.__name__,
        "description": schema["description"],
        "type": "object",
        "properties": _untitled({name: properties[name] for name in (*order, *properties)}),
        **_untitled(rest),
    }


def _untitled(value: Any) -> Any:
    if isinstance(value, list):
        return [_untitled(one) for one in value]
    if not isinstance(value, dict):
        return value
    # A title is a text; a field of that name would be an object.
    return {
        key: _untitled(one)
        for key, one in value.items()
        if not (key == "title" and isinstance(one, str))
    }
