"""Scenes and checkpoints' contracts for the tests of the IO processor."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from vllm_raster_io.contract import RasterContract
from vllm_raster_io.rasters import Scene
from vllm_raster_io.tiling import Window
from vllm_raster_io.uploads import Upload

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


def open_scene(content: bytes, wanted: tuple[str, ...] = ()) -> Scene:
    return Scene(Upload.of(content), wanted=wanted)


def read_all(
    content: bytes, indices: list[int] | None = None, wanted: tuple[str, ...] = ()
) -> tuple[Array, Mask]:
    """All pixels, and which are valid, of some bands or of all but alpha."""
    with open_scene(content, wanted) as scene:
        if indices is None:
            indices = [i for i, alpha in enumerate(scene.alpha) if not alpha]
        return scene.read(Window(0, 0, scene.height, scene.width), indices)


def raster_block(
    kind: str = "classes",
    *,
    bands: tuple[str, ...] = ("BLUE", "GREEN", "RED", "NIR"),
    channels: int = 3,
    size: int = 64,
    overlap: int = 16,
    upscale: int = 1,
    downscale: int = 1,
    coordinates: tuple[str, ...] = (),
    frames: int = 1,
    first_day: int = 1,
) -> dict[str, Any]:
    """The `raster` block of a config.json."""
    names = [{"name": f"channel {i}"} for i in range(channels)]
    return {
        "version": 1,
        "input": {
            "bands": list(bands),
            "frames": frames,
            "coordinates": list(coordinates),
            "first_day": first_day,
        },
        "tile": {"size": size, "multiple_of": 16, "overlap": overlap},
        "output": {
            "kind": kind,
            "upscale": upscale,
            "downscale": downscale,
            "classes" if kind == "classes" else "bands": names,
        },
    }


def make_contract(kind: str = "classes", **block: Any) -> RasterContract:
    return RasterContract.of(SimpleNamespace(raster=raster_block(kind, **block)))
