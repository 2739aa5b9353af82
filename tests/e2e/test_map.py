"""Real scenes through a running server: the map is right, and lies where the scene lies."""

import io
import logging
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import rasterio

from vllm_raster_io import MapResult, RasterClient, ServiceError

from ..checkpoints.land_cover_labels import CLASS_NAMES, HELD_OUT, index_labels, mean_iou
from .conftest import SCENES

pytestmark = [
    pytest.mark.wheels,
    pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning"),
]

NODATA_IN_TOWN = 9999


@pytest.fixture(scope="module")
def maps() -> dict[str, MapResult]:
    return {}


@pytest.fixture(params=SCENES)
def scene(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def result(client: RasterClient, maps: dict[str, MapResult], scene: str) -> MapResult:
    if scene not in maps:
        maps[scene] = client.map(SCENES[scene])
    return maps[scene]


def read(name: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_], dict[str, Any]]:
    with rasterio.open(SCENES[name]) as dataset:
        pixels = dataset.read()
        valid = np.ones(pixels.shape[1:], dtype=np.bool_)
        if dataset.nodata is not None:
            valid = (pixels != dataset.nodata).all(axis=0)
        return pixels, valid, dict(dataset.profile)


def test_finds_what_training_never_saw(result: MapResult, scene: str) -> None:
    pixels, valid, _ = read(scene)
    part = HELD_OUT[SCENES[scene].name]
    with rasterio.open(io.BytesIO(result.data)) as dataset:
        ids = dataset.read(1)
    mean, by_class = mean_iou(ids[part], index_labels(pixels)[part], valid[part])
    assert len(by_class) >= 3
    assert mean >= 0.80, by_class


def test_lies_where_the_scene_lies(result: MapResult, scene: str) -> None:
    _, valid, profile = read(scene)
    with rasterio.open(io.BytesIO(result.data)) as dataset:
        assert (dataset.height, dataset.width) == (profile["height"], profile["width"])
        assert dataset.crs == profile["crs"]
        assert dataset.transform == profile["transform"]
        assert (dataset.read(1) == dataset.nodata).tolist() == (~valid).tolist()
        assert (dataset.dataset_mask() > 0).tolist() == valid.tolist()
    assert result.answer.invalid_pixels == np.count_nonzero(~valid)


def test_scenes_are_what_the_tests_take_them_for() -> None:
    assert read("town")[2]["nodata"] == NODATA_IN_TOWN
    assert read("town")[2]["crs"].to_epsg() == 32643
    assert not read("town")[1].all()
    assert read("forest_fields")[2]["crs"] is None


def test_ids_are_as_they_are(result: MapResult) -> None:
    with rasterio.open(io.BytesIO(result.data)) as dataset:
        ids = dataset.read(1)
        assert dataset.dtypes == ("uint8",)
        assert dataset.nodata == 255
    found = {int(one) for one in np.unique(ids)} - {255}
    assert found <= set(range(len(CLASS_NAMES)))
    assert len(found) >= 4
    assert result.answer.classes is not None
    for one in result.answer.classes:
        assert one.name == CLASS_NAMES[one.id]
        assert one.pixels == np.count_nonzero(ids == one.id)


def test_file_holds_names_and_colours(result: MapResult) -> None:
    assert result.answer.classes is not None
    with rasterio.open(io.BytesIO(result.data)) as dataset:
        tags, colours = dataset.tags(1), dataset.colormap(1)
    for one in result.answer.classes:
        assert tags[f"CLASS_{one.id}"] == one.name
        assert one.color is not None
        assert colours[one.id][:3] == tuple(bytes.fromhex(one.color[1:]))


def test_file_is_tiled_compressed_and_clean(
    result: MapResult, scene: str, caplog: pytest.LogCaptureFixture
) -> None:
    with warnings.catch_warnings():
        # That a scene has no georeference is no fault of the map.
        category = "default" if scene == "forest_fields" else "error"
        warnings.simplefilter(category)
        caplog.set_level(logging.DEBUG, "rasterio")
        with rasterio.open(io.BytesIO(result.data)) as dataset:
            dataset.read()
            assert dataset.profile["tiled"]
            assert dataset.profile["compress"] == "deflate"
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


def test_answer_says_what_was_done(result: MapResult) -> None:
    effective = result.answer.effective
    assert effective.indices == [0, 1, 2, 3]
    assert effective.bands == ["BLUE", "GREEN", "RED", "NIR"]
    # One file names its bands, the other only counts them.
    assert effective.bands_by == ("names" if effective.file_bands[3] == "NIR_BROAD" else "order")
    assert effective.windows > 1
    assert result.answer.request_id


def test_bands_in_another_order(client: RasterClient, maps: dict[str, MapResult]) -> None:
    with rasterio.open(SCENES["town"]) as dataset:
        profile, pixels = dataset.profile, dataset.read()
    with rasterio.MemoryFile() as memory:
        with memory.open(**profile) as target:
            target.write(pixels[[3, 1, 0, 2]])
        shuffled = memory.read()
    result = client.map(shuffled, indices=[2, 1, 3, 0])
    assert result.answer.effective.bands_by == "indices"
    with rasterio.open(io.BytesIO(result.data)) as dataset:
        ids = dataset.read(1)
    straight = maps.get("town") or client.map(SCENES["town"])
    with rasterio.open(io.BytesIO(straight.data)) as dataset:
        assert (dataset.read(1) == ids).all()


def test_options_reach_the_engine(client: RasterClient, maps: dict[str, MapResult]) -> None:
    """Whatever windows it sees, and whatever is made of them, it is the same scene."""
    straight = maps.get("town") or client.map(SCENES["town"])
    with rasterio.open(io.BytesIO(straight.data)) as dataset:
        ids = dataset.read(1)
    answer = client.map(
        SCENES["town"], product="probabilities", format="cog", augment="flips", tile_size=64,
        blending="gaussian", overlap=24,
    )  # fmt: skip
    with rasterio.open(io.BytesIO(answer.data)) as dataset:
        found = dataset.read()
    valid = ids < 255
    assert np.isnan(found[:, ~valid]).all()
    np.testing.assert_allclose(found[:, valid].sum(axis=0), 1, atol=1e-5)
    assert (found.argmax(axis=0) == ids)[valid].mean() > 0.9
    part = client.map(SCENES["town"], window=[20, 10, 100, 128], confidence=True)
    assert part.confidence is not None
    assert (part.answer.width, part.answer.height) == (100, 128)


def test_the_model_may_be_named(client: RasterClient) -> None:
    with pytest.raises(ServiceError, match="404"):
        client.map(SCENES["town"], model="another")
