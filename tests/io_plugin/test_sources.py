"""Rasters that are sent, and those that the server reads and writes itself."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from vllm_raster_io import RasterClient, ServerPath
from vllm_raster_io.answers import ConfidenceFile
from vllm_raster_io.cli import app
from vllm_raster_io.requests import RasterRequest
from vllm_raster_io.sources import data_fields

from .test_client import ANSWER

URL = "https://example.org/a.tif"
SENT = base64.b64encode(b"a scene").decode()


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    path = tmp_path / "scene.tif"
    path.write_bytes(b"a scene")
    return path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the server was asked; it says that it wrote what it was to write."""
    seen: list[dict[str, Any]] = []
    original: Callable[..., None] = httpx.Client.__init__

    def answer(request: httpx.Request) -> httpx.Response:
        fields = json.loads(request.content)["data"]
        RasterRequest.parse(fields)
        seen.append(fields)
        told: dict[str, Any] = {}
        if fields.get("out_data_format") == "path":
            told = {"data_format": "path", "data": fields.get("out_path", "made-up.tif")}
        if fields.get("confidence"):
            told["confidence"] = ConfidenceFile(
                data_format="path", data="m_confidence.tif", dtype="float32", nodata="nan",
                scale=None,
            )  # fmt: skip
        return httpx.Response(200, json={"data": ANSWER.model_copy(update=told).model_dump()})

    def init(self: httpx.Client, **kwargs: object) -> None:
        original(self, **{**kwargs, "transport": httpx.MockTransport(answer)})

    monkeypatch.setattr(httpx.Client, "__init__", init)
    return seen


class TestFields:
    def test_what_is_sent(self, scene: Path) -> None:
        for source in (scene, str(scene), b"a scene"):
            assert data_fields(source) == {"data": SENT}
        assert data_fields([scene, b"a scene"]) == {"data": [SENT, SENT]}
        assert data_fields([]) == {"data": []}

    def test_what_the_server_reads(self) -> None:
        path = ServerPath("2024/a.tif")
        assert data_fields(path) == {"data": "2024/a.tif", "data_format": "path"}
        assert data_fields([path, path])["data"] == ["2024/a.tif"] * 2
        assert data_fields(URL) == {"data": URL, "data_format": "url"}
        assert data_fields([URL.upper()])["data_format"] == "url"
        assert data_fields("a.tif", "path") == {"data": "a.tif", "data_format": "path"}

    def test_a_file_whose_name_looks_like_a_url(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "https:").mkdir()
        (tmp_path / "https:" / "a.tif").write_bytes(b"a scene")
        monkeypatch.chdir(tmp_path)
        assert data_fields(Path("https://a.tif")) == {"data": SENT}

    @pytest.mark.parametrize(
        "source", [[b"x", URL], [ServerPath("a"), b"x"], [ServerPath("a"), URL]]
    )
    def test_all_come_in_one_way(self, source: list[Any]) -> None:
        with pytest.raises(TypeError, match="all sent, or all paths on the server, or all URLs"):
            data_fields(source)

    def test_a_server_path_shows_what_it_is(self) -> None:
        assert repr(ServerPath("a.tif")) == "ServerPath('a.tif')"
        assert f"{ServerPath('a.tif')}" == "a.tif"


class TestClient:
    def test_reads_and_writes_on_the_server(self, asked: list[dict[str, Any]]) -> None:
        with RasterClient() as client:
            first = client.map(ServerPath("a.tif"), out_path="maps/", overwrite=True)
            assert first.server_path == ServerPath("maps/")
            second = client.map(URL, out_data_format="path")
            assert second.server_path == ServerPath("made-up.tif")
            assert client.map(second.server_path).server_path is None
        assert asked == [
            {
                "data": "a.tif",
                "data_format": "path",
                "out_path": "maps/",
                "out_data_format": "path",
                "overwrite": True,
            },
            {"data": URL, "data_format": "url", "out_data_format": "path"},
            {"data": "made-up.tif", "data_format": "path"},
        ]


def run(*arguments: object) -> Result:
    command = ["map", *map(str, arguments)]
    return CliRunner().invoke(app, command, env={"COLUMNS": "400"})


class TestCommandLine:
    def test_from_the_server_to_the_server(self, asked: list[dict[str, Any]]) -> None:
        done = run("server:a.tif", "server:maps/m.png", "--overwrite", "--confidence", "server:")
        assert done.exit_code == 0, done.output
        assert asked == [
            {
                "data": "a.tif",
                "data_format": "path",
                "out_data_format": "path",
                "out_path": "maps/m.png",
                "overwrite": True,
                "confidence": True,
                "format": "png",
            }
        ]
        assert "Wrote server:maps/m.png, server:m_confidence.tif" in done.output

    def test_to_a_place_of_the_servers_choice(
        self, asked: list[dict[str, Any]], scene: Path
    ) -> None:
        done = run(scene, "server:")
        assert done.exit_code == 0, done.output
        assert asked == [{"data": SENT, "out_data_format": "path"}]
        assert "Wrote server:made-up.tif" in done.output

    def test_from_the_server_to_here(self, asked: list[dict[str, Any]], tmp_path: Path) -> None:
        assert run("server:a.tif", "server:b.tif", tmp_path / "map.tif").exit_code == 0
        assert asked == [{"data": ["a.tif", "b.tif"], "data_format": "path"}]
        assert (tmp_path / "map.tif").read_bytes() == b"a map"

    def test_from_a_url(self, asked: list[dict[str, Any]], tmp_path: Path) -> None:
        assert run(URL, tmp_path / "map.tif").exit_code == 0
        assert asked == [{"data": URL, "data_format": "url"}]

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (["no.tif", "map.tif"], "There is no file 'no.tif' on this machine"),
            (["server:a", "map.tif", "--overwrite"], "--overwrite is for maps on the server"),
            (["server:a", "server:", "--confidence", "c.tif"], "--confidence must be server:"),
            (["server:a", "m.tif", "--confidence", "server:"], "must be a file on this machine"),
            (["server:a", "m.tif", "--preview", "p.png"], "--preview shows the scene"),
            ([URL, "m.tif", "--preview", "p.png"], "--preview shows the scene"),
        ],
    )
    def test_refused(self, asked: list[dict[str, Any]], arguments: list[str], told: str) -> None:
        done = run(*arguments)
        assert done.exit_code == 2
        assert told in done.output
        assert not asked

    def test_a_preview_needs_the_map_here(self, asked: list[dict[str, Any]], scene: Path) -> None:
        done = run(scene, "server:", "--preview", "p.png")
        assert done.exit_code == 2
        assert "--preview shows the map" in done.output
        assert not asked

    def test_files_that_come_in_several_ways(
        self, asked: list[dict[str, Any]], scene: Path, tmp_path: Path
    ) -> None:
        done = run(scene, URL, tmp_path / "map.tif")
        assert done.exit_code == 1
        told = " ".join(done.output.split())
        assert "all sent, or all paths on the server, or all URLs" in told
        assert not asked
