"""The schemas say what the models do, and the models what the schemas say."""

import base64
import copy
import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from vllm_raster_io.cli import app
from vllm_raster_io.errors import RequestError
from vllm_raster_io.requests import RasterRequest
from vllm_raster_io.schema import NAMES, SchemaName, made_text, schema_text

from ..factories import make_raster
from .requesting import mapped
from .scenes import make_contract

REQUEST = json.loads(schema_text("request"))
ANSWER = json.loads(schema_text("answer"))
FIELDS: dict[str, dict[str, Any]] = REQUEST["properties"]
GOOD = {"data": "SUkqAA=="}
by_the_schema = Draft202012Validator(REQUEST).is_valid
each_schema = pytest.mark.parametrize("name", NAMES)


@each_schema
def test_what_is_shipped_is_what_the_models_say(name: SchemaName) -> None:
    assert schema_text(name) == made_text(name), "make reference writes it anew"
    Draft202012Validator.check_schema(json.loads(schema_text(name)))


@each_schema
def test_the_command_line_prints_it(name: SchemaName) -> None:
    done = CliRunner().invoke(app, ["schema", name])
    assert done.exit_code == 0
    assert json.loads(done.output)["title"] == f"Raster{name.title()}"


def test_there_is_no_other() -> None:
    wrong: Any = "../errors"
    with pytest.raises(ValueError, match="only request and answer"):
        schema_text(wrong)
    assert CliRunner().invoke(app, ["schema", "map"]).exit_code == 2


def test_every_field_is_described() -> None:
    objects = [REQUEST, ANSWER, *ANSWER["$defs"].values()]
    for one in objects:
        for name, field in one["properties"].items():
            assert len(field.get("description", "")) > 10, name
    assert list(FIELDS)[:2] == ["data", "data_format"]


def accepted(body: dict[str, Any]) -> bool:
    try:
        RasterRequest.parse(copy.deepcopy(body))
    except RequestError:
        return False
    return True


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """What a schema allows."""
    if "anyOf" in schema:
        return st.one_of(*map(values, schema["anyOf"]))
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema["type"]:
        case "array" if "prefixItems" in schema:
            return st.tuples(*map(values, schema["prefixItems"])).map(list)
        case "array":
            sizes = {"min_size": schema.get("minItems", 0), "max_size": schema.get("maxItems", 5)}
            return st.lists(values(schema["items"]), **sizes)
        case "string":
            text = st.characters(exclude_categories=["Cs"])
            least, most = schema.get("minLength", 0), schema.get("maxLength", 20)
            return st.text(text, min_size=least, max_size=min(most, 20))
        case "integer":
            most = schema.get("maximum", schema.get("exclusiveMaximum", 2**80) - 1)
            return st.integers(schema.get("minimum"), most)
        case "number":
            least = schema.get("minimum", schema.get("exclusiveMinimum"))
            most, above = schema["maximum"], "exclusiveMinimum" in schema
            return st.floats(least, most, exclude_min=above) | st.integers(int(least) + above, 2**9)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
    raise AssertionError(schema)


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """By the schema, but for what several fields say together."""
    names = draw(st.lists(st.sampled_from(sorted(set(FIELDS) - {"data"})), unique=True, max_size=6))
    body = {name: draw(values(FIELDS[name])) for name in ["data", *names]}
    if box := body.get("bbox"):
        # In which order they are a schema cannot say.
        assume(box[0] != box[2] and box[1] != box[3])
        (box[0], box[2]), (box[1], box[3]) = sorted(box[::2]), sorted(box[1::2])
    return body


thorough = settings(derandomize=True, deadline=None, max_examples=500)


@thorough
@given(bodies())
def test_what_the_schema_allows_is_not_refused(body: dict[str, Any]) -> None:
    assert accepted(body) == by_the_schema(body)


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 9)
    | st.sampled_from([2**31, -(2**63), 2**63, 2**64, 10**400, 0.5, -200.5, 1e308])
    | st.sampled_from(["", "B02", "none", "nan", "linear", "cog", "path", "x" * 201, "y" * 5000]),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.just("a"), inner, max_size=1),
    max_leaves=6,
)


