"""What a file's numbers stand for."""

from typing import Any

import numpy as np
import pytest

from vllm_raster_io.contract import InputContract
from vllm_raster_io.errors import RequestError
from vllm_raster_io.requests import RasterRequest
from vllm_raster_io.units import Units

COUNTS = InputContract(bands=("A", "B"), scale=0.0001)
SHIFTED = InputContract(bands=("A", "B"), scale=0.0001, offset=-0.1)


def units(contract: InputContract = COUNTS, **fields: Any) -> Units | None:
    return Units.of(RasterRequest(data="", **fields), contract)


def test_without_a_word_they_are_the_checkpoints() -> None:
    assert units() is None
    assert units(scale=0.0001) is None
    assert units(scale=[0.0001, 0.0001], offset=0) is None
    assert units(SHIFTED, scale=0.0001, offset=-0.1) is None


@pytest.mark.parametrize("frames", [(), (3,)])
def test_reflectances_become_counts(frames: tuple[int, ...]) -> None:
    found = units(SHIFTED, scale=[1, 0.5], offset=[0, 0.01])
    assert found is not None
    values = np.random.default_rng(0).random((2, *frames, 4, 5)).astype(np.float32)
    expected = np.stack([(values[0] + 0.1) * 10_000, (values[1] * 0.5 + 0.01 + 0.1) * 10_000])
    np.testing.assert_allclose(found.apply(values), expected, rtol=1e-6)
    assert found.apply(values).dtype == np.float32


def test_what_is_too_large_is_infinite() -> None:
    found = units(scale=1e30)
    assert found is not None
    assert np.isinf(found.apply(np.array([[[60_000]], [[1]]], np.uint16))[0]).all()


@pytest.mark.parametrize(
    ("contract", "fields", "told"),
    [
        (COUNTS, {"scale": 0}, "`scale` must not be 0"),
        (COUNTS, {"scale": [1, 2, 3]}, "one for each of 2 bands (A, B), got 3"),
        (COUNTS, {"offset": [1]}, "`offset` must be one number, or one for each of 2 bands"),
        (SHIFTED, {"scale": 1}, "`scale` needs `offset` beside it"),
    ],
)
def test_refused(contract: InputContract, fields: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError) as caught:
        units(contract, **fields)
    assert told in str(caught.value)
