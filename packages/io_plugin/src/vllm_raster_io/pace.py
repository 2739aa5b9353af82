"""How fast windows come back of late, and so how many of them may share a prompt.

What a prompt costs by itself is shared by its windows, but one whose windows take long holds up
others' requests. So only of a network that is seen to be fast are more put into one than usual.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

PROMPT_SECONDS = 0.2
"""That the windows of a prompt may take together, where they are more than usual."""
_REMEMBERED_SECONDS = 5.0


@dataclass(frozen=True)
class PromptSize:
    """How many windows a prompt may hold.

    Attributes:
        usual: Of whatever network.
        most: That there is room for.
        numbers: That all windows of more than the usual may have together, a number a pixel, band
            and date.
    """

    usual: int = 1
    most: int = 1
    numbers: float = 0.0

    def windows(self, numbers: int) -> int:
        """How many windows of so many numbers, 1 or more, share a prompt."""
        return max(self.usual, min(self.most, int(self.numbers // numbers)))


class Pace:
    """How many numbers of windows came back a second, of all requests together.

    What lies further back counts less, and the time in which nothing was asked does not count.
    A number is read and changed by one thread; others may read the pace.

    Args:
        clock: Gives the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.numbers_a_second = 0.0
        self._clock = clock
        self._requests = 0
        self._numbers = self._seconds = self._since = 0.0

    @contextmanager
    def request(self) -> Iterator[None]:
        """For as long as windows of a request are asked for."""
        if not self._requests:
            self._since = self._clock()
        self._requests += 1
        try:
            yield
        finally:
            self._pass_time()
            self._requests -= 1

    def came(self, numbers: int) -> None:
        """Windows of so many numbers came back, while a request was under way."""
        self._numbers += numbers
        self._pass_time()
        self.numbers_a_second = self._numbers / max(self._seconds, 1e-3)
        if self._seconds > _REMEMBERED_SECONDS:
            self._numbers, self._seconds = self._numbers / 2, self._seconds / 2

    def prompt_size(self, usual: int, most: int) -> PromptSize:
        """What may share a prompt of the next request."""
        return PromptSize(usual, most, PROMPT_SECONDS * self.numbers_a_second)

    def _pass_time(self) -> None:
        now = self._clock()
        self._seconds, self._since = self._seconds + now - self._since, now