@thorough
@given(bodies(), st.sampled_from([*sorted(FIELDS), "tile", "Data"]), anything)
def test_one_field_that_may_be_anything(body: dict[str, Any], name: str, value: Any) -> None:
    assume(not (name == "bbox" and by_the_schema({**GOOD, "bbox": value})))
    body[name] = value
    assert accepted(body) == by_the_schema(body)


def broken(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """For each of a schema's constraints a value that breaks it, and no other if possible."""
    if "anyOf" in schema:
        for form in schema["anyOf"]:
            yield from broken(form)
        return
    if "enum" in schema:
        yield "enum", "another"
        return
    kinds: dict[str, Any] = {"array": {"a": 1}, "string": 7, "boolean": "yes", "null": {"a": 1}}
    yield "type", kinds.get(schema["type"], "seven")
    for rule, beyond in (("minimum", -1), ("maximum", 1)):
        if rule in schema:
            edge = schema[rule]
            yield rule, edge + beyond if abs(edge) < 1e300 else beyond * 10**400
    for rule in ("exclusiveMinimum", "exclusiveMaximum"):
        if rule in schema:
            yield rule, schema[rule]
    if "minLength" in schema:
        yield "minLength", ""
    if "maxLength" in schema:
        yield "maxLength", "x" * (schema["maxLength"] + 1)
    if schema["type"] == "array":
        yield from _broken_lists(schema)


def _broken_lists(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    items = schema.get("prefixItems", [schema["items"]] * max(1, schema.get("minItems", 1)))
    good = [_simple(one) for one in items]
    if "minItems" in schema:
        yield "minItems", good[:-1]
    if "maxItems" in schema:
        yield "maxItems", [*good, good[-1]]
    for i, item in enumerate(items):
        for rule, value in broken(item):
            yield f"items {i} {rule}", [*good[:i], value, *good[i + 1 :]]


def _simple(schema: dict[str, Any]) -> Any:
    form = schema.get("anyOf", [schema])[0]
    return "B02" if form["type"] == "string" else 1


CONSTRAINTS = [
    pytest.param({**GOOD, name: value}, id=f"{name} {rule}")
    for name, field in FIELDS.items()
    for rule, value in broken(field)
    # Another form of the field may allow it.
    if not by_the_schema({**GOOD, name: value})
]


def test_there_are_constraints_of_every_field() -> None:
    assert {str(one.id).split()[0] for one in CONSTRAINTS} == set(FIELDS)
    assert len(CONSTRAINTS) > 90


@pytest.mark.parametrize("body", CONSTRAINTS)
def test_each_constraint_is_the_parsers_too(body: dict[str, Any]) -> None:
    assert not accepted(body)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"data": None},
        {**GOOD, "tile": 3},
        {**GOOD, "bands": [1], "indices": [0]},
        {**GOOD, "bbox": [0, 0, 1, 1], "window": [0, 0, 1, 1]},
        {**GOOD, "bbox_crs": "EPSG:4326"},
        {**GOOD, "bbox_crs": "EPSG:4326", "bbox": None},
    ],
)
def test_what_fields_say_together(body: dict[str, Any]) -> None:
    assert not by_the_schema(body)
    assert not accepted(body)


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize("kind", ["classes", "values", "image"])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"format": "npy", "window": [1, 2, 20, 10], "augment": "flips"},
        {"resolution": 20, "bands": [4, 3, 2, 1], "scale": 1, "offset": 0.5, "nodata": "nan"},
        {"format": "jpeg", "quality": 50, "nodata": -9999},
    ],
)
def test_answers_are_by_the_schema(kind: str, fields: dict[str, Any]) -> None:
    answer = mapped(make_raster(), make_contract(kind, size=32), **fields)
    _check_answer(answer.model_dump())


def test_an_answer_with_confidence() -> None:
    fields = {"confidence": True, "dtype": "uint8", "format": "npy"}
    answer = mapped(make_raster(), make_contract("classes", size=32), **fields).model_dump()
    _check_answer(answer)
    assert np.load(io.BytesIO(base64.b64decode(answer["confidence"]["data"]))).dtype == np.uint8


def _check_answer(answer: dict[str, Any]) -> None:
    Draft202012Validator(ANSWER).validate(json.loads(json.dumps(answer)))
    assert set(answer) == set(ANSWER["properties"])
    assert set(answer["effective"]) == set(ANSWER["$defs"]["Effective"]["properties"])
    assert set(ANSWER["required"]) == set(ANSWER["properties"])
