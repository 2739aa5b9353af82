"""A part of a configuration laid over the whole, as `vllm serve --hf-overrides` gives it."""

from collections.abc import Mapping
from typing import Any


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merges nested mappings; where both have a value, the one above counts."""
    merged = dict(below)
    for name, value in above.items():
        known = merged.get(name)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            merged[name] = laid_over(known, value)
        else:
            merged[name] = value
    return merged
