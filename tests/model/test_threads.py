"""Which threads compute, by the machine and by what is set."""

from collections.abc import Sequence

import pytest

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
