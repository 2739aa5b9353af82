"""Which threads compute, by the machine and by what is set."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from vllm_raster_model.threads import BIND, FEW_CORES, RESERVED, SPINS, THREADS, choose_threads

TWO = (0, 1)
MANY = tuple(range(FEW_CORES + 1))
SPIN = {"GOMP_SPINCOUNT": str(SPINS)}


@pytest.mark.parametrize(
    ("cores", "quota", "environment", "variables"),
    [
        (TWO, None, {}, {BIND: "0,1"} | SPIN),
        ((3,), None, {}, {BIND: "3"} | SPIN),
        (TWO, 2.0, {}, {BIND: "0,1"} | SPIN),
        (TWO, 8.0, {}, {BIND: "0,1"} | SPIN),
        (TWO, 1.5, {}, {BIND: "nobind", THREADS: "1"} | SPIN),
        (TWO, 0.5, {}, {BIND: "nobind", THREADS: "1"} | SPIN),
        (MANY, None, {}, {}),
        (MANY, 4.0, {}, {BIND: "nobind", THREADS: "4"}),
        (TWO, None, {THREADS: "1"}, {BIND: "nobind"} | SPIN),
        (MANY, 4.0, {THREADS: "2"}, {BIND: "nobind"}),
        (TWO, None, {BIND: "1"}, SPIN),
        (TWO, 1.0, {RESERVED: "1"}, SPIN),
        (TWO, None, {BIND: ""}, {BIND: "0,1"} | SPIN),
        (TWO, None, {"OMP_WAIT_POLICY": "active"}, {BIND: "0,1"}),
        (TWO, None, {"GOMP_SPINCOUNT": "7", RESERVED: "0"}, {}),
    ],
)
def test_chooses_what_nobody_has_chosen(
    cores: Sequence[int],
    quota: float | None,
    environment: dict[str, str],
    variables: dict[str, str],
) -> None:
    choice = choose_threads(cores, quota, environment)
    assert choice.variables == variables
    assert bool(choice.reasons) == bool(variables)


def test_one_thread_around_a_network() -> None:
    """In a process of its own, whose threads nobody else counts on."""
    script = """
import ctypes, torch
from vllm_raster_model.threads import AllThreads
torch.set_num_threads(2)
most = ctypes.CDLL(None).omp_get_max_threads
threads = AllThreads(torch.get_num_threads())
told = []
for _ in range(2):
    with threads:
        told.append((most(), torch.get_num_threads()))
    told.append((most(), torch.get_num_threads()))
print(told)
"""
    # As vLLM loads it, in front of all others.
    openmp = next(Path(torch.__file__).parent.glob("lib/libgomp*.so*"))
    environment = {**os.environ, "LD_PRELOAD": str(openmp)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str([(2, 2), (1, 1)] * 2)
