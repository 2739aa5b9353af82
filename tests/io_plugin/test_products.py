"""What is made of scores, by value."""

import numpy as np
import pytest
import torch

from vllm_raster_io import strips
from vllm_raster_io.contract import BandContract, ClassContract, OutputContract
from vllm_raster_io.maps import RasterMap
from vllm_raster_io.products import (
    MapMaker,
    class_counts,
    class_dtype,
    class_ids,
    confidence_maker,
    map_maker,
)
from vllm_raster_io.resampling import Taps, resampled
from vllm_raster_io.strips import Strips

from .geotiffs import band_output, class_output

INVALID = np.array([[0, 0, 1], [0, 0, 0]], bool)
NONE = np.zeros((2, 3), bool)


@pytest.fixture(params=[2**20, 9])
def _strips(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once, and row by row."""
    monkeypatch.setattr(strips, "STRIP_VALUES", request.param)


pytestmark = pytest.mark.usefixtures("_strips")


@pytest.mark.parametrize(
    ("classes", "dtype"),
    [
        (1, "uint8"),
        (2, "uint8"),
        (255, "uint8"),
        (256, "uint16"),
        (300, "uint16"),
        (65_535, "uint16"),
        (65_536, "uint32"),
    ],
)
def test_the_smallest_type_with_a_value_to_spare(classes: int, dtype: str) -> None:
    assert class_dtype(classes) == np.dtype(dtype)


class TestClasses:
    def test_the_greatest_score_and_the_first_of_equal_ones(self) -> None:
        scores = np.array(
            [[[3, 0, 0], [0, 1, -5]], [[1, 2, 9], [0, 1, -4]], [[0, 2, 0], [7, 1, -9]]], np.float32
        )
        raster = made("classes", scores, INVALID, class_output(3))
        assert raster.pixels.tolist() == [[[0, 1, 255], [2, 0, 1]]]
        assert (raster.pixels.dtype, raster.nodata) == (np.uint8, 255)
        assert class_counts(raster, 3) == [2, 2, 1]

    @pytest.mark.parametrize("count", [255, 256, 300])
    def test_nodata_is_no_class(self, count: int) -> None:
        scores = np.zeros((count, 2, 3), np.float32)
        scores[count - 1] = 1
        raster = made("classes", scores, INVALID, class_output(count))
        assert raster.nodata >= count
        assert raster.nodata == np.iinfo(raster.pixels.dtype).max
        np.testing.assert_array_equal(raster.pixels[0] == raster.nodata, INVALID)
        assert class_counts(raster, count)[-1] == 5

    @pytest.mark.parametrize("count", [1, 2, 8, 9, 255, 300])
    def test_how_often_each_stands_there(self, count: int) -> None:
        dtype = class_dtype(count)
        ids = np.random.default_rng(count).integers(0, count, (1, 150, 40)).astype(dtype)
        ids[0, 100:120, 3:] = np.iinfo(dtype).max
        counts = class_counts(RasterMap(ids, int(np.iinfo(dtype).max)), count)
        assert counts == np.bincount(ids.ravel(), minlength=count)[:count].tolist()

    def test_names_and_colours(self) -> None:
        classes = (ClassContract(name="water", color="#2060c0"), ClassContract(name="land"))
        output = OutputContract(kind="classes", classes=classes)
        raster = made("classes", noise(2), NONE, output)
        assert raster.colours == ((0x20, 0x60, 0xC0), (128, 128, 128))
        assert raster.tags == ({"CLASS_0": "water", "CLASS_1": "land"},)
        assert raster.names == ("class",)


class TestProbabilities:
    def test_are_the_softmax(self) -> None:
        scores = noise(5) * 20
        expected = softmax(scores)
        raster = made("probabilities", scores, INVALID, class_output(5))
        assert raster.pixels.dtype == np.float32
        np.testing.assert_allclose(raster.pixels[:, ~INVALID], expected[:, ~INVALID], rtol=2e-6)
        assert np.isnan(raster.pixels[:, INVALID]).all()
        assert raster.names == ("class 0", "class 1", "class 2", "class 3", "class 4")
        assert raster.scale is None

    def test_great_scores_do_not_overflow(self) -> None:
        scores = np.array([1e30, -1e30, 1e30], np.float32).reshape(3, 1, 1)
        raster = made("probabilities", scores, np.zeros((1, 1), bool), class_output(3))
        assert raster.pixels.ravel().tolist() == [0.5, 0, 0.5]

    def test_in_bytes_each_is_the_nearest_step(self) -> None:
        scores = noise(4) * 9
        expected = softmax(scores)
        raster = made("probabilities", scores, INVALID, class_output(4), "uint8")
        assert (raster.pixels.dtype, raster.nodata, raster.scale) == (np.uint8, 255, 1 / 254)
        told = raster.pixels[:, ~INVALID] * (1 / 254)
        np.testing.assert_allclose(told, expected[:, ~INVALID], rtol=0, atol=0.5001 / 254)
        assert (raster.pixels[:, INVALID] == 255).all()

    def test_in_bytes_certainty_is_no_nodata(self) -> None:
        scores = np.zeros((2, 2, 3), np.float32)
        scores[1] = 1e9
        raster = made("probabilities", scores, NONE, class_output(2), "uint8")
        assert np.unique(raster.pixels[0]).tolist() == [0]
        assert np.unique(raster.pixels[1]).tolist() == [254]

    def test_confidence_is_the_greatest(self) -> None:
        scores = noise(5)
        before = scores.copy()
        for dtype in ("float32", "uint8"):
            raster = finished(confidence_maker(INVALID.shape, dtype), scores, INVALID)
            expected = softmax(scores).max(axis=0)[~INVALID]
            np.testing.assert_allclose(
                raster.pixels[0][~INVALID] * (raster.scale or 1), expected, rtol=0, atol=0.002
            )
        np.testing.assert_array_equal(scores, before)


class TestValues:
    @pytest.mark.parametrize("product", ["values", "image", "logits"])
    def test_are_as_they_are(self, product: str) -> None:
        scores = np.array([[[70_000, 0.25, 1], [-1e-30, 16_777_217, 3.4e38]]], np.float32)
        expected = scores.copy()
        output = class_output(1) if product == "logits" else band_output("a")
        raster = made(product, scores, INVALID, output)
        assert raster.pixels.dtype == np.float32
        np.testing.assert_array_equal(raster.pixels[:, ~INVALID], expected[:, ~INVALID])
        assert np.isnan(raster.pixels[:, INVALID]).all()
        assert raster.names == (("class 0",) if product == "logits" else ("a",))

    def test_units(self) -> None:
        bands = (BandContract(name="biomass", unit="Mg/ha"), BandContract(name="height"))
        output = OutputContract(kind="values", bands=bands)
        raster = made("values", noise(2), NONE, output)
        assert raster.names == ("biomass", "height")
        assert raster.units == ("Mg/ha", "")


class TestIds:
    @pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32"])
    def test_that_came_as_such_stay(self, dtype: str) -> None:
        ids = np.array([[[0, 2, 1], [1, 1, 0]]], dtype)
        raster = made("classes", ids, INVALID, class_output(3))
        assert raster.pixels.tolist() == [[[0, 2, 255], [1, 1, 0]]]
        assert raster.pixels.dtype == np.uint8

    @pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, -0.0])
    def test_are_those_of_argmax(self, odd: float) -> None:
        scores = noise(7).round()
        scores[np.random.default_rng(0).random(scores.shape) < 0.3] = odd
        np.testing.assert_array_equal(class_ids(scores, np.uint8)[0], scores.argmax(axis=0))


def test_the_map_is_handed_over() -> None:
    maker = map_maker("classes", (2, 3), class_output(2))
    raster = finished(maker, noise(2), NONE)
    assert maker._pixels is None
    assert raster.pixels.shape == (1, 2, 3)


class TestOtherPixels:
    @pytest.mark.parametrize("at_once", [1, 3, 100])
    @pytest.mark.parametrize("ratio", [0.37, 0.5, 1.0, 1.7, 4.0])
    def test_come_back_as_if_at_once(self, ratio: float, at_once: int) -> None:
        height, width = 23, 17
        rows, columns = (int(np.ceil(one / ratio - 1e-6)) for one in (height, width))
        back = Taps.between(rows, ratio, height, 1.0), Taps.between(columns, ratio, width, 1.0)
        scores = np.random.default_rng(3).normal(size=(2, rows, columns)).astype(np.float32)
        expected = resampled(scores, *back)
        maker = map_maker("logits", (height, width), class_output(2))
        strip = Strips([maker], width, back)
        for first in range(0, rows, at_once):
            part = scores[:, first : first + at_once].copy()
            strip.take(first, part)
            part.fill(np.nan)  # it is not kept
        found = maker.finish(np.zeros((height, width), bool)).pixels
        np.testing.assert_array_equal(found, expected)

    def test_before_the_class_is_taken(self) -> None:
        # Two pixels of the network's to four of the map's.
        scores = np.array([[[4.0, 0.0]], [[1.0, 5.0]]], np.float32)
        back = (Taps.between(1, 1.0, 1, 1.0), Taps.between(2, 2.0, 4, 1.0))
        valid = np.zeros((1, 4), bool)
        first, second = [4, 3, 1, 0], [1, 2, 4, 5]
        logits = made("logits", scores, valid, class_output(2), back=back)
        np.testing.assert_allclose(logits.pixels, [[first], [second]])
        classes = made("classes", scores, valid, class_output(2), back=back)
        assert classes.pixels.tolist() == [[[0, 0, 1, 1]]]


def made(
    product: str,
    scores: np.ndarray,
    invalid: np.ndarray,
    output: OutputContract,
    dtype: str = "float32",
    back: tuple[Taps, Taps] | None = None,
) -> RasterMap:
    return finished(map_maker(product, invalid.shape, output, dtype), scores, invalid, back)


def finished(
    maker: MapMaker,
    scores: np.ndarray,
    invalid: np.ndarray,
    back: tuple[Taps, Taps] | None = None,
) -> RasterMap:
    Strips([maker], invalid.shape[1], back).take(0, scores)
    return maker.finish(invalid)


def softmax(scores: np.ndarray) -> np.ndarray:
    return torch.softmax(torch.from_numpy(scores).double(), dim=0).numpy()


def noise(channels: int) -> np.ndarray:
    return np.random.default_rng(channels).normal(size=(channels, 2, 3)).astype(np.float32)
