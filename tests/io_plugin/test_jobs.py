"""One request from its scene to its map, with a network that is easily worked out by hand."""

import base64
import json
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rasterio import Affine
from rasterio.control import GroundControlPoint
from rasterio.io import MemoryFile
from rasterio.warp import transform

from vllm_raster_io import plans
from vllm_raster_io.answers import RasterAnswer
from vllm_raster_io.contract import RasterContract
from vllm_raster_io.errors import (
    AccessError,
    LimitError,
    RasterError,
    RasterIOError,
    RequestError,
    ServingError,
)
from vllm_raster_io.jobs import Job
from vllm_raster_io.limits import Limits
from vllm_raster_io.pace import PromptSize
from vllm_raster_io.requests import RasterRequest
from vllm_raster_io.uploads import Upload

from ..factories import make_raster
from .networks import PixelNetwork
from .scenes import Array, make_contract

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

BANDS = ("BLUE", "GREEN", "RED", "NIR")
SIZES = [(1, 1), (1, 300), (5, 15), (16, 17), (64, 64), (65, 63), (150, 70)]
DAMAGED = make_raster(height=200, width=200)[:-30_000]


class TestMap:
    @pytest.mark.parametrize("size", SIZES)
    @pytest.mark.parametrize("overlap", [0, 16, 63])
    def test_classes_are_those_of_the_whole_scene(
        self, size: tuple[int, int], overlap: int
    ) -> None:
        pixels = noise(*size)
        contract = make_contract("classes", channels=5, overlap=overlap)
        answer = mapped(make_raster(values=pixels), contract)
        found = pixels_of(answer)
        assert found.dtype == np.uint8
        np.testing.assert_array_equal(found, PixelNetwork(contract).ids(pixels)[np.newaxis])

    @pytest.mark.parametrize("size", SIZES)
    @pytest.mark.parametrize("kind", ["values", "image"])
    def test_values_are_those_of_the_whole_scene(self, size: tuple[int, int], kind: str) -> None:
        pixels = noise(*size)
        contract = make_contract(kind, channels=2)
        found = pixels_of(mapped(make_raster(values=pixels), contract))
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, PixelNetwork(contract).scores(pixels), rtol=1e-6)

    @pytest.mark.parametrize("kind", ["classes", "values"])
    def test_upscaled(self, kind: str) -> None:
        pixels = noise(70, 100)
        contract = make_contract(kind, channels=3, upscale=4)
        answer = mapped(make_raster(values=pixels), contract)
        network = PixelNetwork(contract)
        assert (answer.height, answer.width) == (280, 400)
        if kind == "classes":
            np.testing.assert_array_equal(pixels_of(answer)[0], network.ids(pixels))
        else:
            np.testing.assert_allclose(pixels_of(answer), network.scores(pixels), rtol=1e-6)
        with MemoryFile(base64.b64decode(answer.data)) as memory, memory.open() as dataset:
            assert dataset.transform == Affine(2.5, 0, 600_000, 0, -2.5, 5_300_000)

    def test_300_classes(self) -> None:
        pixels = noise(40, 90)
        contract = make_contract("classes", channels=300)
        answer = mapped(make_raster(values=pixels), contract)
        np.testing.assert_array_equal(pixels_of(answer)[0], PixelNetwork(contract).ids(pixels))
        assert (answer.dtype, answer.nodata) == ("uint16", 65_535)

    def test_windows_may_be_read_in_any_order(self) -> None:
        pixels = noise(150, 170)
        pixels[2, 40:60, 30:90] = 9_999
        content = make_raster(values=pixels, nodata=9_999)
        contract = make_contract("values", channels=1)
        network = PixelNetwork(contract)
        job = Job(request(content), contract)
        items = job.items()
        maps: list[Any] = [None] * len(items)
        for i in np.random.default_rng(0).permutation(len(items)):
            maps[i] = network(items[i])
        assert job.answer(maps, None) == mapped(content, contract)
        job.close()

    def test_bands_by_name(self) -> None:
        pixels = noise(30, 40)
        contract = make_contract("classes", channels=7)
        names = ["NIR", "green", "Red", "BLUE"]
        answer = mapped(make_raster(values=pixels, descriptions=names), contract)
        expected = PixelNetwork(contract).ids(pixels[[3, 1, 2, 0]])
        np.testing.assert_array_equal(pixels_of(answer)[0], expected)
        assert answer.effective.indices == [3, 1, 2, 0]
        assert answer.effective.bands == list(BANDS)
        assert answer.effective.bands_by == "names"

    def test_bands_by_indices(self) -> None:
        pixels = noise(30, 40)
        contract = make_contract("classes", channels=7)
        answer = mapped(make_raster(values=pixels), contract, indices=[2, 2, 0, 1])
        expected = PixelNetwork(contract).ids(pixels[[2, 2, 0, 1]])
        np.testing.assert_array_equal(pixels_of(answer)[0], expected)
        assert answer.effective.bands_by == "indices"


