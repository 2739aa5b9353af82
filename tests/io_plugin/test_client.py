"""The client and the command line, against a server that is a function."""

import base64
import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from vllm_raster_io import RasterClient, ServiceError
from vllm_raster_io.answers import ClassSummary, Effective, RasterAnswer
from vllm_raster_io.cli import app

Handler = Callable[[httpx.Request], httpx.Response]

ANSWER = RasterAnswer(
    data=base64.b64encode(b"a map").decode(),
    kind="classes",
    product="classes",
    width=3,
    height=2,
    dtype="uint8",
    nodata=255,
    invalid_pixels=1,
    crs="EPSG:32632",
    classes=[ClassSummary(id=0, name="water", color="#0000ff", pixels=5)],
    effective=Effective(
        indices=[0], bands=["RED"], bands_by="order", tile_size=64, overlap=0,
        blending="linear", windows=1, coordinates=[],
    ),
)  # fmt: skip


@pytest.fixture
def answer_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[Handler], None]:
    """Lets every client talk to a function in place of a server."""
    original = httpx.Client.__init__

    def put(handler: Handler) -> None:
        def init(self: httpx.Client, **kwargs: object) -> None:
            original(self, **{**kwargs, "transport": httpx.MockTransport(handler)})

        monkeypatch.setattr(httpx.Client, "__init__", init)

    return put


def good(_: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json={"data": ANSWER.model_dump()})


def refusing(_: httpx.Request) -> httpx.Response:
    return httpx.Response(400, json={"error": {"message": "no such band"}})


def test_sends_the_file_and_takes_the_map(
    answer_with: Callable[[Handler], None], tmp_path: Path
) -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return good(request)

    answer_with(handler)
    scene = tmp_path / "scene.tif"
    scene.write_bytes(b"a scene")
    with RasterClient("http://server:1", api_key="secret") as client:
        result = client.map(scene, indices=(2, 0), request_id="mine")
    assert result.data == b"a map"
    assert result.save(tmp_path / "map.tif").read_bytes() == b"a map"
    assert result.answer == ANSWER
    (request,) = seen
    assert request.url == "http://server:1/pooling"
    assert request.headers["authorization"] == "Bearer secret"
    assert request.headers["x-request-id"] == "mine"
    assert json.loads(request.content) == {
        "data": {"data": base64.b64encode(b"a scene").decode(), "indices": [2, 0]}
    }


def test_sends_several_files_with_what_is_known_of_them(
    answer_with: Callable[[Handler], None], tmp_path: Path
) -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return good(request)

    answer_with(handler)
    scene = tmp_path / "scene.tif"
    scene.write_bytes(b"a scene")
    with RasterClient() as client:
        client.map((scene, b"another"), dates=("2024-01-01", "2024-02-01"), location=(1.5, -2))
        client.map([str(scene)], dates="2024-01-01")
    first, second = (base64.b64encode(one).decode() for one in (b"a scene", b"another"))
    assert [json.loads(one.content) for one in seen] == [
        {
            "data": {
                "data": [first, second],
                "dates": ["2024-01-01", "2024-02-01"],
                "location": [1.5, -2],
            }
        },
        {"data": {"data": [first], "dates": "2024-01-01"}},
    ]


def test_says_why_it_was_refused(answer_with: Callable[[Handler], None]) -> None:
    answer_with(refusing)
    with RasterClient() as client, pytest.raises(ServiceError, match="400: no such band"):
        client.map(b"a scene")


@pytest.mark.parametrize(
    "response", [httpx.Response(502, text="a proxy's page"), httpx.Response(500, json=[1])]
)
def test_answers_that_are_no_answers(
    answer_with: Callable[[Handler], None], response: httpx.Response
) -> None:
    answer_with(lambda _: response)
    with RasterClient() as client, pytest.raises(ServiceError, match=str(response.status_code)):
        client.map(b"a scene")


