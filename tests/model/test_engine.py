"""The seam: vLLM's layers in the place of PyTorch's, and what the engine is told at its start."""

import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.config import set_current_vllm_config

from vllm_raster_model import engine, engine_defaults
from vllm_raster_model.engine import VllmLayers, load_parameter
from vllm_raster_model.engine_defaults import PlainServingDefaults, ServingDefaults
from vllm_raster_model.networks import TorchLayers
from vllm_raster_model.networks.prithvi_dense import PrithviDense
from vllm_raster_model.weights import load_strictly

from .serving import Serving, engine_config, make_ready
from .terratorch import TerraTorchCase
from .test_prithvi_mae import build as build_autoencoder

SWITCH = "VLLM_USE_V2_MODEL_RUNNER"


@pytest.fixture(scope="module")
def case() -> TerraTorchCase:
    return TerraTorchCase.stored("floods_upernet")


def floods(case: TerraTorchCase, serving: Serving) -> PrithviDense:
    """The network of a case, with random weights, built from vLLM's layers."""
    with set_current_vllm_config(serving.vllm_config):
        return case.network(VllmLayers())


def test_layers_have_the_same_names(case: TerraTorchCase, prithvi: Serving) -> None:
    ours = case.network(TorchLayers()).state_dict()
    theirs = floods(case, prithvi).state_dict()
    assert list(theirs) == list(ours)
    assert [w.shape for w in theirs.values()] == [w.shape for w in ours.values()]


@torch.inference_mode()
def test_layers_compute_the_same(case: TerraTorchCase, prithvi: Serving) -> None:
    network = floods(case, prithvi)
    load_strictly(network, case.network_weights.items())
    make_ready(network, prithvi.vllm_config)
    both = network(case.pixels, case.dates, case.places)
    torch.testing.assert_close(both, case.expected, rtol=0, atol=1e-4)
    for i, expected in enumerate(case.expected):
        one = slice(i, i + 1)
        alone = network(case.pixels[one], case.dates[one], case.places[one])
        torch.testing.assert_close(alone[0], expected, rtol=0, atol=1e-4)
    swapped = network(case.pixels, case.dates.flip(0), case.places)
    assert (swapped - case.expected).abs().amax(dim=(1, 2, 3)).min() > 1e-3


@pytest.mark.parametrize("name", ["fcn_three_dates", "patches_of_14", "unet_attention"])
@torch.inference_mode()
def test_layers_compute_the_same_in_other_kinds(name: str, prithvi: Serving) -> None:
    case = TerraTorchCase.variant(name)
    network = floods(case, prithvi)
    load_strictly(network, case.network_weights.items())
    make_ready(network, prithvi.vllm_config)
    found = network(case.pixels, case.dates, case.places)
    torch.testing.assert_close(found, case.expected, rtol=0, atol=1e-4)


@torch.inference_mode()
def test_layers_compute_the_same_in_the_autoencoder(prithvi: Serving) -> None:
    torch.manual_seed(0)
    plain = build_autoencoder({"embed_dim": 160})  # 80 numbers a head, as in the largest Prithvi
    with set_current_vllm_config(prithvi.vllm_config):
        network = build_autoencoder({"embed_dim": 160}, VllmLayers())
    load_strictly(network, plain.state_dict().items())
    make_ready(network, prithvi.vllm_config)
    pixels = torch.randn(2, 3, 2, 8, 12)
    torch.testing.assert_close(network(pixels), plain(pixels), rtol=0, atol=1e-4)


def test_layers_of_one_process(prithvi: Serving) -> None:
    assert VllmLayers().parallel_size == 1


@pytest.mark.parametrize("shape", [(3,), (2, 3), (3, 2, 1), ()])
@pytest.mark.usefixtures("one_process")
def test_parameter_of_another_shape(shape: tuple[int, ...]) -> None:
    parameter = torch.nn.Parameter(torch.zeros(3, 2))
    with pytest.raises(ValueError, match=r"does not fit \(3, 2\)"):
        load_parameter(parameter, torch.ones(shape))
    assert not parameter.any()