class TestPrompts:
    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(
        height=st.integers(1, 150),
        width=st.integers(1, 150),
        overlap=st.sampled_from([0, 8]),
        most=st.integers(1, 7),
        augment=st.sampled_from(["none", "flips", "flips_rotations"]),
    )
    def test_neighbours_of_one_size_share_one(
        self, height: int, width: int, overlap: int, most: int, augment: str
    ) -> None:
        content = make_raster(height=height, width=width)
        asked = request(content, overlap=overlap, augment=augment)
        contract = make_contract(size=32)
        with Job(asked, contract, prompt_size=PromptSize(usual=most)) as job:
            shapes = [item["pixel_values"].shape for item in job.items()]
            prompts = job.prompts
            largest = max(map(math.prod, shapes)) * 2 * max(map(len, prompts))
            assert job.prompt_bytes == largest
            numbers = [sum(math.prod(shapes[i]) for i in one) for one in prompts]
            assert [job.numbers(i) for i in range(len(prompts))] == numbers
        assert [i for one in prompts for i in one] == list(range(len(shapes)))
        for one in prompts:
            assert 1 <= len(one) <= most
            assert len({shapes[i] for i in one}) == 1
        for one, after in pairwise(prompts):
            assert len(one) == most or shapes[one[0]] != shapes[after[0]]

    @pytest.mark.parametrize(
        ("usual", "windows", "tells"), [(1, 1, False), (4, 4, False), (4, 6, True)]
    )
    def test_more_than_a_usual_one_tells_the_pace(
        self, usual: int, windows: int, tells: bool
    ) -> None:
        """Also where all of it is one longer prompt."""
        content = make_raster(height=32, width=32 * windows)
        size = PromptSize(usual=usual, most=16, numbers=1e9)
        with Job(request(content, overlap=0), make_contract(size=32), prompt_size=size) as job:
            assert [len(one) for one in job.prompts] == [windows]
            assert job.tells_pace is tells


class TestTurnedWindows:
    @pytest.mark.parametrize("size", [(1, 40), (40, 1), (1, 1), (3, 2)])
    @pytest.mark.parametrize("augment", ["flips", "flips_rotations"])
    def test_are_arrays_that_pytorch_takes(self, size: tuple[int, int], augment: str) -> None:
        content = make_raster(height=size[0], width=size[1])
        with Job(request(content, augment=augment), make_contract(size=32)) as job:
            for item in job.items():
                for name in ("pixel_values", "valid"):
                    array = np.asarray(item[name])
                    assert min(array.strides) >= 0
                    assert array.flags.c_contiguous
                    assert array.shape == item[name].shape


class TestInvalidPixels:
    @pytest.mark.parametrize("upscale", [1, 2])
    @pytest.mark.parametrize("kind", ["classes", "values"])
    def test_are_nodata_in_the_map_and_no_others(self, kind: str, upscale: int) -> None:
        pixels = noise(100, 90)
        pixels[1, 10:20, 5:80] = pixels[3, 99, 89] = 9_999
        contract = make_contract(kind, channels=3, upscale=upscale)
        answer = mapped(make_raster(values=pixels, nodata=9_999), contract)
        invalid = (pixels == 9_999).any(axis=0).repeat(upscale, 0).repeat(upscale, 1)
        with MemoryFile(base64.b64decode(answer.data)) as memory, memory.open() as dataset:
            np.testing.assert_array_equal(dataset.read_masks(1) == 0, invalid)
            found = dataset.read(1)
        expected = PixelNetwork(contract).scores(pixels)
        expected = expected.argmax(axis=0) if kind == "classes" else expected[0]
        np.testing.assert_allclose(found[~invalid], expected[~invalid], rtol=1e-6)
        assert answer.invalid_pixels == 751 * upscale**2
        assert answer.nodata == (255 if kind == "classes" else "nan")

    def test_of_bands_that_are_not_used_do_not_matter(self) -> None:
        pixels = noise(20, 20)
        pixels[4 - 1] = 9_999
        content = make_raster(values=pixels, nodata=9_999)
        contract = make_contract("classes", bands=("A", "B", "C"))
        assert mapped(content, contract, indices=[0, 1, 2]).invalid_pixels == 0

    def test_nan_in_one_band(self) -> None:
        pixels = noise(20, 30).astype(np.float32)
        pixels[2, 3, 4] = np.nan
        pixels[0, 19, 29] = np.inf
        contract = make_contract("classes")
        job = Job(request(make_raster(values=pixels, dtype="float32")), contract)
        (item,) = job.items()
        np.asarray(item["pixel_values"])
        expected = np.ones((20, 30), bool)
        expected[3, 4] = expected[19, 29] = False
        np.testing.assert_array_equal(np.asarray(item["valid"]), expected)
        answer = job.answer([np.zeros((3, 32, 32), np.float32)], None)
        job.close()
        np.testing.assert_array_equal(pixels_of(answer)[0] == 255, ~expected)

    def test_nothing_but(self) -> None:
        content = make_raster(values=np.full((4, 70, 70), 9), nodata=9)
        answer = mapped(content, make_contract("classes"))
        assert answer.invalid_pixels == 4_900
        assert [one.pixels for one in answer.classes or ()] == [0, 0, 0]
        assert (pixels_of(answer) == 255).all()