def test_no_server(answer_with: Callable[[Handler], None]) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    answer_with(handler)
    with RasterClient("http://nowhere:1") as client:
        assert not client.healthy()
        with pytest.raises(ServiceError, match="http://nowhere:1 cannot be reached"):
            client.map(b"a scene")


def test_command_line_writes_the_map(
    answer_with: Callable[[Handler], None], tmp_path: Path
) -> None:
    answer_with(good)
    scene, out = tmp_path / "scene.tif", tmp_path / "map.tif"
    scene.write_bytes(b"a scene")
    done = CliRunner().invoke(app, ["map", str(scene), str(out), "--indices", "2,1,0,3"])
    assert done.exit_code == 0, done.output
    assert out.read_bytes() == b"a map"
    assert "water" in done.output


def test_command_line_sends_several_files(
    answer_with: Callable[[Handler], None], tmp_path: Path
) -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        answer = ANSWER.model_copy(deep=True)
        answer.effective.notes = ["The dates look odd"]
        return httpx.Response(200, json={"data": answer.model_dump()})

    answer_with(handler)
    scenes = [tmp_path / f"{name}.tif" for name in "abc"]
    for scene in scenes:
        scene.write_bytes(scene.stem.encode())
    out = tmp_path / "map.tif"
    days = ["2024-01-01", "2024-02-01", "2024-03-01"]
    command = ["map", *map(str, scenes), str(out), "--location", "-23.5,14"]
    for day in days:
        command += ["--date", day]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert out.read_bytes() == b"a map"
    assert "The dates look odd" in done.output
    (request,) = seen
    files = [base64.b64encode(one).decode() for one in (b"a", b"b", b"c")]
    told = {"data": files, "dates": days, "location": [-23.5, 14]}
    assert json.loads(request.content) == {"data": told}


@pytest.mark.parametrize("location", ["here", "1;2", "1,2,"])
def test_command_line_refuses_bad_places(tmp_path: Path, location: str) -> None:
    scene = tmp_path / "scene.tif"
    scene.write_bytes(b"a scene")
    done = CliRunner().invoke(app, ["map", str(scene), "map.tif", "--location", location])
    assert done.exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["x.tif", "--confidence", "x.tif"], "one file"),
        (["x.tif", "--confidence", "../here/x.tif"], "one file"),
        (["x.png", "--preview", "./x.png"], "one file"),
        (["none/x.tif"], "no folder 'none'"),
        (["x.tif", "--preview", "none/x.png"], "no folder 'none'"),
        (["x.gif"], "No map is written as .gif"),
        (["x.npy", "--preview", "x.png"], "--preview"),
    ],
)
def test_command_line_looks_first_where_the_map_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("COLUMNS", "300")
    Path("scene.tif").write_bytes(b"a scene")
    done = CliRunner().invoke(app, ["map", "scene.tif", *arguments])
    assert done.exit_code == 2
    assert told in done.output


def test_command_line_needs_a_place_for_the_map(tmp_path: Path) -> None:
    scene = tmp_path / "scene.tif"
    scene.write_bytes(b"a scene")
    done = CliRunner().invoke(app, ["map", str(scene)])
    assert done.exit_code == 2
    assert scene.read_bytes() == b"a scene"


def test_command_line_fails_in_one_line(
    answer_with: Callable[[Handler], None], tmp_path: Path
) -> None:
    answer_with(refusing)
    scene = tmp_path / "scene.tif"
    scene.write_bytes(b"a scene")
    done = CliRunner().invoke(app, ["map", str(scene), str(tmp_path / "map.tif")])
    assert done.exit_code == 1
    assert "no such band" in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize("indices", ["a,b", "1;2", ""])
def test_command_line_refuses_bad_indices(tmp_path: Path, indices: str) -> None:
    scene = tmp_path / "scene.tif"
    scene.write_bytes(b"a scene")
    done = CliRunner().invoke(app, ["map", str(scene), "map.tif", "--indices", indices])
    assert done.exit_code == 2
