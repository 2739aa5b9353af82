"""The threads of a CPU's engine: all for one window, or one for each of several."""

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Protocol, TypeVar

import torch

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

FEW_THREADS = 8
"""So many windows, and no more, are computed side by side: each takes a network's memory."""
NICENESS = 19
"""Of threads that compute on the cores that the server answers on. A scene takes no longer for it,
and `/health` waits for milliseconds in the place of tenths of a second
(`benchmarks/responsiveness.py`): Linux lets a thread of equal rank compute on."""


class Crew(Protocol):
    """Who does what is to be done for each window."""

    def each(
        self, work: Callable[[_Item], _Result], items: Sequence[_Item], *, short: bool = False
    ) -> list[_Result]:
        """What `work` gives for each item.

        Args:
            work: Is done once an item.
            items: Any number.
            short: Whether it is over before a second thread would be awake.

        Returns:
            In the order of the items.
        """
        ...

    def begin(
        self, work: Callable[[_Item], _Result], items: Sequence[_Item]
    ) -> list[Future[_Result]]:
        """Has some of the items done while others wait for nothing.

        Returns:
            What will be there of the first ones; the others are left to `each`.
        """
        ...


class InTurn:
    """Does one after the other, on the calling thread."""

    def each(
        self, work: Callable[[_Item], _Result], items: Sequence[_Item], *, short: bool = False
    ) -> list[_Result]:
        """See `Crew.each`."""
        return [work(item) for item in items]

    def begin(
        self, work: Callable[[_Item], _Result], items: Sequence[_Item]
    ) -> list[Future[_Result]]:
        """See `Crew.begin`; none."""
        return []


class OpenMPCrew:
    """OpenMP threads of a process in which nobody else counts on them.

    Two threads in one layer wait for each other at its end, and while a server takes one's core,
    for long. Windows side by side, each with a thread of its own, wait for nothing.

    What is done around a network, a copy here and a sum there, is over before a second thread is
    awake: outside of `each` the calling thread has one alone.

    Args:
        threads: How many PyTorch has.
        side_by_side: Whether what is done may be done by several threads at once.
    """

    def __init__(self, threads: int, *, side_by_side: bool) -> None:
        # Of the calling thread alone, and at once: torch.set_num_threads also does more.
        set_threads = getattr(ctypes.CDLL(None), "omp_set_num_threads", None)
        self.threads = threads
        self.side_by_side = side_by_side and 1 < threads <= FEW_THREADS and set_threads is not None
        self._set_threads: Callable[[int], object] = set_threads or (lambda _: None)
        self._pool = ThreadPoolExecutor(threads, "raster-crew", initializer=self._begin_thread)
        self._begun: list[Future[Any]] = []

    def each(
        self, work: Callable[[_Item], _Result], items: Sequence[_Item], *, short: bool = False
    ) -> list[_Result]:
        """See `Crew.each`.

        As many as there are threads, or two, three times as many, are done side by side; what is
        left over one after the other, with all threads.

        Raises:
            Exception: The first that `work` raises, once none is at work any more.
        """
        aside = self._aside(len(items), short)
        begun = self._submit(work, items[:aside])
        failures = [failure for one in begun if (failure := one.exception()) is not None]
        if failures:
            raise failures[0]
        with nullcontext() if short else self._all():
            return [one.result() for one in begun] + [work(item) for item in items[aside:]]

    def begin(
        self, work: Callable[[_Item], _Result], items: Sequence[_Item]
    ) -> list[Future[_Result]]:
        """See `Crew.begin`.

        All are begun while the threads are at work. Else as many as `each` does side by side: for
        one alone all threads are faster.
        """
        busy = self.side_by_side and not all(one.done() for one in self._begun)
        begun = self._submit(work, items[: len(items) if busy else self._aside(len(items))])
        self._begun = [*(one for one in self._begun if not one.done()), *begun]
        return begun

    def _submit(
        self, work: Callable[[_Item], _Result], items: Sequence[_Item]
    ) -> list[Future[_Result]]:
        inference = torch.is_inference_mode_enabled()

        def alone(item: _Item) -> _Result:
            # Which PyTorch knows a thread at a time.
            with torch.inference_mode(inference):
                return work(item)

        return [self._pool.submit(alone, item) for item in items]

    def _aside(self, items: int, short: bool = False) -> int:
        if not self.side_by_side:
            return 0
        if short:
            return items if items > 1 else 0
        return items // self.threads * self.threads

    def _begin_thread(self) -> None:
        # PyTorch gives each new thread the process's number, when the thread first asks.
        torch.get_num_threads()
        self._set_threads(1)
        if sys.platform == "linux":  # where a thread has a niceness of its own
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)

    @contextmanager
    def _all(self) -> Iterator[None]:
        self._set_threads(self.threads)
        try:
            yield
        finally:
            self._set_threads(1)
