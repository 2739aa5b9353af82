"""Writes what the models of the request and the answer say: JSON Schema, and a page for people."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from vllm_raster_io.schema import NAMES, made_text

ROOT = Path(__file__).resolve().parents[1]
SCHEMAS = ROOT / "packages" / "io_plugin" / "src" / "vllm_raster_io" / "schemas"
PAGE = ROOT / "docs" / "reference.md"

_HEAD = """\
# Reference

Every field of the request and of the answer, made from the models by `make reference`;
[Requests](requests.md) says what they do together, and [Examples](examples.md) shows them. The same
as JSON Schema: `vllm-raster schema request`, `vllm-raster schema answer`, or in Python
`vllm_raster_io.schema.schema_text("request")`.

`POST /pooling` takes `{"data": REQUEST}`, and beside `data` what vLLM takes itself, such as
`model`. It answers `{"request_id": …, "created_at": …, "data": ANSWER}`.

A whole number is written without a point: `64`, not `64.0`. Where the type says null,
that is as if the field were left out. A field that is not among these is refused.
"""
_KINDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "`true`, `false`",
    "null": "null",
}
_LARGE = 2**31
"""Limits from here on are those of the computer, and not told."""


def reference() -> str:
    """The page."""
    request, answer = (json.loads(made_text(name)) for name in NAMES)
    parts = [
        _HEAD,
        "## Request\n",
        _table(request, ("field", "type", "default", "range", "meaning")),
        "## Answer\n",
        "All of it is always there.\n",
        _table(answer, ("field", "type", "range", "meaning")),
    ]
    for name, title in (
        ("Effective", "`effective`"),
        ("ClassSummary", "`classes`, each"),
        ("ConfidenceFile", "`confidence`"),
    ):
        parts += [f"### {title}\n", _table(answer["$defs"][name], ("field", "type", "meaning"))]
    return "\n".join(parts)


def _table(schema: dict[str, Any], columns: tuple[str, ...]) -> str:
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for name, field in schema["properties"].items():
        cells = {
            "field": f"`{name}`",
            "type": " or ".join(dict.fromkeys(_types(field))),
            "default": _default(name, field, schema),
            "range": "; ".join(dict.fromkeys(_ranges(field))),
            "meaning": field["description"],
        }
        lines.append(f"| {' | '.join(cells[one].replace('|', chr(92) + '|') for one in columns)} |")
    return "\n".join(lines) + "\n"


def _default(name: str, field: dict[str, Any], schema: dict[str, Any]) -> str:
    if name in schema["required"]:
        return "needed"
    return f"`{json.dumps(field['default'])}`"


def _types(field: dict[str, Any]) -> Iterator[str]:
    for form in field.get("anyOf", [field]):
        if "$ref" in form:
            yield "object"
        elif "const" in form or "enum" in form:
            yield ", ".join(f"`{json.dumps(one)}`" for one in form.get("enum", [form.get("const")]))
        elif form["type"] == "array":
            yield f"list of {_plural(_types(form['items']))}"
        else:
            yield _KINDS[form["type"]]


def _plural(kinds: Iterable[str]) -> str:
    plurals = {"text": "texts", "whole number": "whole numbers", "number": "numbers"}
    told = [plurals.get(one, "objects" if one == "object" else one) for one in kinds]
    return told[0] if len(told) == 1 else f"({' or '.join(told)})"


def _ranges(field: dict[str, Any]) -> Iterator[str]:
    for form in field.get("anyOf", [field]):
        if form.get("type") == "array":
            yield from filter(None, [_count(form)])
            if "prefixItems" in form:
                yield ", ".join(_numbers(one) or "any" for one in form["prefixItems"])
            else:
                yield from (f"each {one}" for one in _ranges(form["items"]))
        elif form.get("type") == "string":
            yield from filter(None, [_length(form)])
        else:
            yield from filter(None, [_numbers(form)])


def _count(form: dict[str, Any]) -> str:
    least, most = form.get("minItems"), form.get("maxItems")
    if least is None:
        return ""
    return f"{least} of them" if least == most else f"at least {least}"


def _length(form: dict[str, Any]) -> str:
    least, most = form.get("minLength", 0), form.get("maxLength")
    return "" if most is None else f"{least} to {most} characters"


def _numbers(form: dict[str, Any]) -> str:
    least, above = form.get("minimum"), form.get("exclusiveMinimum")
    most = form.get("maximum")
    if above is not None:
        return f"above {above}"
    known = [one for one in (least, most) if one is not None and abs(one) < _LARGE]
    if len(known) == 2:
        return f"{least} to {most}"
    return f"from {known[0]}" if known else ""


def write() -> None:
    """Writes all of it."""
    SCHEMAS.mkdir(exist_ok=True)
    for name in NAMES:
        (SCHEMAS / f"{name}.json").write_text(made_text(name), "utf-8")
    PAGE.write_text(reference(), "utf-8")


if __name__ == "__main__":
    write()
