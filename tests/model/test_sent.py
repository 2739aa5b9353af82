"""What of a map goes back, against numpy in 64 bits."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from vllm_raster_model.sent import class_ids, rounded, sent

Scores = npt.NDArray[np.float32]

quick = settings(derandomize=True, deadline=None, max_examples=200)
near = st.floats(-16, 16, width=32)
anything = st.floats(width=32)


def maps(values: st.SearchStrategy[float]) -> st.SearchStrategy[Scores]:
    shape = st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(1, 4))
    return shape.flatmap(lambda one: arrays(np.float32, one, elements=values))


def ids_of(scores: npt.ArrayLike) -> npt.NDArray[np.intp]:
    return np.asarray(scores).argmax(axis=0)


def softmax(scores: npt.ArrayLike) -> npt.NDArray[np.float64]:
    scores = np.asarray(scores, np.float64)
    powers = np.exp(scores - scores.max(axis=0))
    return powers / powers.sum(axis=0)


def column(values: Sequence[float]) -> Scores:
    return np.array(values, np.float32).reshape(-1, 1, 1)


class TestIds:
    @quick
    @given(maps(anything))
    @example(column([1, 3, 3]))
    @example(column([np.nan, np.inf]))
    @example(column([0, np.nan, np.inf, np.nan]))
    @example(column([-np.inf, -np.inf]))
    @example(column([-0.0, 0.0]))
    def test_the_greatest_and_the_first_of_equal_ones(self, scores: Scores) -> None:
        found = class_ids(torch.from_numpy(scores)).numpy()
        np.testing.assert_array_equal(found[0], ids_of(scores))

    @pytest.mark.parametrize(
        ("classes", "dtype"),
        [(1, "uint8"), (255, "uint8"), (256, "uint16"), (65_535, "uint16"), (65_536, "int32")],
    )
    def test_the_smallest_type(self, classes: int, dtype: str) -> None:
        scores = torch.zeros(classes, 1, 1)
        scores[-1] = 1
        found = class_ids(scores).numpy()
        assert (found.dtype, found.shape, found.item()) == (dtype, (1, 1, 1), classes - 1)


class TestRounded:
    @quick
    @given(maps(st.one_of(near, anything)))
    @example(column([1, 1, np.nextafter(np.float32(1), np.float32(2))]))
    @example(column([0, -1e-30, -(2.0**-25), -(2.0**-24)]))
    @example(column([0, -1.4e-45]))
    @example(column([-0.0, 0.0]))
    @example(column([0.0, -0.0]))
    @example(column([3e38, -3e38]))
    @example(column([np.inf, 0, np.nan]))
    def test_the_class_of_a_window_is_the_same(self, scores: Scores) -> None:
        found = rounded(torch.from_numpy(scores)).numpy()
        np.testing.assert_array_equal(ids_of(found), ids_of(scores))

    @quick
    @given(maps(near))
    @example(column([16, -16, 15.99]))
    @example(column([1e-30, 0, -1e-30]))
    def test_no_probability_is_off_by_a_step(self, scores: Scores) -> None:
        found = rounded(torch.from_numpy(scores)).numpy()
        assert found.dtype == np.float16
        below = scores.astype(np.float64) - scores.max(axis=0)
        assert np.abs(found - below).max() <= 2**-7 + 2**-18
        assert np.abs(softmax(found) - softmax(scores)).max() < 1 / 255

    @quick
    @given(st.data(), st.integers(2, 5), st.integers(1, 4))
    def test_in_a_mean_of_windows(self, data: st.DataObject, classes: int, windows: int) -> None:
        """However these disagree."""
        shape = (windows, classes, 2, 2)
        scores = data.draw(arrays(np.float32, shape, elements=near))
        weights = data.draw(arrays(np.float64, windows, elements=st.floats(1e-3, 1)))
        weights /= weights.sum()
        found = [rounded(torch.from_numpy(one)).double().numpy() for one in scores]
        mean = np.tensordot(weights, found, axes=1)
        exact = np.tensordot(weights, scores.astype(np.float64), axes=1)
        assert np.abs(softmax(mean) - softmax(exact)).max() < 1 / 255
        for second, first in pairwise(np.sort(exact, axis=0)[-2:]):
            apart = first - second > 2**-6 + 2**-17
            np.testing.assert_array_equal(ids_of(mean)[apart], ids_of(exact)[apart])

    @pytest.mark.parametrize("far", [32.5, 1e9, np.inf, np.nan])
    def test_scores_far_apart_stay_as_they_are(self, far: float) -> None:
        scores = torch.zeros(2, 3, 3)
        scores[1, 2, 2] = far
        assert rounded(scores) is scores

    def test_scores_32_apart_do_not(self) -> None:
        assert rounded(torch.tensor([[[7.0]], [[-25.0]]])).tolist() == [[[0]], [[-32]]]

    def test_what_came_is_left_alone(self) -> None:
        scores = torch.tensor([[[1.0]], [[1.5]]])
        rounded(scores)
        assert scores.flatten().tolist() == [1, 1.5]


@pytest.mark.parametrize("answer", ["scores", None, "ID", 1, ["ids"]])
def test_scores_unless_something_else_is_asked_for(answer: object) -> None:
    scores = torch.zeros(2, 3, 3)
    assert sent(scores, answer) is scores


@pytest.mark.parametrize(("answer", "dtype"), [("ids", "uint8"), ("rounded", "float16")])
def test_what_is_asked_for(answer: str, dtype: str) -> None:
    assert sent(torch.zeros(2, 3, 3), answer).numpy().dtype == dtype
