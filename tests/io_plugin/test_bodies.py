"""Bodies that are read as they arrive give what json would, with files as uploads."""

import base64
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_raster_io import uploads
from vllm_raster_io.bodies import BodyReader
from vllm_raster_io.errors import LimitError, RequestError
from vllm_raster_io.limits import Limits
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


@settings(deadline=None)
@given(values, st.lists(st.integers(0, 10_000), max_size=5), st.booleans())
def test_short_bodies_are_json(value: Any, cuts: list[int], ascii_only: bool) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert read(body, *cuts) == value


@settings(deadline=None)
@given(values, st.lists(st.integers(0, len(TEXT) + 200), max_size=8), st.sampled_from([None, 2]))
def test_a_long_file_comes_out(beside: Any, cuts: list[int], indent: int | None) -> None:
    body = json.dumps({"model": beside, "data": {"data": TEXT, "x": beside}}, indent=indent)
    value = read(body.encode(), *cuts)
    assert content(value["data"].pop("data")) == LONG
    assert value == {"model": beside, "data": {"x": beside}}


@settings(deadline=None)
@given(st.lists(st.integers(0, len(TEXT) + 200), max_size=8), st.booleans(), st.booleans())
def test_a_long_data_uri_comes_out(cuts: list[int], several: bool, escaped: bool) -> None:
    uri = "data:image/tiff;base64," + TEXT
    body = json.dumps({"data": {"data": [uri, TEXT, uri] if several else uri}})
    if escaped:
        body = body.replace("/", "\\/")
    data = read(body.encode(), *cuts)["data"]["data"]
    assert all(content(one) == LONG for one in (data if several else [data]))


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


class TestLists:
    """Files within a list that is the value of a key `data`."""

    def test_each_comes_out(self) -> None:
        value = read(json.dumps({"data": {"data": [TEXT, "AA==", TEXT], "x": [TEXT]}}).encode())
        first, short, last = value["data"]["data"]
        assert content(first) == content(last) == LONG
        assert short == "AA=="
        assert value["data"]["x"] == [TEXT]

    @settings(deadline=None)
    @given(
        st.lists(st.sampled_from([TEXT, "AA==", "", 'a"b\\', "\\"]), max_size=4),
        values,
        st.lists(st.integers(0, 4 * len(TEXT)), max_size=12),
        st.sampled_from([None, 2, "\t", " " * 50]),
    )
    def test_whatever_stands_around_them(
        self, texts: list[str], beside: Any, cuts: list[int], indent: int | str | None
    ) -> None:
        body = {"data": {"data": texts, "x": beside}, "y": [beside, {"data": [1, TEXT]}]}
        value = read(json.dumps(body, indent=indent).encode(), *cuts)
        files = [content(one) if isinstance(one, Upload) else one for one in value["data"]["data"]]
        assert files == [LONG if one == TEXT else one for one in texts]
        assert value["y"] == body["y"]  # a list that holds something else stays as it is
        assert value["data"]["x"] == beside

    @pytest.mark.parametrize("step", [1, 7, 4096, 1 << 16])
    @pytest.mark.parametrize("space", ["", " ", "\r\n\t "])
    def test_chunks_of_any_length(self, step: int, space: str) -> None:
        comma = f"{space},{space}"
        quoted = comma.join(f'"{TEXT}"' for _ in range(3))
        body = f'{{"data"{space}:{space}[{space}{quoted}{space}]{space}}}'.encode()
        reader = BodyReader()
        for start in range(0, len(body), step):
            reader.feed(body[start : start + step])
        assert len(reader.rest) < 200
        assert [content(one) for one in reader.parse()["data"]] == [LONG] * 3

    def test_the_limit_holds_for_the_sum(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(uploads, "LIMITS", Limits(bytes=2 * len(TEXT) - 1))
        first, second = read(json.dumps({"data": [TEXT, TEXT]}).encode(), 1000)["data"]
        assert content(first) == LONG
        with pytest.raises(LimitError, match="bytes, and at most"):
            second.finish()


def test_keys_that_end_with_a_quote() -> None:
    body = {'"data': TEXT, "data": {'x"data': TEXT}}
    assert read(json.dumps(body).encode()) == body


@pytest.mark.parametrize("step", [1, 1000, 1 << 20])
def test_quotes_within_a_long_string(step: int) -> None:
    """Such a string is no file, but what comes after it is what json says."""
    text = TEXT + '"\\", "x": [' + TEXT + '"'
    body = json.dumps({"data": {"data": text, "y": 1}}).encode()
    value = read(body, *range(step, len(body), step))
    with pytest.raises(RequestError, match="base64"):
        value["data"].pop("data").finish()
    assert value == {"data": {"y": 1}}


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


@pytest.mark.parametrize("end", ["\\u00", "\\\\", "\\\\u0041", "\\t", "\\u0100"])
def test_escapes_that_are_no_base64(end: str) -> None:
    value = read(('{"data": {"data": "' + TEXT + end + '"}}').encode())
    with pytest.raises(RequestError, match="base64"):
        value["data"]["data"].finish()


def test_a_long_string_that_is_no_base64() -> None:
    value = read(json.dumps({"data": {"data": "?" * 100_000}}).encode(), 70_000)
    with pytest.raises(RequestError, match="base64"):
        value["data"]["data"].finish()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"data": {"data": "' + TEXT.encode(),
        b'{"data": {"data": "' + TEXT.encode() + b'\\"}}',
        b'{"data": ["' + TEXT.encode() + b'"',
        b"nonsense",
    ],
)
def test_no_json(body: bytes) -> None:
    with pytest.raises(json.JSONDecodeError):
        read(body, 10)


def test_what_is_no_file_is_not_kept_for_ever() -> None:
    reader = BodyReader()
    reader.feed(b'{"data": {"data": ["')
    for _ in range(40):
        reader.feed(b'A", "' * 100_000)
    assert len(reader.rest) < 2**25
    with pytest.raises(LimitError, match="more than 16777216 bytes besides the files"):
        reader.parse()


def test_a_client_is_gone_before_the_end() -> None:
    reader = BodyReader()
    reader.feed(json.dumps({"data": TEXT})[:-10].encode())
    [upload] = reader._uploads.values()
    reader.close()
    assert upload.memory.closed
