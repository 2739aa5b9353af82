"""What this machine is: its cores, what a container leaves of them, its memory."""

import os
import platform
import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")
_GROUPS = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60
"""Limits of memory from here on are how version 1 of control groups says that there is none."""


@dataclass(frozen=True)
class Machine:
    """Facts, as far as they can be found; those that cannot are None or empty."""

    architecture: str
    """As `uname -m` has it."""
    flags: frozenset[str]
    """Instruction sets, as Linux names them."""
    cores: tuple[int, ...]
    """One logical processor of each core that this process may use."""
    processors: int
    """Logical processors that this process may use."""
    quota: float | None
    """Processors' worth of time that the container may use; None for all."""
    memory: int
    """Bytes that this process may use, of the machine or of its container."""
    available: int
    """Bytes of memory that are free, or can be made so, now."""
    swap_used: int
    """Bytes that are swapped out."""
    shared_memory: int | None
    """Bytes that are free in /dev/shm."""
    huge_pages: str
    """How transparent huge pages are used: always, madvise or never."""
    stolen: float
    """Share of the processors' time since the start that the host gave to others, 0 to 1."""
    load: float
    """Processes that wanted to run, mean of the last minute."""
    open_files: int
    """How many files a process may have open."""

    @classmethod
    def here(cls) -> "Machine":
        """Looks at the machine that this runs on."""
        memory = _named_kilobytes(_text(Path("/proc/meminfo")))
        total = memory.get("MemTotal", 0)
        available = memory.get("MemAvailable", 0)
        limit, used = _memory_limit()
        if limit is not None and limit < total:
            total, available = limit, min(available, limit - used)
        return cls(
            architecture=platform.machine(),
            flags=_flags(_text(Path("/proc/cpuinfo"))),
            cores=usable_cores(),
            processors=len(_allowed()),
            quota=processor_quota(),
            memory=total,
            available=available,
            swap_used=memory.get("SwapTotal", 0) - memory.get("SwapFree", 0),
            shared_memory=_free(Path("/dev/shm")),
            huge_pages=_chosen(_text(Path("/sys/kernel/mm/transparent_hugepage/enabled"))),
            stolen=_stolen(_text(Path("/proc/stat"))),
            load=os.getloadavg()[0],
            open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        )


def usable_cores() -> tuple[int, ...]:
    """One logical processor of each core that this process may use: the last, as vLLM does."""
    cores: dict[str, int] = {}
    for one in _allowed():
        siblings = _text(_CPUS / f"cpu{one}" / "topology" / "thread_siblings_list")
        cores[siblings or str(one)] = one
    return tuple(sorted(cores.values()))


def processor_quota(
    groups: Path = _GROUPS, memberships: Path = Path("/proc/self/cgroup")
) -> float | None:
    """Processors' worth of time that control groups, so containers, leave this process.

    Args:
        groups: Where the file systems of control groups are, of version 1 or 2.
        memberships: The file that says in which groups the process is.

    Returns:
        The least of its group's and the groups' above it; None without any limit.
    """
    found: list[float] = []
    for line in _text(memberships).splitlines():
        _, names, path = line.split(":", 2)
        if not names:
            found += _each(groups, path, "cpu.max", _of_version_2)
        elif "cpu" in names.split(","):
            found += _each(groups / "cpu", path, "cpu.cfs_quota_us", _of_version_1)
    return min(found, default=None)


def _each(
    root: Path, path: str, name: str, read: Callable[[Path], float | None]
) -> Iterator[float]:
    """The limit of a group and of all above it; inside a container the path may not be there."""
    group = root / path.strip("/")
    for folder in (group, *group.parents):
        if (folder / name).is_file() and (quota := read(folder / name)) is not None:
            yield quota
        if folder == root:
            return


def _of_version_2(file: Path) -> float | None:
    quota, _, period = _text(file).partition(" ")
    return None if quota in ("", "max") else int(quota) / int(period)


def _of_version_1(file: Path) -> float | None:
    quota = int(_text(file) or -1)
    return None if quota <= 0 else quota / int(_text(file.with_name("cpu.cfs_period_us")))


def _memory_limit() -> tuple[int | None, int]:
    """A container's limit of memory and what is used of it, in bytes."""
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        text = _text(_GROUPS / limit)
        if text.isdigit() and int(text) < _UNLIMITED:
            return int(text), int(_text(_GROUPS / used) or 0)
    return None, 0


def _allowed() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def _text(file: Path) -> str:
    """What is in a file of the system's; nothing where there is none."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _named_kilobytes(text: str) -> dict[str, int]:
    lines = (line.split() for line in text.splitlines())
    return {one[0].rstrip(":"): int(one[1]) * 1024 for one in lines if one[-1] == "kB"}


def _flags(text: str) -> frozenset[str]:
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def _free(folder: Path) -> int | None:
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def _chosen(text: str) -> str:
    """The word in brackets."""
    return text.partition("[")[2].partition("]")[0]


def _stolen(text: str) -> float:
    # user nice system idle iowait irq softirq steal
    times = [int(one) for one in text.partition("\n")[0].split()[1:9]]
    return times[7] / max(1, sum(times)) if len(times) == 8 else 0.0
