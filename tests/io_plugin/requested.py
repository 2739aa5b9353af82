"""What a request is answered, what the network sees of it, and why it is refused."""

import base64
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from vllm_raster_io.answers import RasterAnswer
from vllm_raster_io.contract import RasterContract
from vllm_raster_io.errors import RasterError, RasterIOError
from vllm_raster_io.jobs import Job
from vllm_raster_io.requests import RasterRequest

from .networks import PixelNetwork
from .scenes import Array


def answered(source: bytes | list[bytes], contract: RasterContract, **fields: Any) -> RasterAnswer:
    """What a request is answered, by a network whose pixels each depend on one."""
    with closing(Job(request(source, **fields), contract)) as job:
        network = PixelNetwork(contract)
        return job.answer([network(item) for item in job.items()], None)


def seen(source: bytes | list[bytes], contract: RasterContract, **fields: Any) -> Array:
    """The pixels that the network sees, of a scene that is one window."""
    with closing(Job(request(source, **fields), contract)) as job:
        (item,) = job.items()
        return np.asarray(item["pixel_values"])


def refused(
    source: bytes | list[bytes],
    contract: RasterContract,
    kind: type[RasterIOError] = RasterError,
    **fields: Any,
) -> str:
    """Why a request is refused."""
    with pytest.raises(RasterIOError) as caught:
        seen(source, contract, **fields)
    assert type(caught.value) is kind
    return str(caught.value)


def request(source: bytes | list[bytes], **fields: Any) -> RasterRequest:
    whole = isinstance(source, bytes)
    data = encoded(source) if whole else [encoded(one) for one in source]
    return RasterRequest.parse({"data": data, **fields})


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
