"""What happens when vLLM loads the plugin."""

import logging
import sys
from importlib.metadata import entry_points

import pytest
from transformers import AutoConfig
from vllm import ModelRegistry
from vllm.model_executor.models.config import MODELS_CONFIG_MAP

from vllm_raster_model import engine_version
from vllm_raster_model.config import RasterConfig
from vllm_raster_model.registration import ARCHITECTURES, register
from vllm_raster_model.unconverted import PlainOrUnconvertedDefaults

NAME = "RasterForImageToImage"


@pytest.fixture
def unregistered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ModelRegistry.models, NAME, raising=False)
    monkeypatch.delitem(MODELS_CONFIG_MAP, NAME, raising=False)
    monkeypatch.delitem(sys.modules, "vllm_raster_model.plain", raising=False)


@pytest.mark.usefixtures("unregistered")
def test_registers_by_name_only() -> None:
    register()
    assert NAME in ModelRegistry.get_supported_archs()
    lazy = ModelRegistry.models[NAME]
    assert (lazy.module_name, lazy.class_name) == ("vllm_raster_model.plain", NAME)
    assert "vllm_raster_model.plain" not in sys.modules


@pytest.mark.usefixtures("unregistered")
def test_registers_once(caplog: pytest.LogCaptureFixture) -> None:
    register()
    lazy = ModelRegistry.models[NAME]
    logger = logging.getLogger("vllm.model_executor.models.registry")
    logger.addHandler(caplog.handler)
    register()
    logger.removeHandler(caplog.handler)
    assert ModelRegistry.models[NAME] is lazy
    assert not caplog.records
    assert MODELS_CONFIG_MAP[NAME] is PlainOrUnconvertedDefaults


def test_transformers_knows_the_configuration() -> None:
    register()
    assert type(AutoConfig.for_model("raster")) is RasterConfig


def test_class_paths_lead_to_classes() -> None:
    for name, path in ARCHITECTURES.items():
        module, _, attribute = path.partition(":")
        assert name == attribute
        __import__(module)
        assert isinstance(getattr(sys.modules[module], attribute), type)


def test_entry_point() -> None:
    (entry,) = entry_points(group="vllm.general_plugins", name="raster")
    assert entry.value == "vllm_raster_model.registration:register"
    assert entry.load() is register


@pytest.mark.usefixtures("unregistered")
def test_leaves_another_vllm_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engine_version, "version", lambda name: "0.31.0")
    logger = logging.getLogger("vllm.raster.model")
    logger.addHandler(caplog.handler)
    register()
    logger.removeHandler(caplog.handler)
    assert "cannot be served. vLLM 0.31.0 is installed" in caplog.text
    assert "pip install" in caplog.text
    assert NAME not in ModelRegistry.models
