"""Raster in, raster out: vLLM's IO processor plugin for image-to-image networks, and a client.

Importing this package imports neither torch nor vLLM; its names are loaded when asked for.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "AccessError": "errors",
    "ContractError": "errors",
    "EngineVersionError": "errors",
    "LimitError": "errors",
    "LocalServer": "launcher",
    "MapResult": "client",
    "Mosaic": "blending",
    "RasterAnswer": "answers",
    "RasterClient": "client",
    "RasterError": "errors",
    "RasterIOError": "errors",
    "RasterIOProcessor": "plugin",
    "RasterRequest": "requests",
    "RequestError": "errors",
    "ServerPath": "sources",
    "ServiceError": "errors",
    "ServingError": "errors",
    "SettingsError": "errors",
    "Tiling": "tiling",
    "TilingError": "errors",
    "Window": "tiling",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
