"""What is said of machines that are made up, and of this one."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from vllm_raster_model import doctor
from vllm_raster_model.advice import GIB, Advice, Facts, advise
from vllm_raster_model.cli import app
from vllm_raster_model.machine import Machine
from vllm_raster_model.threads import FEW_CORES, threads_used

CHECKPOINT = Path(__file__).resolve().parents[1] / "checkpoints" / "land_cover"
GOOD = Facts(
    machine=Machine(
        architecture="x86_64",
        flags=frozenset({"avx2", "avx512f"}),
        cores=(0, 1),
        processors=2,
        quota=None,
        memory=16 * GIB,
        available=12 * GIB,
        swap_used=0,
        shared_memory=8 * GIB,
        huge_pages="madvise",
        stolen=0.0,
        load=0.1,
        open_files=65535,
    ),
    environment={},
    engine_problem=None,
    library=("glibc", "2.36"),
    torch="2.13.0+cpu",
    torch_has_cuda=False,
    cards=0,
    plugin=True,
)


def told(**changes: Any) -> list[Advice]:
    """Advice on a good machine with these changes, of facts or of the machine's."""
    machine = {k: v for k, v in changes.items() if k in Machine.__dataclass_fields__}
    facts = {k: v for k, v in changes.items() if k not in machine}
    return advise(replace(GOOD, machine=replace(GOOD.machine, **machine), **facts))


def test_nothing_to_say_of_a_good_machine() -> None:
    assert told() == []
    assert told(cores=tuple(range(FEW_CORES + 1)), processors=2 * (FEW_CORES + 1)) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engine_problem": "vLLM is not installed."}, "vLLM is not installed."),
        ({"checkpoint_problem": "no config.json"}, "no config.json"),
        ({"torch_has_cuda": True}, "none can be seen"),
        ({"flags": frozenset()}, "AVX2"),
        ({"memory": GIB, "available": GIB, "parameters": 300_000_000}, "needs 2.1 GiB"),
    ],
)
def test_what_keeps_from_serving_comes_first(changes: dict[str, Any], words: str) -> None:
    first, *_ = told(load=100.0, **changes)
    assert first.stops
    assert words in first.text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cards": 2}, "does not use the 2 GPU(s)"),
        ({"flags": frozenset({"avx2"})}, "AVX-512"),
        ({"available": GIB // 2}, "0.5 GiB are free"),
        ({"swap_used": GIB}, "1.0 GiB are swapped out"),
        ({"memory": 3 * GIB, "available": 3 * GIB}, "GDAL_CACHEMAX=64"),
        ({"library": ("glibc", "2.31")}, "tcmalloc"),
        ({"quota": 1.5}, "1.5 processors, so 1 thread(s)"),
        ({"environment": {"OMP_NUM_THREADS": "1"}}, "1 of 2 cores compute: unset OMP_NUM_THREADS"),
        ({"environment": {"OMP_NUM_THREADS": "4"}}, "4 threads are asked for on 2 cores"),
        ({"environment": {"VLLM_CPU_NUM_OF_RESERVED_CPU": "1"}}, "unset VLLM_CPU_NUM_OF"),
        ({"environment": {"VLLM_CPU_OMP_THREADS_BIND": "1"}}, "unset VLLM_CPU_OMP_THREADS_BIND=1"),
        ({"environment": {"MALLOC_PERTURB_": "7"}}, "MALLOC_PERTURB_=7"),
        ({"environment": {"OMP_WAIT_POLICY": "ACTIVE"}}, "OMP_WAIT_POLICY"),
        ({"environment": {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}}, "is off"),
        ({"stolen": 0.2}, "20% of this machine's time"),
        ({"load": 3.0}, "3.0 at once on 2"),
        ({"open_files": 1024}, "ulimit -n"),
        ({"shared_memory": 64 << 20}, "64 MiB free"),
    ],
)
def test_what_makes_slow_is_told_with_its_cure(changes: dict[str, Any], words: str) -> None:
    [only] = told(**changes)
    assert not only.stops
    assert words in only.text


@pytest.mark.parametrize(
    "changes",
    [
        {"memory": 3 * GIB, "available": 3 * GIB, "plugin": False},
        {"library": ("glibc", "2.31"), "environment": {"LD_PRELOAD": "/lib/libtcmalloc.so.4"}},
        {"quota": 1.0},
        {"environment": {"VLLM_CPU_NUM_OF_RESERVED_CPU": "0"}},
        {"shared_memory": None},
    ],
)
def test_what_does_no_harm_is_not_told(changes: dict[str, Any]) -> None:
    assert told(**changes) == []


@pytest.mark.parametrize(
    ("cores", "quota", "environment", "threads"),
    [
        (2, None, {}, 2),
        (16, None, {}, 15),
        (16, 4.0, {}, 4),
        (16, None, {"VLLM_CPU_OMP_THREADS_BIND": "0-3,8"}, 5),
        (16, None, {"VLLM_CPU_OMP_THREADS_BIND": "0-3|4-7"}, 4),
        (16, None, {"VLLM_CPU_OMP_THREADS_BIND": "all"}, 16),
        (16, None, {"VLLM_CPU_OMP_THREADS_BIND": "0-,3"}, 16),
        (16, None, {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}, 16),
        (16, None, {"VLLM_CPU_NUM_OF_RESERVED_CPU": "6"}, 10),
        (2, None, {"OMP_NUM_THREADS": "1"}, 1),
    ],
)
def test_threads_that_will_compute(
    cores: int, quota: float | None, environment: dict[str, str], threads: int
) -> None:
    assert threads_used(range(cores), quota, environment) == threads


def run(monkeypatch: pytest.MonkeyPatch, facts: Facts, *arguments: str) -> tuple[int, str]:
    monkeypatch.setattr(doctor, "gather", lambda checkpoint: facts)
    done = CliRunner().invoke(app, ["doctor", *arguments])
    return done.exit_code, done.output


def test_command_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = run(monkeypatch, replace(GOOD, cards=1))
    assert code == 0
    assert "threads that compute: 2" in output
    assert "PyTorch: PyTorch 2.13.0+cpu does not use the 1 GPU(s)" in output
    code, output = run(monkeypatch, GOOD)
    assert code == 0
    assert "Nothing to do." in output


def test_command_fails_where_serving_cannot_work(monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = run(monkeypatch, replace(GOOD, engine_problem="No vLLM."), "--json")
    assert code == 1
    assert json.loads(output)["advice"] == [{"topic": "vLLM", "text": "No vLLM.", "stops": True}]


def test_command_on_this_machine(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["doctor", str(CHECKPOINT), "--json"])
    found = json.loads(done.output)
    assert found["machine"]["parameters"] > 200_000
    assert not any(one["topic"] in ("vLLM", "checkpoint") for one in found["advice"])
    done = CliRunner().invoke(app, ["doctor", str(tmp_path)])
    assert done.exit_code == 1
    assert "checkpoint: " in done.output
