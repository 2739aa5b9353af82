"""The threads of a CPU's engine: all for one window, or one for each of several."""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

_Item, _Result = TypeVar("_Item"), TypeVar("_Result")

FEW_THREADS = 8
"""So many windows, and no more, are computed side by side: each takes a network's memory."""


class Crew:
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
        self.side_by_side = (
            side_by_side and 1 < threads <= FEW_THREADS and set_threads is not None
        )
        self._set_threads: Callable[[int], object] = set_threads or (lambda _: None)
        self._pool = ThreadPoolExecutor(threads, "raster-crew", initializer=self._begin)

    def each(self, work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        """What `work` gives for each, in their order.

        As many as there are threads, and twice as many, and so on, are done side by side; what
        is left over one after the other, with all threads.

        Raises:
            Exception: The first that `work` raises, once none is at work any more.
        """
        aside = len(items) // self.threads * self.threads if self.side_by_side else 0
        inference = torch.is_inference_mode_enabled()

        def alone(item: _Item) -> _Result:
            # Which PyTorch knows a thread at a time.
            with torch.inference_mode(inference):
                return work(item)

        begun = [self._pool.submit(alone, item) for item in items[:aside]]
        failures = [failure for one in begun if (failure := one.exception()) is not None]
        if failures:
            raise failures[0]
        with self._all():
            return [one.result() for one in begun] + [work(item) for item in items[aside:]]

    def _begin(self) -> None:
        # PyTorch gives each new thread the process's number, when the thread first asks.
        torch.get_num_threads()
        self._set_threads(1)

    @contextmanager
    def _all(self) -> Iterator[None]:
        self._set_threads(self.threads)
        try:
            yield
        finally:
            self._set_threads(1)
