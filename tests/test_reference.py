"""The page of the reference is made of what the models say."""

import json

from tools.write_reference import PAGE, reference
from vllm_raster_io.schema import schema_text


def test_the_page_is_what_the_models_say() -> None:
    assert PAGE.read_text("utf-8") == reference(), "make reference writes it anew"


def test_every_field_is_on_it() -> None:
    page = PAGE.read_text("utf-8")
    answer = json.loads(schema_text("answer"))
    for one in (json.loads(schema_text("request")), answer, *answer["$defs"].values()):
        for name, field in one["properties"].items():
            assert f"| `{name}` | " in page
            assert field["description"] in page


def test_types_defaults_and_ranges() -> None:
    rows = {
        line.split("|")[1].strip(): [one.strip() for one in line.split("|")[2:5]]
        for line in reference().split("## Answer")[0].splitlines()
        if line.startswith("| `")
    }
    assert rows["`quality`"] == ["whole number or null", "`null`", "1 to 100"]
    assert rows["`data`"] == ["text or list of texts", "needed", "at least 1"]
    assert rows["`location`"][2] == "2 of them; -90 to 90, -180 to 180"
    assert rows["`blending`"][1] == '`"linear"`'
    assert rows["`resolution`"][2] == "above 0; 2 of them; each above 0"
