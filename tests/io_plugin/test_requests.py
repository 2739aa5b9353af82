"""What may be asked, and how a wrong request is refused."""

import re
from typing import Any

import pytest
from pydantic import ValidationError

from vllm_raster_io.errors import RequestError
from vllm_raster_io.requests import RasterRequest, refuse_fields_beside_data
from vllm_raster_io.uploads import Upload

FIELDS = (
    "data", "data_format", "out_data_format", "out_path", "overwrite", "image_format", "indices",
    "prompt", "dates", "location",
    "bands", "scale", "offset", "nodata", "window", "bbox", "bbox_crs", "resolution", "tile_size",
    "overlap", "blending", "augment", "product", "dtype", "confidence", "format", "compression",
    "quality", "priority",
)  # fmt: skip
DEFAULTS = {
    "data_format": "b64_json",
    "out_data_format": "b64_json",
    "overwrite": False,
    "blending": "linear",
    "augment": "none",
    "confidence": False,
    "format": "geotiff",
}
PAYLOAD = "~" * 100_000


def test_only_the_raster_is_needed() -> None:
    request = RasterRequest.parse({"data": "SUkqAA=="})
    assert request.model_dump(exclude_none=True) == {"data": "SUkqAA==", **DEFAULTS}
    assert request.model_fields_set == {"data"}


def test_a_body_as_terratorch_clients_send_it() -> None:
    body = {
        "data": "SUkqAA==",
        "data_format": "b64_json",
        "out_data_format": "b64_json",
        "image_format": "tiff",
        "indices": [1, 2, 3, 8, 11, 12],
    }
    assert RasterRequest.parse(body).model_dump(exclude_unset=True) == body


def test_a_body_as_clients_of_vllms_prithvi_plugin_send_it() -> None:
    body = {
        "data": "https://example.org/India_900498_S2Hand.tif",
        "data_format": "url",
        "image_format": "tiff",
        "out_data_format": "b64_json",
    }
    assert RasterRequest.parse(body).model_dump(exclude_none=True) == DEFAULTS | body


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("bands", [["B02"], [1, 2], ["red", 4], None]),
        ("scale", [1, 0.0001, [1, 2.5], None]),
        ("offset", [-0.1, [0, 0], None]),
        ("nodata", [0, -9999, 1.5, 2**63, "nan", "none", None]),
        ("window", [[0, 0, 1, 1], None]),
        ("bbox", [[-1, -2, 3, 4.5], None]),
        ("resolution", [10, 0.5, [10, 20], None]),
        ("tile_size", [1, 512, None]),
        ("overlap", [0, 511, None]),
        ("blending", ["none", "linear", "cosine", "gaussian"]),
        ("augment", ["none", "flips", "flips_rotations"]),
        ("product", ["classes", "probabilities", "logits", "values", "image", None]),
        ("format", ["geotiff", "cog", "png", "webp", "jpeg", "npy"]),
        ("priority", [0, -5, None]),
        ("data_format", ["b64_json", "path", "url"]),
        ("out_data_format", ["b64_json", "path"]),
        ("out_path", ["maps/a.tif", "/", "x" * 4096, None]),
        ("overwrite", [True, False]),
        ("image_format", ["tiff", "geotiff", "tif", "png", "jpeg", None]),
        ("indices", [[0], [3, 2, 1], [0, 0, 0], [1023], None]),
        ("prompt", ["", "water", "Wo ist Wald?", "x" * 1000, None]),
        ("data", ["AA==", ["AA=="], ["AA==", "SUkqAA=="]]),
        ("dates", ["2024-02-29", ["2024-02-29"], ["2024-02-29", "whatever"], None]),
        ("location", [[90, -180], [-90.0, 180.0], [0, 0], [-23.5, 14.25], None]),
    ],
)
def test_what_each_field_may_be(field: str, values: list[Any]) -> None:
    for value in values:
        assert getattr(RasterRequest.parse({"data": "AA=="} | {field: value}), field) == value


def test_a_file_that_is_taken_in_already() -> None:
    upload = Upload.of(b"II*\0")
    assert RasterRequest.parse({"data": upload}).data is upload


