"""Looks at the machine, at what is installed and at a checkpoint, for advice."""

import os
import platform
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Any

from vllm_raster_model.advice import Advice, Facts, advise, memory_needed
from vllm_raster_model.engine_version import require_vllm
from vllm_raster_model.errors import EngineVersionError, RasterModelError
from vllm_raster_model.machine import Machine
from vllm_raster_model.threads import threads_used

_BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}


def gather(checkpoint: Path | None = None) -> Facts:
    """Looks at everything; starts nothing and asks nobody else.

    Args:
        checkpoint: Folder that is to be served.
    """
    problem, parameters = None, None
    if checkpoint is not None:
        try:
            parameters = _parameters(checkpoint)
        except (RasterModelError, OSError) as error:
            problem = " ".join(str(error).split())
    torch = version("torch")
    return Facts(
        machine=Machine.here(),
        environment=dict(os.environ),
        engine_problem=_engine_problem(),
        library=platform.libc_ver(),
        torch=torch,
        torch_has_cuda=_has_cuda(),
        cards=len([one for one in Path("/dev").glob("nvidia*") if one.name[6:].isdigit()]),
        plugin=_is_installed("vllm-raster-io"),
        parameters=parameters,
        checkpoint_problem=problem,
    )


def summary(facts: Facts) -> dict[str, Any]:
    """The facts that matter in any case, by their names."""
    machine = facts.machine
    found = machine.flags & (_BFLOAT16 | {"avx2", "avx512f", "amx_tile", "asimd", "sve"})
    return {
        "architecture": machine.architecture,
        "instructions": sorted(found),
        "processors": machine.processors,
        "cores": len(machine.cores),
        "processor_quota": machine.quota,
        "threads_that_compute": threads_used(machine.cores, machine.quota, facts.environment),
        "memory_gib": round(machine.memory / (1 << 30), 1),
        "memory_free_gib": round(machine.available / (1 << 30), 1),
        "memory_needed_gib": round(memory_needed(facts.parameters) / (1 << 30), 1),
        "huge_pages": machine.huge_pages,
        "torch": facts.torch,
        "gpus": facts.cards,
        "plugin": facts.plugin,
        "parameters": facts.parameters,
    }


def examine(checkpoint: Path | None = None) -> tuple[dict[str, Any], list[Advice]]:
    """What there is, and what to do."""
    facts = gather(checkpoint)
    return summary(facts), advise(facts)


def _parameters(checkpoint: Path) -> int:
    from vllm_raster_model.checkpoints.inspection import inspect_checkpoint

    return inspect_checkpoint(checkpoint).parameters


def _engine_problem() -> str | None:
    try:
        require_vllm()
    except EngineVersionError as error:
        return str(error)
    return None


def _has_cuda() -> bool:
    # As the build says it: importing it would take seconds.
    files = distribution("torch").files or ()
    return any(one.name.startswith("libtorch_cuda") for one in files)


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True
