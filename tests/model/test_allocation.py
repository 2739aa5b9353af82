"""Memory that is kept is not asked for again."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import torch
from vllm_raster_model.allocation import keep_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.zeros(1 << 24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.set_num_threads(1)
usual = faults()
assert keep_memory()
faults()  # some blocks are asked for once more until they lie side by side
print(usual, faults())
"""


@pytest.mark.skipif(platform.libc_ver() < ("glibc", "2.35"), reason="needs glibc 2.35")
def test_large_blocks_are_used_again() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS], check=True, capture_output=True, text=True
    )
    usual, kept = map(int, done.stdout.split())
    # Ten times 64 MiB in pages of 4 KiB, but for what huge pages save.
    assert kept < usual / 100
