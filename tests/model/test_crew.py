"""Windows side by side: on which threads, in which order, and that it does not show."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from vllm_raster_model.crew import FEW_THREADS, NICENESS, Crew, InTurn, OpenMPCrew

from .items import EVERYWHERE, mask, window
from .serving import Serving

SIZES = [(32, 32), (24, 32), (32, 32), (7, 11), (32, 32), (24, 32), (32, 8)]


@pytest.mark.parametrize(
    "crew", [InTurn(), OpenMPCrew(3, side_by_side=False), OpenMPCrew(3, side_by_side=True)]
)
@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize("items", range(8))
def test_order(crew: Crew, items: int, short: bool) -> None:
    assert crew.each(lambda i: -i, range(items), short=short) == [-i for i in range(items)]


def test_two_are_at_work_at_once() -> None:
    met = threading.Barrier(2)
    met_by = OpenMPCrew(2, side_by_side=True).each(lambda _: met.wait(timeout=60), range(4))
    assert sorted(met_by) == [0, 0, 1, 1]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux's threads have one of their own")
def test_those_who_compute_leave_the_cores_to_the_server() -> None:
    def niceness(_: int = 0) -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    before = niceness()
    assert OpenMPCrew(2, side_by_side=True).each(niceness, range(4)) == [NICENESS] * 4
    assert niceness() == before


@pytest.mark.parametrize("threads", [1, FEW_THREADS + 1])
def test_one_at_a_time(threads: int) -> None:
    who = OpenMPCrew(threads, side_by_side=True).each(lambda _: threading.get_ident(), range(20))
    assert set(who) == {threading.get_ident()}


def test_a_failure_is_told_when_all_have_ended() -> None:
    ended = []

    def fail(item: int) -> None:
        if item == 1:
            raise ValueError("the second")
        threading.Event().wait(0.2)
        ended.append(item)

    with pytest.raises(ValueError, match="the second"):
        OpenMPCrew(2, side_by_side=True).each(fail, range(4))
    assert sorted(ended) == [0, 2, 3]


@pytest.mark.parametrize("inference", [True, False])
def test_gradients_are_kept_only_where_they_were(inference: bool) -> None:
    weight = torch.ones(1, requires_grad=True)
    with torch.inference_mode(inference):
        made = OpenMPCrew(2, side_by_side=True).each(lambda i: weight * i, range(3))
    assert [one.requires_grad for one in made] == [not inference] * 3


def test_number_of_threads() -> None:
    """In a process of its own, whose threads nobody else counts on."""
    script = """
import ctypes, torch
from vllm_raster_model.crew import OpenMPCrew
torch.set_num_threads(2)
most = ctypes.CDLL(None).omp_get_max_threads
crew = OpenMPCrew(torch.get_num_threads(), side_by_side=True)
told = []
for _ in range(2):
    told += crew.each(lambda _: (most(), torch.get_num_threads()), range(3))
    told += crew.each(lambda _: most(), range(3), short=True)
    told += crew.each(lambda _: most(), range(1), short=True)
    told.append((most(), torch.get_num_threads()))
print(told)
"""
    # As vLLM loads it, in front of all others.
    openmp = next(Path(torch.__file__).parent.glob("lib/libgomp*.so*"))
    environment = {**os.environ, "LD_PRELOAD": str(openmp)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str([(1, 1), (1, 1), (2, 2), 1, 1, 1, 1, (1, 1)] * 2)


def test_it_does_not_show(prithvi: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through vLLM's own layers, which several threads call at once."""
    items = [window(*size, seed=i) for i, size in enumerate(SIZES * 4)]
    items[2].update(EVERYWHERE)
    items[4]["valid"] = mask(32, 32)
    prepared = [prithvi.prepare("<image>", one) for one in items]
    alone = [prithvi.encode([one])[0] for one in prepared]
    monkeypatch.setattr(prithvi.model.predictor, "crew", OpenMPCrew(4, side_by_side=True))
    for _ in range(5):
        for found, expected in zip(prithvi.encode(prepared), alone, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
