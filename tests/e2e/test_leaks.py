"""A server gives everything back; a small part of what `make leaks` does."""

import pytest

from .leaks import grown, leaking

MOST_MB = 100
MOST_DESCRIPTORS = 20
"""It has hardly warmed up: threads and connections still come, but not one a request."""

pytestmark = pytest.mark.alone


def test_nothing_is_held_after_requests_that_came_to_nothing() -> None:
    with leaking() as leaks:
        told = leaks.measure(count=40)
        assert told["refused"]["jobs"] == 0
        assert told["refused"]["files_in_memory"] == 0
        more = grown(told)
        assert more.pop("memory_mb") < MOST_MB
        assert more.pop("descriptors") < MOST_DESCRIPTORS, told
        assert not any(more.values()), told
        assert not leaks.left_behind()
