"""The fifth part of the seam: the network begins with a step while the engine ends the one before.

Written for vLLM 0.32; what is changed of vLLM is how many steps an engine has under way.
"""

import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.v1.core.sched.output import SchedulerOutput

from vllm_raster_model.crew import FEW_THREADS
from vllm_raster_model.engine import logger
from vllm_raster_model.engine_budget import set_budget
from vllm_raster_model.engine_executor import EngineProcessExecutor, has_process
from vllm_raster_model.machine import processor_quota, usable_cores
from vllm_raster_model.threads import threads_used

STEPS = 2
"""Under way at once: one whose windows are computed, one whose maps are made ready to go."""


class StepAheadExecutor(EngineProcessExecutor):
    """Has windows computed from when they are chosen for a step, while others become maps.

    Between two steps the engine lays maps out, hands them over and chooses what is next. The
    threads of the network would wait for that, a tenth of the time of a light one.

    It is for a model with a `predictor`, whose windows need nothing of the step before.
    """

    def _init_executor(self) -> None:
        # The engine asks for it next, to choose how it takes its steps; vLLM has two with a
        # scheduler that it does not have on a CPU.
        VllmConfig.max_concurrent_batches = property(lambda _: STEPS)
        super()._init_executor()

    def execute_model(self, scheduler_output: SchedulerOutput, non_block: bool = False) -> Any:
        """Takes a step, or begins with its windows and takes it when its result is asked for."""
        if not non_block:
            return super().execute_model(scheduler_output)
        self.driver_worker.worker.get_model().predictor.begin(windows_of(scheduler_output))
        take = super().execute_model
        return _Later(lambda: take(scheduler_output))


class _Later(Future[Any]):
    """What is done when its result is asked for, which the engine does in the order of steps."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self._work = work

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            try:
                self.set_result(self._work())
            except BaseException as error:
                self.set_exception(error)
        return super().result(timeout)


def windows_of(scheduler_output: SchedulerOutput) -> list[tuple[torch.Tensor, ...]]:
    """The windows that a step computes: of each its pixels, mask, dates and place."""
    chosen = scheduler_output.scheduled_encoder_inputs
    features = [
        request.mm_features[index].data
        for request in scheduler_output.scheduled_new_reqs
        for index in chosen.get(request.req_id, ())
    ]
    windows = []
    for fields in (one.get_data() for one in features if one is not None):
        (pixels,) = fields["pixel_values"]
        others = (fields[name] for name in ("valid", "temporal_coords", "location_coords"))
        windows.append((pixels, *others))
    return windows


def work_ahead(vllm_config: VllmConfig) -> None:
    """Has few threads compute windows side by side, those of a step while the last one ends."""
    threads = threads_used(usable_cores(), processor_quota(), os.environ)
    if threads > FEW_THREADS or not has_process(vllm_config):
        set_budget(vllm_config, 1)
        return
    vllm_config.parallel_config.distributed_executor_backend = StepAheadExecutor
    logger.info("Windows are begun while the step before them ends.")
    set_budget(vllm_config, threads, STEPS)
