"""Giving memory back to the machine."""

import ctypes
import gc
from collections.abc import Callable
from typing import Any


def give_memory_back() -> None:
    """Has the process keep no memory that it does not use.

    The C library keeps what was freed, a gigabyte after a large scene, in pieces between which
    others are still in use; and of a request that was given up, parts refer to one another.
    """
    gc.collect()
    if (trim := _trim()) is not None:
        trim(0)


def _trim() -> Callable[[int], Any] | None:
    # glibc's own; others give back by themselves, or never.
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
