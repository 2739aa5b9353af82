"""Bodies that are read as they arrive give what json would, with files as uploads."""

import base64
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_raster_io.bodies import BodyReader
from vllm_raster_io.errors import RequestError
from vllm_raster_io.uploads import Upload

LONG = bytes(range(256)) * 300
TEXT = base64.b64encode(LONG).decode()

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


def read(body: bytes, *cuts: int) -> Any:
    reader = BodyReader()
    edges = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    for start, end in pairwise(edges):
        reader.feed(body[start:end])
    return reader.parse()


def content(value: Any) -> bytes:
    assert isinstance(value, Upload)
    return bytes(value.finish().memory.getbuffer())


@given(values, st.lists(st.integers(0, 10_000), max_size=5), st.booleans())
def test_short_bodies_are_json(value: Any, cuts: list[int], ascii_only: bool) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert read(body, *cuts) == value


@given(values, st.lists(st.integers(0, len(TEXT) + 200), max_size=8), st.sampled_from([None, 2]))
def test_a_long_file_comes_out(beside: Any, cuts: list[int], indent: int | None) -> None:
    body = json.dumps({"model": beside, "data": {"data": TEXT, "x": beside}}, indent=indent)
    value = read(body.encode(), *cuts)
    assert content(value["data"].pop("data")) == LONG
    assert value == {"model": beside, "data": {"x": beside}}


def test_chunks_of_any_length() -> None:
    body = json.dumps({"data": {"data": TEXT, "indices": [0, 1]}}).encode()
    for step in (1, 7, 4096, 1 << 16):
        reader = BodyReader()
        for start in range(0, len(body), step):
            reader.feed(body[start : start + step])
        value = reader.parse()
        assert content(value["data"]["data"]) == LONG
        assert value["data"]["indices"] == [0, 1]


def test_what_is_left_is_short() -> None:
    reader = BodyReader()
    reader.feed(json.dumps({"data": {"data": TEXT}}).encode())
    assert len(reader.rest) < 100


def test_several_files() -> None:
    other = base64.b64encode(LONG[::-1]).decode()
    value = read(json.dumps({"a": {"data": TEXT}, "b": {"data": other}}).encode(), 1000)
    assert content(value["a"]["data"]) == LONG
    assert content(value["b"]["data"]) == LONG[::-1]


def test_short_files_stay_strings() -> None:
    assert read(b'{"data": {"data": "AAAA"}}') == {"data": {"data": "AAAA"}}


def test_only_values_of_data_are_files() -> None:
    assert read(json.dumps({"text": TEXT}).encode()) == {"text": TEXT}
    # A string that only looks like such a key.
    tricky = {"text": '"data": "' + TEXT}
    assert read(json.dumps(tricky).encode()) == tricky


def test_files_within_lists() -> None:
    (value,) = read(json.dumps([{"data": TEXT}]).encode())
    assert content(value["data"]) == LONG


def test_lists_of_files() -> None:
    # Only the value of a key is taken for a file; an element of a list stays a string.
    assert read(json.dumps({"data": [TEXT]}).encode()) == {"data": [TEXT]}


ESCAPES = {
    "slashes": ("/", "\\/"),
    "plus signs, as .NET does": ("+", "\\u002B"),
    "slashes by number": ("/", "\\u002f"),
    "line breaks by number": ("\\n", "\\u000a"),
    "letters": ("A", "\\u0041"),
}


@pytest.mark.parametrize("step", [1, 1000, 1 << 20])
@pytest.mark.parametrize("kind", ESCAPES)
def test_whatever_a_json_writer_escapes(kind: str, step: int) -> None:
    lines = "\n".join(TEXT[i : i + 76] for i in range(0, len(TEXT), 76))
    escaped = json.dumps({"data": {"data": lines}}).replace(*ESCAPES[kind])
    assert json.loads(escaped)["data"]["data"] == lines
    assert content(read(escaped.encode(), *range(step, len(escaped), step))["data"]["data"]) == LONG


@pytest.mark.parametrize("end", ["\\", "\\u00", "\\\\", "\\\\u0041", "\\t", "\\u0100"])
def test_escapes_that_are_no_base64(end: str) -> None:
    value = read(('{"data": {"data": "' + TEXT + end + '"}}').encode())
    with pytest.raises(RequestError, match="base64"):
        value["data"]["data"].finish()


def test_a_long_string_that_is_no_base64() -> None:
    value = read(json.dumps({"data": {"data": "?" * 100_000}}).encode(), 70_000)
    with pytest.raises(RequestError, match="base64"):
        value["data"]["data"].finish()


@pytest.mark.parametrize("body", [b"", b"{", b'{"data": {"data": "' + TEXT.encode(), b"nonsense"])
def test_no_json(body: bytes) -> None:
    with pytest.raises(json.JSONDecodeError):
        read(body, 10)
