"""Many cases in several processes; those that end a process, or hold it up, are found out."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Result:
    """What became of all cases.

    Attributes:
        outcomes: How many were answered, and how many refused in which way.
        faults: Number, kind and what happened, of each that was neither.
        slowest: Seconds, number and kind of the slowest.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[int, str, str]] = field(default_factory=list)
    slowest: list[tuple[float, int, str]] = field(default_factory=list)

    def add(self, number: int, kind: str, told: str) -> None:
        """Counts one case."""
        if told.startswith("fault"):
            self.faults.append((number, kind, told))
        else:
            outcome, _, seconds = told.rpartition(" ")
            self.outcomes[outcome] += 1
            self.slowest = sorted([*self.slowest, (float(seconds), number, kind)])[-10:]


class Worker:
    """One process, see `worker`."""

    def __init__(self, seed: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.worker", f"--seed={seed}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
        )

    def serve(self, number: int) -> tuple[str, str]:
        """Kind of a case and what became of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(number, file=self._process.stdin, flush=True)
        kind, told = json.loads(self._process.stdout.readline())
        return kind, told

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def run(seed: int, count: int, workers: int = 2, first: int = 0) -> Result:
    """Serves the cases of a seed from one number on.

    Args:
        seed: What they are made from.
        count: How many.
        workers: Processes.
        first: Number of the first.
    """
    numbers: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    for number in range(first, first + count):
        numbers.put(number)
    result, lock = Result(), threading.Lock()

    def work() -> None:
        worker = Worker(seed)
        while True:
            try:
                number = numbers.get_nowait()
            except queue.Empty:
                break
            kind, told = worker.serve(number)
            with lock:
                result.add(number, kind, told)
        worker.close()

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return result
