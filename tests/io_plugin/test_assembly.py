"""A map made while the maps of its windows come back, of as little as is needed of each."""

import base64
import random
from typing import Any

import numpy as np
import pytest

from vllm_raster_io import assembly
from vllm_raster_io.errors import ServingError, TilingError
from vllm_raster_io.jobs import Job
from vllm_raster_io.mosaics import Mosaic
from vllm_raster_io.tiling import Tiling

from ..factories import make_raster
from .mosaics import WholeMosaic
from .networks import PixelNetwork
from .requesting import mapped, noise, pixels_of, request
from .scenes import Array, make_contract

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

CONTRACT = make_contract(channels=5, overlap=16)
SCENE = make_raster(values=noise(150, 201), nodata=77)
FIELDS: list[dict[str, Any]] = [
    {},
    {"blending": "none"},
    {"augment": "flips_rotations"},
    {"resolution": 7},
    {"confidence": True, "dtype": "uint8"},
    {"product": "probabilities", "dtype": "uint8"},
]


def halves(scores: Array) -> Array:
    return (scores - scores.max(axis=0)).astype(np.float16)


def ids(scores: Array) -> Array:
    return scores.argmax(axis=0)[np.newaxis].astype(np.uint8)


class TestAsked:
    """What is asked of the model is the least that will do."""

    @pytest.mark.parametrize(
        ("fields", "answer"),
        [
            ({}, "rounded"),
            ({"blending": "none"}, "ids"),
            ({"overlap": 0}, "rounded"),  # windows that are moved in overlap
            ({"window": [0, 0, 64, 64]}, "ids"),
            ({"window": [0, 0, 128, 64], "overlap": 0}, "ids"),
            ({"window": [0, 0, 128, 65], "overlap": 0}, "rounded"),
            ({"blending": "none", "augment": "flips"}, "rounded"),
            ({"blending": "none", "resolution": 20}, "rounded"),
            ({"blending": "none", "confidence": True}, "scores"),
            ({"blending": "none", "confidence": True, "dtype": "uint8"}, "rounded"),
            ({"product": "probabilities"}, "scores"),
            ({"product": "probabilities", "dtype": "uint8"}, "rounded"),
            ({"blending": "none", "product": "logits"}, "scores"),
        ],
    )
    def test_of_classes(self, fields: dict[str, Any], answer: str) -> None:
        with Job(request(SCENE, **fields), CONTRACT) as job:
            assert job.asked == ({} if answer == "scores" else {"answer": answer})

    @pytest.mark.parametrize("kind", ["values", "image"])
    def test_of_others(self, kind: str) -> None:
        with Job(request(SCENE, blending="none"), make_contract(kind, channels=3)) as job:
            assert job.asked == {}


class TestTaken:
    """What comes is told by its type: whether or not the model knows what it was asked for."""

    @pytest.mark.parametrize("fields", FIELDS, ids=str)
    def test_scores(self, fields: dict[str, Any]) -> None:
        expected = mapped(SCENE, CONTRACT, **fields)
        assert answered(lambda scores: scores, **fields) == expected

    @pytest.mark.parametrize("fields", FIELDS, ids=str)
    def test_halves(self, fields: dict[str, Any]) -> None:
        expected = pixels_of(mapped(SCENE, CONTRACT, **fields)).astype(int)
        found = pixels_of(answered(halves, **fields))
        if "product" in fields:
            assert np.abs(found - expected).max() <= 1
            return
        # But where the best two scores are as good as equal, as between pixels of other sizes.
        shared = {name: one for name, one in fields.items() if name in ("augment", "resolution")}
        scores = np.sort(pixels_of(mapped(SCENE, CONTRACT, product="logits", **shared)), axis=0)
        clear = scores[-1] - scores[-2] > 2**-6
        np.testing.assert_array_equal(found[0][clear], expected[0][clear])
        assert clear.mean() > 0.7

    @pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32"])
    def test_ids(self, dtype: str) -> None:
        expected = mapped(SCENE, CONTRACT, blending="none")
        assert answered(lambda one: ids(one).astype(dtype), blending="none") == expected

    def test_ids_of_windows_that_touch(self) -> None:
        fields: dict[str, Any] = {"window": [0, 0, 192, 128], "overlap": 0}
        assert answered(ids, **fields) == mapped(SCENE, CONTRACT, **fields)

    def test_no_ids_where_scores_are_needed(self) -> None:
        with pytest.raises(ServingError, match="class ids came, but scores are needed"):
            answered(ids)

    def test_scores_of_another_checkpoint(self) -> None:
        with pytest.raises(ServingError, match="has 4 channels, but the checkpoint 5"):
            answered(lambda scores: scores[:4], blending="none")


