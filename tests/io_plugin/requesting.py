"""Requests served from their scene to their map, without an engine."""

import base64
from typing import Any

import numpy as np
from rasterio.io import MemoryFile

from vllm_raster_io.answers import RasterAnswer
from vllm_raster_io.contract import RasterContract
from vllm_raster_io.jobs import Job

from .networks import PixelNetwork
from .requested import request
from .scenes import Array

BANDS = ("BLUE", "GREEN", "RED", "NIR")


def mapped(
    content: bytes,
    contract: RasterContract,
    *,
    network: type[PixelNetwork] = PixelNetwork,
    **fields: Any,
) -> RasterAnswer:
    with Job(request(content, **fields), contract) as job:
        answering = network(contract)
        return job.answer([answering(item) for item in job.items()], None)


def pixels_of(answer: RasterAnswer) -> Array:
    with MemoryFile(base64.b64decode(answer.data)) as memory, memory.open() as dataset:
        assert dataset.shape == (answer.height, answer.width)
        assert set(dataset.dtypes) == {answer.dtype}
        np.testing.assert_equal(dataset.nodata, np.nan if answer.nodata == "nan" else answer.nodata)
        return dataset.read()


def noise(height: int, width: int) -> Array:
    chance = np.random.default_rng([height, width])
    return chance.integers(0, 5_000, (4, height, width)).astype(np.uint16)