def test_a_file_in_the_wrong_place_was_a_string() -> None:
    upload = Upload()
    upload.feed(b"SUkqAAgA")
    for data in (upload, {"data": "AA==", "image_format": upload}):
        with pytest.raises(RequestError, match=r"got str <8 characters>"):
            RasterRequest.parse(data)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        (
            "data",
            None,
            "or a list of such strings, got NoneType None",
        ),
        (
            "data",
            [1, 2],
            "or a list of such strings, got list [1, 2]",
        ),
        (
            "data",
            {"a": 1},
            "or a list of such strings, got dict {'a': 1}",
        ),
        (
            "data",
            5,
            "or a list of such strings, got int 5",
        ),
        (
            "data",
            b"AA==",
            "or a list of such strings, got bytes b'AA=='",
        ),
        ("data", [], "or a list of such strings, got list []"),
        ("data", ["AA==", None], "or a list of such strings, got list ['AA==', None]"),
        ("dates", [], "`dates`: input should be an ISO date, or a list of such strings"),
        ("dates", 2024, "or a list of such strings, got int 2024"),
        ("dates", ["2024-02-29", None], "got list ['2024-02-29', None]"),
        ("location", [48.1], "list should have at least 2 items"),
        ("location", [48.1, 11.5, 500], "list should have at most 2 items"),
        ("location", [90.001, 0], "a latitude from -90 to 90 and a longitude from -180 to 180"),
        ("location", [0, -180.001], "a latitude from -90 to 90 and a longitude from -180 to 180"),
        ("location", ["48", 11], "`location.0`: input should be a valid number, got str '48'"),
        ("location", [float("nan"), 11], "`location.0`: input should be a finite number"),
        ("location", "48.1,11.5", "`location`: input should be a valid list"),
        ("data_format", "b64", "input should be 'b64_json', 'path' or 'url', got str 'b64'"),
        ("data_format", None, "input should be 'b64_json', 'path' or 'url', got NoneType None"),
        ("out_data_format", "url", "input should be 'b64_json' or 'path', got str 'url'"),
        (
            "image_format",
            "bmp",
            "input should be 'tiff', 'geotiff', 'tif', 'png', 'jpeg', 'jpg', 'webp'",
        ),
        ("image_format", 3, "`image_format`"),
        ("bands", [], "a list of names or of numbers from 1, got list []"),
        ("bands", "B02", "a list of names or of numbers from 1, got str 'B02'"),
        ("bands", [0], "a list of names or of numbers from 1, got list [0]"),
        ("bands", [True], "a list of names or of numbers from 1, got list [True]"),
        ("scale", "1", "a number, or a list of one a band, got str '1'"),
        ("scale", [float("nan")], "a number, or a list of one a band, got list [nan]"),
        ("offset", [], "a number, or a list of one a band, got list []"),
        ("nodata", "0", "a number, 'nan' or 'none', got str '0'"),
        ("nodata", 10**400, "a number, 'nan' or 'none', got int 1000"),
        ("nodata", True, "a number, 'nan' or 'none', got bool True"),
        ("nodata", float("nan"), "a number, 'nan' or 'none', got float nan"),
        ("nodata", float("inf"), "a number, 'nan' or 'none', got float inf"),
        ("resolution", 0, "a number above 0, or a list of two, got int 0"),
        ("resolution", [1, 2, 3], "a number above 0, or a list of two, got list [1, 2, 3]"),
        ("confidence", 1, "input should be a valid boolean, got int 1"),
        ("priority", 2**63, "input should be less than or equal to 9223372036854775807"),
        ("tile_size", 10**4000, "input should be less than 2147483648"),
        ("overlap", 2**31, "input should be less than 2147483648"),
        ("window", [0, 0, 2**31, 1], "`window.2`: input should be less than 2147483648"),
        ("tile_size", 64.0, "input should be a valid integer, got float 64.0"),
        ("indices", [], "list should have at least 1 item"),
        ("indices", 3, "`indices`: input should be a valid list, got int 3"),
        ("indices", "012", "`indices`: input should be a valid list, got str '012'"),
        ("indices", [0, -1], "`indices.1`: input should be greater than or equal to 0, got int -1"),
        ("indices", [0, "1"], "`indices.1`: input should be a valid integer, got str '1'"),
        ("indices", [1.0], "`indices.0`: input should be a valid integer, got float 1.0"),
        ("indices", [True], "`indices.0`: input should be a valid integer, got bool True"),
        ("indices", [None], "`indices.0`: input should be a valid integer, got NoneType None"),
    ],
)
def test_wrong_values_are_quoted_with_the_rule(field: str, value: object, told: str) -> None:
    message = refusal({"data": "AA==", field: value})
    assert f"`{field}" in message
    assert told in message


@pytest.mark.parametrize("body", [None, [], [{"data": "AA=="}], "AA==", 3, True])
def test_what_is_no_object(body: object) -> None:
    message = refusal(body)
    assert_lists_fields(message)
    assert type(body).__name__ in message


def test_missing_data() -> None:
    assert refusal({}) == "`data` is missing; a request needs the raster in `data`"
    assert "`data` is missing" in refusal({"indices": [0]})


