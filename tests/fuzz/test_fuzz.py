"""A small part of what `make fuzz` does."""

import base64
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vllm_raster_io import plugin
from vllm_raster_io.plugin import RasterIOProcessor
from vllm_raster_io.requests import RasterRequest

from .bombs import bombs, heavy_requests
from .cases import case
from .mutations import spoiled
from .running import run
from .seeds import seeds
from .serving import ANSWERED, LIMITS, outcome, processors

pytestmark = [
    pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning"),
    pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning"),
]

ONE_BAND = 3


@pytest.fixture(scope="module")
def served() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        for name, most in LIMITS.items():
            patch.setenv(f"VLLM_RASTER_MAX_{name}", str(most))
        patch.setattr(plugin, "keep_event_loop_free", lambda: None)
        yield processors()
    plugin.LIMITS.set(plugin.Settings.load({}).limits)


def test_cases_are_made_from_their_numbers() -> None:
    assert case(3, 14) == case(3, 14)
    assert len({repr(case(3, number)) for number in range(100)}) > 95


@pytest.mark.parametrize("name", seeds())
def test_good_files_are_answered(served: list[RasterIOProcessor], name: str) -> None:
    """Or refused for what they hold, so that what is made of them gets further than the head."""
    request = {"data": base64.b64encode(seeds()[name]).decode(), "indices": [0]}
    refused = ("type complex64", "BMP", "GIF", "NumPy texts")
    assert (outcome(served[ONE_BAND], request) == ANSWERED) == (name not in refused)


@pytest.mark.parametrize("name", bombs())
def test_bombs(served: list[RasterIOProcessor], name: str) -> None:
    request = {"data": base64.b64encode(bombs()[name]).decode(), "indices": [0]}
    outcome(served[ONE_BAND], request)


@pytest.mark.parametrize("name", heavy_requests())
def test_heavy_requests(served: list[RasterIOProcessor], name: str) -> None:
    assert outcome(served[ONE_BAND], heavy_requests()[name]) != ANSWERED


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_spoiled_files(served: list[RasterIOProcessor], data: st.DataObject) -> None:
    content = data.draw(st.sampled_from(list(seeds().values())))
    content = spoiled(content, random.Random(data.draw(st.integers(0, 2**32))))
    outcome(served[ONE_BAND], {"data": base64.b64encode(content).decode(), "indices": [0]})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
requests = st.dictionaries(st.sampled_from(list(RasterRequest.model_fields)), json_values)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(requests | json_values, st.booleans())
def test_any_json(served: list[RasterIOProcessor], request: Any, with_file: bool) -> None:
    if with_file and isinstance(request, dict):
        request["data"] = base64.b64encode(seeds()["1 bands"]).decode()
    outcome(served[0], request)


@pytest.mark.engine
def test_in_processes_with_little_memory() -> None:
    result = run(seed=1, count=120, workers=1)
    assert not result.faults
    assert result.outcomes[ANSWERED] > 10
    assert result.outcomes.total() == 120