class TestItems:
    def test_windows_of_the_file_in_its_own_type(self) -> None:
        pixels = noise(64, 100)
        job = Job(request(make_raster(values=pixels)), make_contract(overlap=16))
        items = job.items()
        assert len(items) == 2
        for item, columns in zip(items, (slice(0, 64), slice(36, 100)), strict=True):
            assert item["pixel_values"].shape == (4, 64, 64)
            assert item["pixel_values"].dtype == np.uint16
            assert item["valid"].shape == (64, 64)
            np.testing.assert_array_equal(np.asarray(item["pixel_values"]), pixels[..., columns])
            assert np.asarray(item["valid"]).all()
            assert "location_coords" not in item
        job.close()

    def test_places_where_the_network_is_told(self) -> None:
        content = make_raster(height=64, width=128)
        contract = make_contract(coordinates=("time", "location"), overlap=0)
        job = Job(request(content), contract)
        longitude, latitude = transform(
            "EPSG:32632", "EPSG:4326", [600_320, 600_960], [5_299_680] * 2
        )
        for item, *place in zip(job.items(), latitude, longitude, strict=True):
            np.testing.assert_allclose(item["location_coords"], place)
        job.close()
        assert mapped(content, contract).effective.coordinates == ["location"]

    def test_no_places_where_the_file_tells_none(self) -> None:
        contract = make_contract(coordinates=("location",))
        content = make_raster(crs=None)
        job = Job(request(content), contract)
        assert all("location_coords" not in item for item in job.items())
        job.close()
        answer = mapped(content, contract)
        assert answer.effective.coordinates == []
        assert answer.crs is None


class TestAnswer:
    def test_all_that_is_told(self) -> None:
        pixels = noise(100, 80)
        contract = make_contract("classes", channels=3, size=64, overlap=16)
        answer = mapped(make_raster(values=pixels, crs="EPSG:32719"), contract, request_id="r 1")
        ids = PixelNetwork(contract).ids(pixels)
        told = answer.model_dump(exclude={"data"})
        assert told == {
            "data_format": "b64_json",
            "request_id": "r 1",
            "format": "geotiff",
            "media_type": "image/tiff; application=geotiff",
            "picture": None,
            "kind": "classes",
            "product": "classes",
            "width": 80,
            "height": 100,
            "dtype": "uint8",
            "nodata": 255,
            "scale": None,
            "invalid_pixels": 0,
            "crs": "EPSG:32719",
            "transform": [10, 0, 600_000, 0, -10, 5_300_000],
            "classes": [
                {"id": i, "name": f"channel {i}", "color": None, "pixels": int((ids == i).sum())}
                for i in range(3)
            ],
            "confidence": None,
            "effective": {
                "indices": [0, 1, 2, 3],
                "bands": list(BANDS),
                "file_bands": [None] * 4,
                "bands_by": "order",
                "scale": None,
                "offset": None,
                "nodata": None,
                "window": [0, 0, 80, 100],
                "resolution": None,
                "resampling": None,
                "tile_size": 64,
                "overlap": 16,
                "blending": "linear",
                "augment": "none",
                "windows": 4,
                "compression": "deflate",
                "quality": None,
                "priority": None,
                "upscale": 1,
                "downscale": 1,
                "frames": 1,
                "coordinates": [],
                "dates": None,
                "dates_by": None,
                "location_by": None,
                "location": None,
                "prompt": None,
                "notes": [],
            },
        }

    def test_is_json_also_where_nodata_is_nan(self) -> None:
        answer = mapped(make_raster(), make_contract("values", channels=1))
        told = json.loads(answer.model_dump_json(), parse_constant=pytest.fail)
        assert told["nodata"] == "nan"
        assert told["classes"] is None

    def test_the_reference_system_of_control_points(self) -> None:
        points = [GroundControlPoint(r, c, 10 + c, 50 - r) for r in (0, 32) for c in (0, 48)]
        content = make_raster(crs="EPSG:4326", gcps=points)
        assert mapped(content, make_contract()).crs == "EPSG:4326"

    def test_the_map_is_not_in_its_representation(self) -> None:
        answer = mapped(make_raster(), make_contract())
        assert answer.data not in repr(answer)


