"""Pixels of another size, against a matrix of how much each old one covers of each new one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_raster_io.resampling import Taps, resampled, resampled_where_valid

quick = settings(derandomize=True, deadline=None, max_examples=100)


def dense(old: int, new: int, ratio: float) -> np.ndarray:
    """(new, old): covered lengths, or nearness to the middles of the nearest two."""
    matrix = np.zeros((new, old))
    for i in range(new):
        if ratio > 1:
            for j in range(old):
                matrix[i, j] = max(0.0, min(j + 1, (i + 1) * ratio) - max(j, i * ratio))
        else:
            middle = (i + 0.5) * ratio - 0.5
            first = int(np.floor(middle))
            matrix[i, min(max(first, 0), old - 1)] += first + 1 - middle
            matrix[i, min(max(first + 1, 0), old - 1)] += middle - first
    return matrix / matrix.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("ratio", [1, 2, 3, 1.5, 2.7, 0.5, 0.3, 1 / 16, 7.25])
@pytest.mark.parametrize("old", [1, 5, 30])
def test_against_a_matrix(ratio: float, old: int) -> None:
    new = max(1, int(np.ceil(old / ratio - 1e-6)))
    values = np.random.default_rng(old).normal(size=(2, old, old))
    taps = Taps.between(old, 1.0, new, ratio)
    matrix = dense(old, new, ratio)
    expected = np.einsum("ia,jb,cab->cij", matrix, matrix, values)
    np.testing.assert_allclose(resampled(values, taps, taps), expected, rtol=1e-12, atol=1e-12)


@quick
@given(
    st.integers(1, 40),
    st.floats(1 / 16, 32),
    st.floats(-1e6, 1e6, width=32),
    st.sampled_from([np.float32, np.float64]),
)
def test_a_constant_stays_one(old: int, ratio: float, value: float, dtype: type) -> None:
    new = max(1, int(np.ceil(old / ratio - 1e-6)))
    there, back = Taps.between(old, 1.0, new, ratio), Taps.between(new, ratio, old, 1.0)
    whole = np.full((1, old, old), value, dtype)
    seen = resampled(whole, there, there)
    np.testing.assert_array_equal(seen, np.full((1, new, new), value, dtype))
    np.testing.assert_array_equal(resampled(seen, back, back), whole)


@pytest.mark.parametrize("ratio", [2, 2.5, 0.4, 1])
def test_parts_are_those_of_the_whole(ratio: float) -> None:
    values = np.random.default_rng(0).normal(size=(1, 20, 20))
    new = int(np.ceil(20 / ratio))
    taps = Taps.between(20, 1.0, new, ratio)
    whole = resampled(values, taps, taps)
    for begin, end in [(0, 1), (0, new), (2, 5), (new - 1, new)]:
        part, used = taps.part(begin, end)
        np.testing.assert_array_equal(resampled(values[:, used], part, taps), whole[:, begin:end])


@pytest.mark.parametrize("ratio", [2, 3.5, 0.4])
def test_of_invalid_pixels_nothing_is_taken(ratio: float) -> None:
    chance = np.random.default_rng(0)
    values, valid = chance.normal(size=(2, 21, 21)), chance.random((21, 21)) < 0.5
    values[:, ~valid] = 1e9
    new = int(np.ceil(21 / ratio))
    taps = Taps.between(21, 1.0, new, ratio)
    matrix = dense(21, new, ratio)
    weights = np.einsum("ia,jb,ab->ij", matrix, matrix, valid.astype(float))
    sums = np.einsum("ia,jb,cab->cij", matrix, matrix, np.where(valid, values, 0))
    found, known = resampled_where_valid(values, valid, taps, taps)
    np.testing.assert_array_equal(known, weights > 1e-12)
    np.testing.assert_allclose(found[:, known], sums[:, known] / weights[known], rtol=1e-9)
    assert not found[:, ~known].any()
