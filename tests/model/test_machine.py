"""What is found out about a machine, and about a container's part of it."""

import os
from pathlib import Path

import psutil
import pytest

from vllm_raster_model.machine import Machine, processor_quota, usable_cores


def grouped(folder: Path, membership: str, files: dict[str, str]) -> float | None:
    """The quota where control groups have these files."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + "\n")
    memberships = folder / "membership"
    memberships.write_text(membership + "\n")
    return processor_quota(folder, memberships)


@pytest.mark.parametrize(
    ("membership", "files", "quota"),
    [
        ("0::/", {"cpu.max": "150000 100000"}, 1.5),
        ("0::/", {"cpu.max": "max 100000"}, None),
        ("0::/", {}, None),
        ("0::/pod/one", {"pod/cpu.max": "200000 100000", "pod/one/cpu.max": "max 100000"}, 2.0),
        ("0::/pod/one", {"pod/cpu.max": "200000 100000", "pod/one/cpu.max": "50000 100000"}, 0.5),
        ("0::/not/here", {"cpu.max": "400000 100000"}, 4.0),
        ("4:memory:/", {"cpu.max": "100000 100000"}, None),
        (
            "3:cpu,cpuacct:/box\n4:memory:/box",
            {"cpu/box/cpu.cfs_quota_us": "300000", "cpu/box/cpu.cfs_period_us": "100000"},
            3.0,
        ),
        (
            "3:cpu:/",
            {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"},
            None,
        ),
    ],
)
def test_quota_of_a_container(
    tmp_path: Path, membership: str, files: dict[str, str], quota: float | None
) -> None:
    assert grouped(tmp_path, membership, files) == quota


def test_finds_what_others_find() -> None:
    found = Machine.here()
    assert found.processors == len(os.sched_getaffinity(0))
    assert set(found.cores) <= os.sched_getaffinity(0)
    assert 1 <= len(found.cores) <= found.processors
    assert 0 < found.memory <= psutil.virtual_memory().total
    assert 0 < found.available <= found.memory
    assert found.swap_used == pytest.approx(psutil.swap_memory().used, abs=1 << 26)
    assert 0 <= found.stolen <= 1


def test_fewer_cores_where_fewer_are_allowed() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        assert usable_cores() == (max(before),)
    finally:
        os.sched_setaffinity(0, before)
