"""Tests run in two processes at once, but for those marked `alone`: they look at a clock."""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples each time, and none that fails because the machine is busy.
settings.register_profile("seeded", deadline=None, derandomize=True)
settings.load_profile("seeded")

LOGGERS = ("vllm", "vllm.raster", "vllm.raster.model")

if "PYTEST_XDIST_WORKER" in os.environ:
    # Two engines that have all cores each are slower together than one after the other.
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def _as_found() -> Iterator[None]:
    """Has no test find the environment or a logger as another one left it."""
    environment = dict(os.environ)
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    yield
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture(autouse=True)
def _in_turn(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Has no other test run beside one that must be alone."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    folder = tmp_path_factory.getbasetemp().parent
    alone = request.node.get_closest_marker("alone") is not None
    with ExitStack() as room:
        # Who waits to be alone keeps the door, or others would go in again and again.
        with ExitStack() as door:
            _lock(door, folder / "door.lock", fcntl.LOCK_EX)
            _lock(room, folder / "room.lock", fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


def _lock(until: ExitStack, path: Path, how: int) -> None:
    fcntl.flock(until.enter_context(path.open("w")), how)