@pytest.mark.usefixtures("one_process")
def test_parameter_with_its_own_loader() -> None:
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.weight_loader = lambda own, weight: own.data.copy_(weight * 2)
    load_parameter(parameter, torch.ones(2))
    assert parameter.tolist() == [2, 2]


@pytest.mark.parametrize("dtype", ["auto", "bfloat16", "float16", "float32"])
def test_serves_in_float32_without_caches(prithvi: Serving, dtype: str) -> None:
    config = engine_config(prithvi.checkpoint, dtype=dtype, mm_processor_cache_gb=4)
    assert config.model_config.dtype == torch.float32
    assert config.model_config.multimodal_config.mm_processor_cache_gb == 0


def test_asks_for_no_cache_of_keys_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(on_cpu: bool, given: int | None) -> int | None:
        monkeypatch.setattr(
            engine_defaults, "current_platform", SimpleNamespace(is_cpu=lambda: on_cpu)
        )
        for name in ("use_processor", "work_ahead", "set_budget"):
            monkeypatch.setattr(engine_defaults, name, lambda *_, **__: None)
        cache = SimpleNamespace(kv_cache_memory_bytes=given)
        model = SimpleNamespace(hf_config=None)
        config = SimpleNamespace(cache_config=cache, model_config=model)
        PlainServingDefaults.verify_and_update_config(config)
        return cache.kv_cache_memory_bytes

    assert asked(on_cpu=True, given=None) == 2**20
    assert asked(on_cpu=True, given=7) == 7
    assert asked(on_cpu=False, given=None) is None


@pytest.mark.parametrize(
    ("triton", "before", "after"),
    [(True, None, "0"), (True, "1", "1"), (False, None, None), (False, "1", "1")],
)
def test_asks_for_the_first_runner_where_the_second_would_be_chosen(
    monkeypatch: pytest.MonkeyPatch, triton: bool, before: str | None, after: str | None
) -> None:
    monkeypatch.setattr(engine_defaults, "HAS_TRITON", triton)
    monkeypatch.setenv(SWITCH, before or "")
    if before is None:
        monkeypatch.delenv(SWITCH)
    PlainServingDefaults.verify_and_update_model_config(plain_model_config())
    assert os.environ.get(SWITCH) == after


def plain_model_config(**changes: Any) -> Any:
    usual = {
        "dtype": torch.float32,
        "multimodal_config": None,
        "enforce_eager": True,
        "skip_tokenizer_init": False,
        "tokenizer_mode": "auto",
    }
    return SimpleNamespace(**usual | changes)


@pytest.mark.parametrize(
    ("skip", "before", "after"),
    [(True, "auto", "terratorch"), (True, "hf", "hf"), (False, "auto", "auto")],
)
def test_renders_without_a_tokenizer_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch, skip: bool, before: str, after: str
) -> None:
    monkeypatch.setattr(engine_defaults, "HAS_TRITON", False)
    config = plain_model_config(skip_tokenizer_init=skip, tokenizer_mode=before)
    PlainServingDefaults.verify_and_update_model_config(config)
    assert config.tokenizer_mode == after


@pytest.mark.parametrize(("cpu", "eager"), [(True, True), (False, False)])
def test_compiles_nothing_on_a_cpu(monkeypatch: pytest.MonkeyPatch, cpu: bool, eager: bool) -> None:
    monkeypatch.setattr(engine_defaults, "current_platform", SimpleNamespace(is_cpu=lambda: cpu))
    config = SimpleNamespace(dtype=torch.float32, multimodal_config=None, enforce_eager=False)
    ServingDefaults.verify_and_update_model_config(config)
    assert config.enforce_eager is eager


def test_configuration_is_the_checkpoint_s(prithvi: Serving) -> None:
    found = engine.configuration(prithvi.vllm_config)
    assert found.to_dict() == prithvi.config.to_dict()
    assert found.contract.tile.size == 32


def test_names_what_it_hands_on() -> None:
    assert not [name for name in engine.__all__ if not hasattr(engine, name)]
