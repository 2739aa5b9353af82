"""What is made of scores, by value."""

import numpy as np
import pytest
import torch

from vllm_raster_io import products
from vllm_raster_io.contract import BandContract, ClassContract, OutputContract
from vllm_raster_io.products import (
    ScoreField,
    class_counts,
    class_dtype,
    confidence_map,
    make_product,
)
from vllm_raster_io.resampling import Taps

from .geotiffs import band_output, class_output

INVALID = np.array([[0, 0, 1], [0, 0, 0]], bool)
NONE = np.zeros((2, 3), bool)


@pytest.fixture(params=[2**20, 9])
def _strips(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once, and row by row."""
    monkeypatch.setattr(products, "_STRIP_VALUES", request.param)


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
        raster = make_product("classes", ScoreField(scores, INVALID), class_output(3))
        assert raster.pixels.tolist() == [[[0, 1, 255], [2, 0, 1]]]
        assert (raster.pixels.dtype, raster.nodata) == (np.uint8, 255)
        assert class_counts(raster, 3) == [2, 2, 1]

    @pytest.mark.parametrize("count", [255, 256, 300])
    def test_nodata_is_no_class(self, count: int) -> None:
        scores = np.zeros((count, 2, 3), np.float32)
        scores[count - 1] = 1
        raster = make_product("classes", ScoreField(scores, INVALID), class_output(count))
        assert raster.nodata >= count
        assert raster.nodata == np.iinfo(raster.pixels.dtype).max
        np.testing.assert_array_equal(raster.pixels[0] == raster.nodata, INVALID)
        assert class_counts(raster, count)[-1] == 5

    def test_names_and_colours(self) -> None:
        classes = (ClassContract(name="water", color="#2060c0"), ClassContract(name="land"))
        output = OutputContract(kind="classes", classes=classes)
        raster = make_product("classes", ScoreField(noise(2), NONE), output)
        assert raster.colours == ((0x20, 0x60, 0xC0), (128, 128, 128))
        assert raster.tags == ({"CLASS_0": "water", "CLASS_1": "land"},)
        assert raster.names == ("class",)


class TestProbabilities:
    def test_are_the_softmax(self) -> None:
        scores = noise(5) * 20
        expected = softmax(scores)
        raster = make_product("probabilities", ScoreField(scores, INVALID), class_output(5))
        assert raster.pixels.dtype == np.float32
        np.testing.assert_allclose(raster.pixels[:, ~INVALID], expected[:, ~INVALID], rtol=2e-6)
        assert np.isnan(raster.pixels[:, INVALID]).all()
        assert raster.names == ("class 0", "class 1", "class 2", "class 3", "class 4")
        assert raster.scale is None

    def test_great_scores_do_not_overflow(self) -> None:
        scores = np.array([1e30, -1e30, 1e30], np.float32).reshape(3, 1, 1)
        field = ScoreField(scores, np.zeros((1, 1), bool))
        raster = make_product("probabilities", field, class_output(3))
        assert raster.pixels.ravel().tolist() == [0.5, 0, 0.5]

    def test_in_bytes_each_is_the_nearest_step(self) -> None:
        scores = noise(4) * 9
        expected = softmax(scores)
        field = ScoreField(scores, INVALID)
        raster = make_product("probabilities", field, class_output(4), "uint8")
        assert (raster.pixels.dtype, raster.nodata, raster.scale) == (np.uint8, 255, 1 / 254)
        told = raster.pixels[:, ~INVALID] * (1 / 254)
        np.testing.assert_allclose(told, expected[:, ~INVALID], rtol=0, atol=0.5001 / 254)
        assert (raster.pixels[:, INVALID] == 255).all()

    def test_in_bytes_certainty_is_no_nodata(self) -> None:
        scores = np.zeros((2, 2, 3), np.float32)
        scores[1] = 1e9
        raster = make_product("probabilities", ScoreField(scores, NONE), class_output(2), "uint8")
        assert np.unique(raster.pixels[0]).tolist() == [0]
        assert np.unique(raster.pixels[1]).tolist() == [254]

    def test_confidence_is_the_greatest(self) -> None:
        scores = noise(5)
        before = scores.copy()
        for dtype in ("float32", "uint8"):
            raster = confidence_map(ScoreField(scores, INVALID), dtype)
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
        raster = make_product(product, ScoreField(scores, INVALID), output)
        assert raster.pixels.dtype == np.float32
        np.testing.assert_array_equal(raster.pixels[:, ~INVALID], expected[:, ~INVALID])
        assert np.isnan(raster.pixels[:, INVALID]).all()
        assert raster.names == (("class 0",) if product == "logits" else ("a",))

    def test_units(self) -> None:
        bands = (BandContract(name="biomass", unit="Mg/ha"), BandContract(name="height"))
        output = OutputContract(kind="values", bands=bands)
        raster = make_product("values", ScoreField(noise(2), NONE), output)
        assert raster.names == ("biomass", "height")
        assert raster.units == ("Mg/ha", "")


def test_scores_of_other_pixels_are_brought_back_before_the_class_is_taken() -> None:
    # Two pixels of the network's to four of the map's.
    scores = np.array([[[4.0, 0.0]], [[1.0, 5.0]]], np.float32)
    back = (Taps.between(1, 1.0, 1, 1.0), Taps.between(2, 2.0, 4, 1.0))
    field = ScoreField(scores, np.zeros((1, 4), bool), back)
    first, second = [4, 3, 1, 0], [1, 2, 4, 5]
    logits = make_product("logits", field, class_output(2))
    np.testing.assert_allclose(logits.pixels, [[first], [second]])
    classes = make_product("classes", field, class_output(2))
    assert classes.pixels.tolist() == [[[0, 0, 1, 1]]]


def softmax(scores: np.ndarray) -> np.ndarray:
    return torch.softmax(torch.from_numpy(scores).double(), dim=0).numpy()


def noise(channels: int) -> np.ndarray:
    return np.random.default_rng(channels).normal(size=(channels, 2, 3)).astype(np.float32)
