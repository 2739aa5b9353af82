"""Image-to-image networks for rasters, as models that vLLM serves.

Importing this package imports neither torch nor vLLM; its names are loaded when asked for.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "ContractError": "errors",
    "EngineVersionError": "errors",
    "ImageItemError": "errors",
    "InstructedRasterConfig": "config",
    "InstructedRasterForImageToImage": "instructed",
    "RasterConfig": "config",
    "RasterContract": "contract",
    "RasterForImageToImage": "plain",
    "RasterModelError": "errors",
    "RasterProcessor": "processor",
    "WeightsError": "errors",
    "minimal_tokenizer": "tokenizer",
    "register": "registration",
    "with_words": "tokenizer",
    "word_tokenizer": "tokenizer",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
