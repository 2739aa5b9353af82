"""What the package shows of itself."""

import pytest

import vllm_raster_model
from vllm_raster_model.errors import RasterModelError

NAMES = [
    "ContractError",
    "EngineVersionError",
    "ImageItemError",
    "InstructedRasterConfig",
    "InstructedRasterForImageToImage",
    "RasterConfig",
    "RasterContract",
    "RasterForImageToImage",
    "RasterModelError",
    "RasterProcessor",
    "WeightsError",
    "minimal_tokenizer",
    "register",
    "with_words",
    "word_tokenizer",
]


def test_names() -> None:
    assert vllm_raster_model.__all__ == dir(vllm_raster_model) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_name_resolves(name: str) -> None:
    found = getattr(vllm_raster_model, name)
    assert found.__name__ == name
    assert found.__module__.startswith("vllm_raster_model.")
    assert found.__doc__


def test_no_other_name_does() -> None:
    with pytest.raises(AttributeError, match="'vllm_raster_model' has no attribute 'Raster'"):
        _ = vllm_raster_model.Raster


@pytest.mark.parametrize("name", ["ContractError", "ImageItemError", "WeightsError"])
def test_one_family_of_errors(name: str) -> None:
    error = getattr(vllm_raster_model, name)
    # vLLM answers a ValueError with 400.
    assert issubclass(error, RasterModelError)
    assert issubclass(error, ValueError)
