"""Two servers of the same network: how each is started and asked, as its documentation says."""

import base64
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import rasterio

THEIR_FLAGS = (
    "--io-processor-plugin", "terratorch_segmentation", "--model-impl", "terratorch",
    "--skip-tokenizer-init", "--enforce-eager", "--enable-mm-embeds",
)  # fmt: skip
"""Of TerraTorch's page on serving in image-to-image mode, and of vLLM's example of Prithvi."""

ALL_CORES = {"VLLM_CPU_NUM_OF_RESERVED_CPU": "0"}
"""vLLM leaves a core of a CPU to its server, unless told otherwise."""
NO_CACHE = ("--mm-processor-cache-gb", "0")
"""Unless told otherwise, vLLM keeps every window of theirs, in case it comes again."""
ALONE = {"PYTHONPATH": ""}
"""Where PYTHONPATH names this project's sources, theirs is not to find them."""
MENDED = {"PYTHONPATH": str(Path(__file__).resolve().with_name("mended"))}
"""Adds a plugin without which theirs computes in half precision only."""


@dataclass(frozen=True)
class Ask:
    """A request: what a scene is to be mapped with.

    Attributes:
        name: In figures.
        overlap: Of windows, in pixels; None for what the server does unless told.
    """

    name: str
    overlap: int | None = None


@dataclass(frozen=True)
class Contestant(ABC):
    """One of the two.

    Attributes:
        name: In figures.
        folder: What is served.
        vllm: The command.
        asks: What is asked of it.
        flags: Of the command.
        environment: Of the command, besides what it inherits.
    """

    name: str
    folder: Path
    vllm: Path
    asks: tuple[Ask, ...]
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @abstractmethod
    def body(self, scene: Path, ask: Ask) -> bytes:
        """The request's body, json."""

    def ids(self, answer: Mapping[str, Any]) -> np.ndarray:
        """The map of an answer: a class id a pixel, (height, width)."""
        with rasterio.open(io.BytesIO(base64.b64decode(answer["data"]["data"]))) as dataset:
            return np.asarray(dataset.read(1))

    @abstractmethod
    def tiles(self, answer: Mapping[str, Any], side: int, tile: int) -> int:
        """How many tiles the network computed."""


class TerraTorch(Contestant):
    """TerraTorch's plugin: it takes no file in the request, so it reads the scene from the disk."""

    def body(self, scene: Path, ask: Ask) -> bytes:
        """As vLLM's example has it, but for a path in the place of a URL."""
        data = {
            "data": str(scene),
            "data_format": "path",
            "image_format": "tiff",
            "out_data_format": "b64_json",
        }
        return json.dumps({"data": data, "priority": 0, "model": str(self.folder)}).encode()

    def ids(self, answer: Mapping[str, Any]) -> np.ndarray:
        """Ids times 255 in eight bits, turned back: 255 is 1, 254 is 2."""
        return -super().ids(answer)

    def tiles(self, answer: Mapping[str, Any], side: int, tile: int) -> int:
        """Edge to edge, the last ones padded."""
        return (-(-side // tile)) ** 2


class VllmRaster(Contestant):
    """This project's: the scene travels in the request."""

    def body(self, scene: Path, ask: Ask) -> bytes:
        """The scene in base64."""
        data: dict[str, Any] = {"data": base64.b64encode(scene.read_bytes()).decode()}
        if ask.overlap is not None:
            data["overlap"] = ask.overlap
        return json.dumps({"data": data}).encode()

    def tiles(self, answer: Mapping[str, Any], side: int, tile: int) -> int:
        """As the answer says."""
        return int(answer["data"]["effective"]["windows"])
