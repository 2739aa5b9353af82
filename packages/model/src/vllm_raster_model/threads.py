"""How many threads compute, and how they wait for each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

BIND, RESERVED, THREADS = (
    "VLLM_CPU_OMP_THREADS_BIND",
    "VLLM_CPU_NUM_OF_RESERVED_CPU",
    "OMP_NUM_THREADS",
)
FEW_CORES = 8
"""On so many no core is left for the server, which needs some hundredths of one: a core that vLLM
reserves is half of two. On more vLLM's own choice costs little."""
SPINS = 1000
"""Times that a thread looks for work before it sleeps, some 20 µs: about the gap between two
layers. OpenMP's own, 300 times as many, takes milliseconds from the server on the same core where
windows are not computed side by side; where they are, it makes no difference
(`benchmarks/out_of_the_box.py`)."""
_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


@dataclass(frozen=True)
class ThreadChoice:
    """Environment variables for the engine, and why, in words for the log."""

    variables: dict[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()


def choose_threads(
    cores: Sequence[int], quota: float | None, environment: Mapping[str, str]
) -> ThreadChoice:
    """Chooses what nobody has chosen.

    Args:
        cores: One logical processor of each core that may be used.
        quota: Processors' worth of time that a container may use; None for all.
        environment: Variables that are set.
    """
    variables: dict[str, str] = {}
    reasons: list[str] = []
    if not environment.get(BIND) and not environment.get(RESERVED):
        if given := environment.get(THREADS):
            variables[BIND] = "nobind"
            reasons.append(f"{THREADS}={given} is taken as it is")
        elif quota is not None and int(quota) < len(cores):
            # Not bound: other containers' threads would be bound to the same cores.
            variables |= {BIND: "nobind", THREADS: str(max(1, int(quota)))}
            reasons.append(f"the container may use {quota:g} of {len(cores)} cores")
        elif len(cores) <= FEW_CORES:
            variables[BIND] = ",".join(map(str, cores))
            reasons.append("all cores compute, since there are few")
    if len(cores) <= FEW_CORES and not any(environment.get(one) for one in _WAITING):
        variables["GOMP_SPINCOUNT"] = str(SPINS)
        reasons.append("threads that wait soon leave their core to the server")
    return ThreadChoice(variables, tuple(reasons))


def threads_used(cores: Sequence[int], quota: float | None, environment: Mapping[str, str]) -> int:
    """How many threads will compute in a worker; arguments as above.

    What is bound to cores that cannot be read counts as all: vLLM will say what is wrong with it.
    """
    known = {**environment, **choose_threads(cores, quota, environment).variables}
    bound = known.get(BIND) or "auto"
    if bound == "nobind":
        given = known.get(THREADS, "")
        return int(given) if given.isdigit() else len(cores)
    if bound != "auto":
        # Of several workers, each with cores of its own, the first.
        lengths = [_length(part) for part in bound.partition("|")[0].split(",")]
        return len(cores) if None in lengths else sum(filter(None, lengths))
    reserved = known.get(RESERVED, "")
    # vLLM's own rule: one core for the server, unless there is no other.
    return max(len(cores) - (int(reserved) if reserved.isdigit() else 1), 1)


def _length(part: str) -> int | None:
    """Of `3` or `2-5`."""
    first, dash, last = part.strip().partition("-")
    if not first.isdigit() or (dash and not last.isdigit()):
        return None
    return int(last or first) - int(first) + 1
