"""The fourth part of the seam: on a CPU, the network runs in the process of the engine itself.

Written for vLLM 0.32, read against 0.33.
"""

import os

import torch
from vllm.utils.ompmultiprocessing import OMPProcessManager
from vllm.v1.executor.uniproc_executor import UniProcExecutor

from vllm_raster_model.engine import VllmConfig, logger

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
        super()._init_executor()
        logger.info("Computing in the engine's process, threads: %d.", torch.get_num_threads())


def run_in_engine_process(vllm_config: VllmConfig) -> None:
    """Chooses the executor above where vLLM would start a process for one worker alone.

    `--distributed-executor-backend mp` keeps that process.
    """
    parallel = vllm_config.parallel_config
    # An engine within the process of whoever made it leaves that one's threads alone.
    if parallel.distributed_executor_backend == "uni" and os.environ.get(_PROCESSES, "1") == "1":
        parallel.distributed_executor_backend = EngineProcessExecutor
