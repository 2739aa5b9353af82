"""How long a request may take, and whether anyone still waits for it."""

import threading
import time
from collections.abc import Callable

from vllm_raster_io.errors import LimitError


class Deadline:
    """Counts down from when it is made; may be asked from any thread.

    Args:
        seconds: How long it is.
        doing: What may take no longer, for the message: "The request", "Fetching the file".
        clock: Gives the seconds that have passed since any fixed moment.
    """

    def __init__(
        self, seconds: float, doing: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds, self._doing, self._clock = seconds, doing, clock
        self._end = clock() + seconds
        self._cancelled = threading.Event()

    def within(self, seconds: float, doing: str) -> "Deadline":
        """One that ends earlier, or together with this one, and is cancelled with it."""
        inner = Deadline(seconds, doing, self._clock)
        if inner._end > self._end:
            inner._seconds, inner._doing, inner._end = self._seconds, self._doing, self._end
        inner._cancelled = self._cancelled
        return inner

    def remaining(self) -> float:
        """Seconds that are left, more than 0.

        Raises:
            LimitError: None is left, or nobody waits any more.
        """
        if self._cancelled.is_set():
            raise LimitError(f"{self._doing} was given up, for nobody waits for it")
        left = self._end - self._clock()
        if left <= 0:
            raise LimitError(
                f"{self._doing} took longer than the {self._seconds:g} s that are allowed; "
                "send less at once"
            )
        return left

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits any more."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Says that nobody waits any more."""
        self._cancelled.set()