class TestOrder:
    @pytest.mark.parametrize("fields", FIELDS, ids=str)
    def test_does_not_matter(self, fields: dict[str, Any]) -> None:
        expected = mapped(SCENE, CONTRACT, **fields)
        with Job(request(SCENE, **fields), CONTRACT) as job:
            maps = list(enumerate(map(PixelNetwork(CONTRACT), job.items())))
            random.Random(0).shuffle(maps)
            for i, one in maps:
                job.feed(i, one)
            assert job.answer([None] * len(maps), None) == expected

    def test_each_window_comes_once(self) -> None:
        with Job(request(SCENE), CONTRACT) as job:
            first, *_ = map(PixelNetwork(CONTRACT), job.items())
            job.feed(0, first)
            with pytest.raises(ServingError, match="fed before"):
                job.feed(0, first)


class TestMemory:
    def test_of_scores_is_that_of_a_row_of_windows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[Mosaic] = []

        class Seen(Mosaic):
            def __init__(self, *args: Any) -> None:
                super().__init__(*args)
                made.append(self)

        monkeypatch.setattr(assembly, "Mosaic", Seen)
        mapped(SCENE, CONTRACT)
        assert made[0]._strip.nbytes == 5 * 64 * 201 * 4
        assert not made[0]._waiting
        mapped(SCENE, CONTRACT, blending="none")
        assert made[1]._strip.nbytes == 64 * 201

    def test_the_scene_is_closed_before_the_map_is_written(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told: list[bool] = []
        with Job(request(SCENE), CONTRACT) as job:
            upload = job.plan.series._files[0]
            write = type(job.plan.encoding).write

            def watched(*args: Any) -> Any:
                told.append(upload.memory.exists())
                return write(*args)

            monkeypatch.setattr(type(job.plan.encoding), "write", watched)
            job.answer(map(PixelNetwork(CONTRACT), job.items()), None)
        assert told == [False]


class TestIntegers:
    def test_are_laid_as_they_are(self) -> None:
        tiling = Tiling(70, 50, 32, 6)
        scene = np.random.default_rng(0).integers(0, 255, (1, 70, 50)).astype(np.uint8)
        mosaic = WholeMosaic(tiling, 1, 1, "none", np.uint8)
        for window in tiling.windows():
            mosaic.feed(window, scene[:, *window.slices])
        assert mosaic.data().dtype == np.uint8
        np.testing.assert_array_equal(mosaic.data(), scene)

    def test_of_a_window_that_is_missing(self) -> None:
        mosaic = WholeMosaic(Tiling(4, 8, 4, 0), 1, 1, "none", np.uint8)
        with pytest.raises(TilingError, match="2 of 2 windows were not fed"):
            mosaic.end()


def answered(change: Any, **fields: Any) -> Any:
    """As `mapped`, with what the network gives changed."""
    with Job(request(SCENE, **fields), CONTRACT) as job:
        network = PixelNetwork(CONTRACT)
        return job.answer((change(network(item)) for item in job.items()), None)


def test_base64_is_of_the_file() -> None:
    answer = mapped(SCENE, CONTRACT)
    assert base64.b64decode(answer.data)[:2] == b"II"
