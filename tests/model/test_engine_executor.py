"""Where the network runs on a CPU, and what is set before it does."""

import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from vllm_raster_model import engine_executor
from vllm_raster_model.crew import InTurn, OpenMPCrew
from vllm_raster_model.engine_ahead import StepAheadExecutor
from vllm_raster_model.engine_executor import EngineProcessExecutor, crew, use_processor
from vllm_raster_model.threads import BIND, RESERVED, THREADS

from .serving import Serving, engine_config

SPINS = "GOMP_SPINCOUNT"


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (BIND, RESERVED, THREADS, SPINS, "OMP_WAIT_POLICY"):
        # Set first, so that what the tests set is unset again.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(engine_executor, "usable_cores", lambda: (0, 1))
    monkeypatch.setattr(engine_executor, "processor_quota", lambda: None)


def made(backend: Any = "uni", workers: int = 1) -> Any:
    """What is left of a configuration's executor."""
    parallel = SimpleNamespace(world_size_across_dp=workers, distributed_executor_backend=backend)
    use_processor(SimpleNamespace(parallel_config=parallel))
    return parallel.distributed_executor_backend


def test_one_process_with_all_cores() -> None:
    assert made() is EngineProcessExecutor
    assert os.environ[BIND] == "0,1"


def test_keeps_the_process_that_is_asked_for() -> None:
    assert made("mp") == "mp"
    assert os.environ[BIND] == "0,1"


def test_leaves_several_workers_alone() -> None:
    assert made("mp", workers=2) == "mp"
    assert BIND not in os.environ


def test_threads_are_switched_in_a_process_of_its_own_only(
    prithvi: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else they would be left at one in the process of whoever made the engine."""
    assert isinstance(prithvi.build().predictor.crew, OpenMPCrew)
    parallel = prithvi.vllm_config.parallel_config
    monkeypatch.setattr(parallel, "distributed_executor_backend", "uni")
    assert isinstance(prithvi.build().predictor.crew, InTurn)


@pytest.mark.parametrize("said", [True, False, None])
def test_side_by_side_only_what_says_that_it_may(said: bool | None) -> None:
    network = torch.nn.Identity()
    if said is not None:
        network.thread_safe = said
    parallel = SimpleNamespace(distributed_executor_backend=EngineProcessExecutor)
    made = crew(SimpleNamespace(parallel_config=parallel), network)
    assert isinstance(made, OpenMPCrew)
    assert made.side_by_side == (said is True and torch.get_num_threads() in range(2, 9))


def test_leaves_its_maker_s_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    assert made() == "uni"
    assert BIND not in os.environ


def test_vllm_keeps_what_is_chosen(prithvi: Serving) -> None:
    parallel = engine_config(prithvi.checkpoint).parallel_config
    assert parallel.distributed_executor_backend is StepAheadExecutor


@pytest.mark.parametrize(("bound", "wanted"), [([[0]], 1), ([], None)])
def test_computes_on_the_cores_that_vllm_chose(
    monkeypatch: pytest.MonkeyPatch, bound: list[list[int]], wanted: int | None
) -> None:
    done: list[Any] = []
    manager = SimpleNamespace(cpu_lists=bound)
    monkeypatch.setattr(engine_executor, "OMPProcessManager", lambda config: manager)
    monkeypatch.setattr(os, "sched_setaffinity", lambda who, cores: done.append((who, cores)))
    monkeypatch.setattr(torch, "set_num_threads", done.append)
    monkeypatch.setattr(
        engine_executor.UniProcExecutor, "_init_executor", lambda self: done.append("worker")
    )
    executor = EngineProcessExecutor.__new__(EngineProcessExecutor)
    executor.vllm_config = SimpleNamespace()
    executor._init_executor()
    assert done == ["worker"] if wanted is None else [(0, [0]), 1, "worker"]
