"""Keeping memory between two windows instead of giving it back to the system."""

import ctypes

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -2, -3, -8
"""Names of glibc's settings, from malloc.h."""
_MOST = (1 << 31) - 1
"""Bytes; the most that fits."""
_HEAP = 1 << 26
"""Bytes; the most that a thread's own part of memory has."""


def keep_memory() -> bool:
    """Has this process keep the memory that a network's layers are done with, for the next ones.

    glibc gives each block of 32 MB and more back at once. A layer of 64 channels for 512 × 512
    pixels is larger, so the system would hand out and clear its memory again for each, which
    `benchmarks/bare.py` shows. What is kept is what one step needs.

    Returns:
        Whether the allocator takes such settings; others than glibc's have none, and glibc before
        2.35 refuses sizes so large.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(
        # The second alone would make it worse: it also ends glibc's own adapting of the first.
        # Threads that have memory of their own already keep what is in it by the third, and those
        # that are yet to come share one part, where a layer may be of any size, by the fourth.
        mallopt(setting, value)
        for setting, value in (
            (_MMAP_THRESHOLD, _MOST),
            (_TRIM_THRESHOLD, _MOST),
            (_TOP_PAD, _HEAP),
            (_ARENA_MAX, 1),
        )
    )
