"""The fourth part of the seam: on a CPU, the network runs in the process of the engine itself.

Written for vLLM 0.32; vLLM's public option to name an executor is what it stands on.
"""

import os

import torch
from torch import nn
from vllm.utils.ompmultiprocessing import OMPProcessManager
from vllm.v1.executor.uniproc_executor import UniProcExecutor

from vllm_raster_model.allocation import keep_memory
from vllm_raster_model.crew import NICENESS, Crew, InTurn, OpenMPCrew
from vllm_raster_model.engine import VllmConfig, logger
from vllm_raster_model.machine import processor_quota, usable_cores
from vllm_raster_model.threads import choose_threads

_PROCESSES = "VLLM_ENABLE_V1_MULTIPROCESSING"


class EngineProcessExecutor(UniProcExecutor):
    """Runs vLLM's CPU worker in the engine's process, on the cores that vLLM chose for it.

    vLLM starts a process for a single worker too, because OpenMP reads its variables before
    anything can be set. Windows then cross one process more, the engine waits for each step in
    a loop that keeps a core busy, and one process more holds all that is imported. PyTorch can be
    told the number of threads at any time, and threads are born on the cores of the one that
    starts them.
    """

    def _init_executor(self) -> None:
        cores = OMPProcessManager(self.vllm_config).cpu_lists
        # None: by VLLM_CPU_OMP_THREADS_BIND=nobind OpenMP's own variables decide.
        if cores:
            os.sched_setaffinity(0, cores[0])
            # The worker that is made now lets nobody change it any more.
            torch.set_num_threads(len(cores[0]))
        if keep_memory():
            logger.info("Memory is kept from one layer to the next.")
        super()._init_executor()
        logger.info("Computing in the engine's process; threads: %d.", torch.get_num_threads())


def has_process(vllm_config: VllmConfig) -> bool:
    """Whether the network has a process of the executor above, whose threads are its alone."""
    backend = vllm_config.parallel_config.distributed_executor_backend
    return isinstance(backend, type) and issubclass(backend, EngineProcessExecutor)


def crew(vllm_config: VllmConfig, network: nn.Module) -> Crew:
    """Who computes: all threads, if a network has a process of the executor above for itself."""
    if not has_process(vllm_config):
        return InTurn()
    thread_safe = getattr(network, "thread_safe", False)
    made = OpenMPCrew(torch.get_num_threads(), side_by_side=thread_safe)
    if made.side_by_side:
        logger.info("Windows are computed side by side, by threads of niceness %d.", NICENESS)
    else:
        logger.info("Windows are computed one after the other, with all threads.")
    return made


def use_processor(vllm_config: VllmConfig) -> None:
    """Has all of a CPU used by an engine of one worker, in as few processes as can be.

    What is set in the environment stays as it is, and so does the process for the worker by
    `--distributed-executor-backend mp`. An engine within the process of whoever made it leaves
    that one's threads alone.
    """
    parallel = vllm_config.parallel_config
    if parallel.world_size_across_dp > 1 or os.environ.get(_PROCESSES, "1") != "1":
        return
    choice = choose_threads(usable_cores(), processor_quota(), os.environ)
    # Read by the process that is started next.
    os.environ.update(choice.variables)
    if choice.variables:
        variables = " ".join(f"{name}={value}" for name, value in choice.variables.items())
        logger.info("Setting %s: %s.", variables, "; ".join(choice.reasons))
    if parallel.distributed_executor_backend == "uni":
        parallel.distributed_executor_backend = EngineProcessExecutor