@pytest.mark.parametrize("key", ["Data", "data_fromat", "indexes", "tile", "", "model"])
def test_unknown_keys_are_refused_with_the_fields_there_are(key: str) -> None:
    message = refusal({"data": "AA==", key: 1})
    assert message.startswith(f"`{key}` is not a field of a request")
    assert_lists_fields(message)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("Data", "data"),
        ("data_fromat", "data_format"),
        ("indexes", "indices"),
        ("tilesize", "tile_size"),
        ("over_lap", "overlap"),
        ("blend", "blending"),
        ("tta", None),
        ("model", None),
        ("", None),
    ],
)
def test_the_nearest_field_is_suggested(key: str, meant: str | None) -> None:
    message = refusal({"data": "AA==", key: 1})
    assert (f" (did you mean `{meant}`?)" in message) == (meant is not None)
    assert ("did you mean" in message) == (meant is not None)


def test_keys_that_are_no_strings() -> None:
    assert "`1`" in refusal({"data": "AA==", 1: 2})


def test_every_problem_is_told_but_no_more_than_three() -> None:
    message = refusal({"data": 1, "indices": [], "data_format": 2})
    assert all(f"`{name}`" in message for name in ("data", "indices", "data_format"))
    many = refusal({"data": "AA==", **{f"key{i}": i for i in range(50)}})
    assert many.count("is not a field") == 3
    assert "; and 47 more. There are the fields `data`" in many


@pytest.mark.parametrize(
    "body",
    [
        PAYLOAD,
        [PAYLOAD],
        {"data": [PAYLOAD, 1]},
        {"data": "AA==", "dates": [PAYLOAD, 1]},
        {"data": "AA==", "location": PAYLOAD},
        {"data": {PAYLOAD: PAYLOAD}},
        {"data": PAYLOAD.encode()},
        {"data": "AA==", PAYLOAD: 1},
        {"data": "AA==", "extra": PAYLOAD},
        {"data": "AA==", "data_format": PAYLOAD},
        {"data": "AA==", "indices": PAYLOAD},
        {"data": "AA==", "indices": ["~"] * 100_000},
        {"data": "AA==", "indices": [[PAYLOAD]]},
        {"data": PAYLOAD, "indices": []},
    ],
)
def test_messages_hold_little_of_what_came(body: object) -> None:
    message, *_ = re.split("There are the fields|with the fields", refusal(body))
    assert message.count("~") <= 60
    assert len(message) < 400


def test_neither_representation_holds_the_file() -> None:
    request = RasterRequest.parse({"data": PAYLOAD})
    assert "~" not in repr(request)
    assert "~" not in str(request)


def test_a_request_does_not_change() -> None:
    request = RasterRequest.parse({"data": "AA=="})
    with pytest.raises(ValidationError):
        request.indices = [1]  # type: ignore[misc]


@pytest.mark.parametrize(
    "body",
    [
        {"data": "AA==", "image_format": "https://example.org/a.tif?token=SECRET"},
        {"data": "AA==", "data_format": "https://me:SECRET@example.org/"},
        {"data": ["https://me:SECRET@example.org/", 3]},
        {"data": {"url": "s3://bucket/SECRET"}},
        {"data": "AA==", "https://me:SECRET@example.org/": 3},
        "https://example.org/?SECRET",
    ],
)
def test_of_a_url_only_the_scheme_is_quoted(body: object) -> None:
    message = refusal(body)
    assert "://..." in message
    assert "SECRET" not in message


def test_the_schema_tells_clients_of_a_string() -> None:
    schema = RasterRequest.model_json_schema()
    assert sorted(schema["properties"]) == sorted(FIELDS)
    assert schema["required"] == ["data"]
    assert schema["additionalProperties"] is False
    text = {"type": "string"}
    assert schema["properties"]["data"]["anyOf"] == [
        text,
        {"type": "array", "items": text, "minItems": 1},
    ]
    assert all("description" in one for one in schema["properties"].values())


def refusal(body: object) -> str:
    with pytest.raises(RequestError) as caught:
        RasterRequest.parse(body)
    return str(caught.value)


def assert_lists_fields(message: str) -> None:
    assert ", ".join(f"`{name}`" for name in FIELDS) in message


def test_fields_one_level_too_high() -> None:
    refuse_fields_beside_data(["model", "priority", "user", "indixes"])
    for name in set(FIELDS) - {"data", "priority"}:
        message = rf'^`{name}` must stand within the body\'s `data`.*"{name}": …}}}}$'
        with pytest.raises(RequestError, match=message):
            refuse_fields_beside_data({"model": "snow", name: None})
    with pytest.raises(RequestError, match=r"^`indices` and `prompt` must stand"):
        refuse_fields_beside_data(["prompt", "x", "indices"])
