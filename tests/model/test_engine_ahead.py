"""Windows that are computed while the engine ends the step before."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.config import VllmConfig

from vllm_raster_model import engine_ahead, engine_executor
from vllm_raster_model.crew import FEW_THREADS, OpenMPCrew
from vllm_raster_model.engine_ahead import StepAheadExecutor, windows_of, work_ahead
from vllm_raster_model.engine_executor import EngineProcessExecutor
from vllm_raster_model.threads import BIND

from .items import EVERYWHERE, mask, window
from .serving import Serving


@pytest.mark.parametrize(
    ("cores", "backend", "ahead"),
    [
        (2, EngineProcessExecutor, True),
        (FEW_THREADS, EngineProcessExecutor, True),
        (FEW_THREADS + 1, EngineProcessExecutor, False),
        (2, "mp", False),
    ],
)
def test_few_threads_of_the_engine_s_process_work_ahead(
    monkeypatch: pytest.MonkeyPatch, cores: int, backend: Any, ahead: bool
) -> None:
    monkeypatch.setattr(engine_ahead, "usable_cores", lambda: tuple(range(cores)))
    monkeypatch.setattr(engine_ahead, "processor_quota", lambda: None)
    monkeypatch.setenv(BIND, ",".join(map(str, range(cores))))
    budgets: list[tuple[Any, ...]] = []
    monkeypatch.setattr(engine_ahead, "set_budget", lambda *given: budgets.append(given))
    parallel = SimpleNamespace(distributed_executor_backend=backend)
    config: Any = SimpleNamespace(parallel_config=parallel)
    work_ahead(config)
    assert (parallel.distributed_executor_backend is StepAheadExecutor) == ahead
    assert budgets == [(config, cores, 2) if ahead else (config, 1)]


class Steps:
    """A worker that notes what it is asked for."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.worker = SimpleNamespace(get_model=lambda: SimpleNamespace(predictor=self))

    def begin(self, windows: Any) -> None:
        self.done.append(("begin", windows))

    def execute_model(self, step: Any) -> Any:
        self.done.append(("take", step))
        if step == "bad":
            raise ValueError("a bad step")
        return f"maps of {step}"


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = StepAheadExecutor.__new__(StepAheadExecutor)
    made.driver_worker = Steps()
    monkeypatch.setattr(engine_ahead, "windows_of", lambda step: f"windows of {step}")
    return made


def test_a_step_is_taken_when_its_result_is_asked_for(executor: Any) -> None:
    first, second = (executor.execute_model(one, non_block=True) for one in ("one", "two"))
    assert isinstance(first, Future)
    done = executor.driver_worker.done
    assert done == [("begin", "windows of one"), ("begin", "windows of two")]
    assert [first.result(), second.result(), first.result()] == [
        *("maps of one", "maps of two", "maps of one")
    ]
    assert done[2:] == [("take", "one"), ("take", "two")]


def test_a_failure_is_told_when_the_result_is_asked_for(executor: Any) -> None:
    step = executor.execute_model("bad", non_block=True)
    for _ in range(2):
        with pytest.raises(ValueError, match="a bad step"):
            step.result()
    assert executor.driver_worker.done == [("begin", "windows of bad"), ("take", "bad")]


def test_a_trial_step_is_taken_at_once(executor: Any) -> None:
    assert executor.execute_model("one") == "maps of one"


def test_the_engine_has_two_steps_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VllmConfig, "max_concurrent_batches", 1)
    monkeypatch.setattr(engine_executor.EngineProcessExecutor, "_init_executor", lambda self: None)
    StepAheadExecutor.__new__(StepAheadExecutor)._init_executor()
    assert VllmConfig.__new__(VllmConfig).max_concurrent_batches == 2


SIZES = [(32, 32), (24, 32), (32, 32), (7, 11), (32, 32)]


def chosen(prithvi: Serving, items: list[Any]) -> Any:
    """What the engine's scheduler says of a step with a window each."""
    prepared = [prithvi.prepare("<image>", one) for one in items]
    requests = [
        SimpleNamespace(
            req_id=str(i), mm_features=[SimpleNamespace(data=one["mm_kwargs"]["image"][0])]
        )
        for i, one in enumerate(prepared)
    ]
    step = SimpleNamespace(
        scheduled_new_reqs=requests,
        scheduled_encoder_inputs={one.req_id: [0] for one in requests},
    )
    return prepared, step


@pytest.fixture
def crew(prithvi: Serving, monkeypatch: pytest.MonkeyPatch) -> OpenMPCrew:
    """Two threads that compute the windows of the model."""
    made = OpenMPCrew(2, side_by_side=True)
    monkeypatch.setattr(prithvi.model.predictor, "crew", made)
    return made


@pytest.mark.parametrize("side_by_side", [True, False])
def test_begun_or_not_it_does_not_show(
    prithvi: Serving, crew: OpenMPCrew, side_by_side: bool
) -> None:
    items = [window(*size, seed=i) for i, size in enumerate(SIZES * 3)]
    items[1].update(EVERYWHERE)
    items[2]["valid"] = mask(32, 32)
    prepared, step = chosen(prithvi, items)
    expected = [prithvi.encode([one])[0] for one in prepared]
    crew.side_by_side = side_by_side
    predictor, computed = prithvi.model.predictor, []
    hook = predictor.network.register_forward_pre_hook(lambda _, given: computed.append(given[0]))
    for _ in range(3):
        computed.clear()
        predictor.begin(windows_of(step))
        assert bool(predictor._begun) == side_by_side
        for found, wanted in zip(prithvi.encode(prepared), expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        assert sum(map(len, computed)) == len(items)
        assert not predictor._begun
        assert not predictor._begun_before
    hook.remove()


@pytest.mark.usefixtures("crew")
def test_what_nobody_asks_for_is_let_go(prithvi: Serving) -> None:
    _, step = chosen(prithvi, [window(32, 32), window(24, 32)])
    predictor = prithvi.model.predictor
    predictor.begin(windows_of(step))
    predictor.begin([])
    assert len(predictor._begun_before) == 2
    predictor.begin([])
    assert not predictor._begun
    assert not predictor._begun_before


def test_only_what_is_chosen_is_begun(prithvi: Serving) -> None:
    _, step = chosen(prithvi, [window(32, 32), window(24, 32)])
    del step.scheduled_encoder_inputs["0"]
    step.scheduled_new_reqs.append(SimpleNamespace(req_id="2", mm_features=[]))
    (found,) = windows_of(step)
    assert [tuple(one.shape) for one in found[:1]] == [(3, 1, 24, 32)]
