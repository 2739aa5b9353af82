"""The options of the client and of the command line, as they reach a server."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from vllm_raster_io import RasterClient, ServiceError
from vllm_raster_io.answers import ConfidenceFile, Effective, RasterAnswer
from vllm_raster_io.arguments import MapArguments
from vllm_raster_io.cli import app
from vllm_raster_io.errors import RequestError
from vllm_raster_io.requests import RasterRequest

ANSWER = RasterAnswer(
    data=base64.b64encode(b"a map").decode(),
    kind="classes",
    product="classes",
    width=3,
    height=2,
    dtype="uint8",
    nodata=255,
    invalid_pixels=0,
    crs=None,
    confidence=ConfidenceFile(
        data_format="b64_json",
        data=base64.b64encode(b"how sure").decode(),
        dtype="float32",
        nodata="nan",
        scale=None,
    ),
    effective=Effective(
        indices=[0], bands=["RED"], bands_by="order", tile_size=64, overlap=0,
        blending="linear", windows=1, coordinates=[],
    ),
)  # fmt: skip


class Server:
    def __init__(self) -> None:
        self.answer = ANSWER
        self.bodies: list[dict[str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.bodies.append(json.loads(request.content))
        return httpx.Response(200, json={"data": self.answer.model_dump()})

    @property
    def fields(self) -> dict[str, Any]:
        """What came beside the raster."""
        (body,) = self.bodies
        return {k: v for k, v in body["data"].items() if k != "data"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    original: Callable[..., None] = httpx.Client.__init__

    def init(self: httpx.Client, **kwargs: object) -> None:
        original(self, **{**kwargs, "transport": httpx.MockTransport(made)})

    monkeypatch.setattr(httpx.Client, "__init__", init)
    return made


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    path = tmp_path / "scene.tif"
    path.write_bytes(b"a scene")
    return path


ALL: MapArguments = {
    "bands": ("B02", 3),
    "scale": [0.1, 0.2],
    "offset": 0.5,
    "nodata": "none",
    "window": (1, 2, 3, 4),
    "resolution": 20,
    "tile_size": 32,
    "overlap": 4,
    "blending": "gaussian",
    "augment": "flips",
    "product": "classes",
    "dtype": "uint8",
    "confidence": True,
    "format": "cog",
    "compression": "zstd",
    "priority": -3,
}


class TestClient:
    def test_every_field_of_a_request_is_an_argument(self) -> None:
        known = set(MapArguments.__annotations__) | {"data", "image_format"}
        assert known == set(RasterRequest.model_fields)

    def test_arguments_are_sent(self, server: Server) -> None:
        with RasterClient() as client:
            client.map(b"a scene", **ALL)
        assert server.fields == {**ALL, "bands": ["B02", 3], "window": [1, 2, 3, 4]}
        RasterRequest.parse(server.bodies[0]["data"])

    def test_none_is_not_sent(self, server: Server) -> None:
        with RasterClient() as client:
            client.map(b"a scene", bands=None, overlap=None, model=None)
        assert server.fields == {}
        assert set(server.bodies[0]) == {"data"}

    def test_a_model(self, server: Server) -> None:
        with RasterClient() as client:
            client.map(b"a scene", model="floods")
        assert server.bodies[0]["model"] == "floods"
        assert server.fields == {}

    def test_a_misspelt_argument(self, server: Server) -> None:
        wrong: Any = {"tilesize": 3}
        with RasterClient() as client, pytest.raises(TypeError, match="no argument 'tilesize'"):
            client.map(b"a scene", **wrong)
        assert not server.bodies

    def test_no_number_is_nodata(self, server: Server) -> None:
        with RasterClient() as client:
            client.map(b"a scene", nodata=float("nan"))
        assert server.fields == {"nodata": "nan"}

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("nodata", float("inf")),
            ("scale", float("nan")),
            ("offset", [0, float("-inf")]),
            ("bbox", (0, 0, float("inf"), 1)),
        ],
    )
    def test_what_json_does_not_have(self, server: Server, name: str, value: Any) -> None:
        wrong: Any = {name: value}
        with RasterClient() as client, pytest.raises(RequestError, match=f"`{name}` must be made"):
            client.map(b"a scene", **wrong)
        assert not server.bodies

    def test_confidence(self, server: Server, tmp_path: Path) -> None:
        with RasterClient() as client:
            result = client.map(b"a scene", confidence=True)
        assert result.confidence == b"how sure"
        assert result.save_confidence(tmp_path / "c.tif").read_bytes() == b"how sure"
        server.answer = ANSWER.model_copy(update={"confidence": None})
        with RasterClient() as client:
            result = client.map(b"a scene")
        with pytest.raises(ServiceError, match="nothing to save"):
            result.save_confidence(tmp_path / "d.tif")

    def test_what_the_server_reads_and_writes_itself(self, server: Server) -> None:
        server.answer = ANSWER.model_copy(
            update={"data_format": "path", "data": "maps/m.tif", "confidence": None}
        )
        with RasterClient() as client:
            result = client.map(
                "https://example.org/a.tif",
                data_format="url",
                out_data_format="path",
                out_path=Path("maps/m.tif"),
            )
        assert server.bodies[0]["data"] == {
            "data": "https://example.org/a.tif",
            "data_format": "url",
            "out_data_format": "path",
            "out_path": "maps/m.tif",
        }
        assert (result.data, result.answer.data) == (b"", "maps/m.tif")
        with pytest.raises(ServiceError, match="nothing to save"):
            result.save("m.tif")
        with RasterClient() as client, pytest.raises(TypeError, match="got bytes"):
            client.map(b"x", data_format="path")


class TestCommandLine:
    def test_options_are_sent(self, server: Server, scene: Path, tmp_path: Path) -> None:
        command = [
            *("--bands", "B02,3", "--scale", "0.1,0.2", "--offset", "0.5", "--nodata", "none"),
            *("--window", "1,2,3,4", "--resolution", "20", "--tile-size", "32", "--overlap", "4"),
            *("--blending", "gaussian", "--augment", "flips", "--product", "classes"),
            *("--dtype", "uint8", "--format", "cog", "--compression", "zstd", "--priority", "-3"),
            *("--model", "floods"),
        ]
        confidence = tmp_path / "sure.tif"
        done = run(scene, tmp_path / "map.tif", *command, "--confidence", str(confidence))
        assert done == 0
        assert server.fields == {**ALL, "bands": ["B02", 3], "window": [1, 2, 3, 4]}
        assert server.bodies[0]["model"] == "floods"
        assert confidence.read_bytes() == b"how sure"

    def test_a_box(self, server: Server, scene: Path, tmp_path: Path) -> None:
        out = tmp_path / "map.tif"
        assert run(scene, out, "--bbox", "-1.5,2,3,4", "--bbox-crs", "EPSG:4326") == 0
        assert server.fields == {"bbox": [-1.5, 2, 3, 4], "bbox_crs": "EPSG:4326"}

    @pytest.mark.parametrize(
        ("name", "kind"),
        [
            ("a.tif", None),
            ("a.PNG", "png"),
            ("a.jpg", "jpeg"),
            ("a.webp", "webp"),
            ("a.npy", "npy"),
        ],
    )
    def test_the_files_name_tells_the_format(
        self, server: Server, scene: Path, tmp_path: Path, name: str, kind: str | None
    ) -> None:
        assert run(scene, tmp_path / name) == 0
        assert server.fields.get("format") == kind

    @pytest.mark.parametrize(
        ("given", "sent"), [("-9999", -9999), ("0.5", 0.5), ("nan", "nan"), ("none", "none")]
    )
    def test_nodata(
        self, server: Server, scene: Path, tmp_path: Path, given: str, sent: object
    ) -> None:
        assert run(scene, tmp_path / "map.tif", f"--nodata={given}") == 0
        assert server.fields == {"nodata": sent}

    @pytest.mark.parametrize("option", ["--scale=nan", "--nodata=inf", "--bbox=0,0,inf,1"])
    def test_what_json_does_not_have(self, scene: Path, tmp_path: Path, option: str) -> None:
        # In words, without a traceback.
        assert isinstance(outcome(scene, tmp_path / "map.tif", option).exception, SystemExit)

    @pytest.mark.parametrize("option", ["--scale=x", "--window=1,2,a,4", "--tile-size=big"])
    def test_what_is_no_number(self, scene: Path, tmp_path: Path, option: str) -> None:
        assert run(scene, tmp_path / "map.tif", option) == 2


def run(*arguments: object) -> int:
    return outcome(*arguments).exit_code


def outcome(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["map", *map(str, arguments)])