class TestRefused:
    @pytest.mark.parametrize(
        ("content", "fields", "kind"),
        [
            (b"", {}, RequestError),
            (b"text", {}, RasterError),
            (make_raster()[:40], {}, RasterError),
            (make_raster(bands=3), {}, RasterError),
            (make_raster(), {"indices": [0, 1, 2, 4]}, RasterError),
            (make_raster(), {"data_format": "path"}, AccessError),
        ],
    )
    def test_what_cannot_be_served(
        self, content: bytes, fields: dict[str, Any], kind: type[RasterIOError]
    ) -> None:
        with pytest.raises(kind):
            Job(request(content, **fields), make_contract())

    def test_too_many_windows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(plans, "LIMITS", Limits(windows=4))
        contract = make_contract(size=16, overlap=0)
        Job(request(make_raster(height=32, width=32)), contract).close()
        with pytest.raises(LimitError, match="6 windows, and at most 4"):
            Job(request(make_raster(height=32, width=33)), contract)

    def test_too_many_scores(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # Of two windows side by side, each with five scores; and an id.
        monkeypatch.setattr(plans, "LIMITS", Limits(score_bytes=8 * 70 * (5 * 4 + 1)))
        contract = make_contract("classes", channels=5, overlap=2)
        Job(request(make_raster(height=8, width=70)), contract).close()
        with pytest.raises(LimitError, match="11928 score bytes, and at most 11760"):
            Job(request(make_raster(height=8, width=71)), contract)

    def test_scores_that_are_not_needed_do_not_count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(plans, "LIMITS", Limits(score_bytes=100 * 100))
        contract = make_contract("classes", channels=5, overlap=2)
        content = make_raster(height=100, width=100)
        Job(request(content, blending="none"), contract).close()
        with pytest.raises(LimitError, match="score bytes, and at most 10000"):
            Job(request(content), contract)

    def test_leaves_nothing_behind(self) -> None:
        upload = Upload.of(make_raster(bands=3))
        with pytest.raises(RasterError):
            Job(RasterRequest(data=upload), make_contract())
        assert not upload.memory.exists()

    def test_a_damaged_file_is_refused_when_it_is_read(self) -> None:
        upload = Upload.of(DAMAGED)
        job = Job(RasterRequest(data=upload), make_contract())
        *_, last = job.items()
        with pytest.raises(RasterError, match="damaged"):
            np.asarray(last["pixel_values"])
        job.close()
        assert not upload.memory.exists()

    @pytest.mark.parametrize(
        "maps",
        [
            [],
            [np.zeros((3, 64, 64))],
            [np.zeros((3, 64, 64))] * 3,
            [np.zeros((2, 64, 64))] * 2,
            [np.zeros((3, 48, 64))] * 2,
        ],
    )
    def test_maps_of_another_scene(self, maps: list[Array]) -> None:
        job = Job(request(make_raster(height=64, width=100)), make_contract())
        with pytest.raises(ServingError, match="do not fit the scene"):
            job.answer(maps, None)
        job.close()


def noise(height: int, width: int) -> Array:
    chance = np.random.default_rng([height, width])
    return chance.integers(0, 5_000, (4, height, width)).astype(np.uint16)


def request(content: bytes, **fields: Any) -> RasterRequest:
    return RasterRequest(data=base64.b64encode(content).decode(), **fields)


def mapped(
    content: bytes,
    contract: RasterContract,
    *,
    indices: list[int] | None = None,
    request_id: str | None = None,
) -> RasterAnswer:
    job = Job(request(content, indices=indices), contract)
    network = PixelNetwork(contract)
    answer = job.answer([network(item) for item in job.items()], request_id)
    job.close()
    return answer


def pixels_of(answer: RasterAnswer) -> Array:
    with MemoryFile(base64.b64decode(answer.data)) as memory, memory.open() as dataset:
        assert dataset.shape == (answer.height, answer.width)
        assert set(dataset.dtypes) == {answer.dtype}
        return dataset.read()
