"""The seam to vLLM: the one file of this package that touches its moving parts.

Everything else imports vLLM's names from here. Written for vLLM 0.32, read against 0.33.
"""

import asyncio
import gc
from typing import Any

from vllm_raster_io.engine_version import require_vllm

require_vllm()  # before the imports below fail for a reason that says nothing

from starlette.requests import Request
from vllm.config import VllmConfig
from vllm.entrypoints.pooling.pooling.protocol import IOProcessorRequest
from vllm.entrypoints.pooling.pooling.serving import ServingPooling
from vllm.inputs import PromptType
from vllm.outputs import PoolingRequestOutput
from vllm.plugins.io_processors.interface import IOProcessor
from vllm.pooling_params import PoolingParams
from vllm.renderers import BaseRenderer
from vllm.v1.engine.async_llm import AsyncLLM

from vllm_raster_io.bodies import BodyReader
from vllm_raster_io.errors import LimitError, RequestError
from vllm_raster_io.limits import LIMITS

POOLING_TASK = "token_classify"
"""The task that both of vLLM's model runners accept and that sees every token; `plugin`, which
vLLM would choose, is refused by the second one."""

_ROUTE = "/pooling"
_NO_DOMAIN = "none.invalid"


def takes_priorities(vllm_config: VllmConfig) -> bool:
    """Whether the engine's scheduler looks at the priority of a request."""
    scheduler = getattr(vllm_config, "scheduler_config", None)
    return getattr(scheduler, "policy", None) == "priority"


def fetch_no_media(vllm_config: VllmConfig) -> None:
    """Has the server fetch no URL for a client, unless whoever started it named domains.

    vLLM looks up what a chat message names, on more routes than one, before the model is asked.
    """
    config = vllm_config.model_config
    if not getattr(config, "allowed_media_domains", None):
        config.allowed_media_domains = [_NO_DOMAIN]


def keep_event_loop_free() -> None:
    """Keeps the server answering while a large scene comes in; may be called twice.

    It also ends requests that take longer than allowed.

    Three places of the server would hold it up, by a second for a scene of 100 MB and 2,000
    windows, and none can be reached by a hook: the reading of a body, which is done here as it
    arrives, the opening of a scene, which is done here in a thread, and the handing over of
    windows to the engine, which is done here one by one.
    """
    if getattr(Request.body, "__module__", None) != __name__:
        # What is here by now stays: looking through all of it for garbage takes 0.2 s.
        gc.freeze()
        _read_bodies_as_they_arrive()
        _open_scenes_in_threads()
        _hand_over_one_by_one()
        _end_in_time()


def _read_bodies_as_they_arrive() -> None:
    whole_body, whole_json = Request.body, Request.json

    async def body(self: Request) -> bytes:
        if not hasattr(self, "_body") and _may_hold_scene(self):
            reader = BodyReader()
            async for chunk in self.stream():
                reader.feed(chunk)
            self._body, self._raster_body = reader.rest, reader
        return await whole_body(self)

    async def json(self: Request) -> Any:
        await self.body()
        if not hasattr(self, "_json") and hasattr(self, "_raster_body"):
            self._json = self._raster_body.parse()
        return await whole_json(self)

    Request.body, Request.json = body, json


def _may_hold_scene(request: Request) -> bool:
    kind = request.headers.get("content-type", "")
    return request.method == "POST" and request.url.path.endswith(_ROUTE) and "json" in kind


def _open_scenes_in_threads() -> None:
    preprocess = ServingPooling._preprocessing

    async def preprocessing(self: ServingPooling, io_processor: Any, ctx: Any) -> None:
        if not isinstance(ctx.request, IOProcessorRequest):
            # Text has no map, and vLLM answers some of it with 500.
            raise RequestError("This server maps rasters, not text: send one in `data`")
        job = await io_processor.io_processor.open(ctx.request.data)
        ctx.request.data = job
        if job.request.priority is not None:
            ctx.priorities = job.request.priority
        await preprocess(self, io_processor, ctx)

    ServingPooling._preprocessing = preprocessing


def _hand_over_one_by_one() -> None:
    add_at_once = AsyncLLM.add_request
    turn = asyncio.Lock()

    async def add_request(self: AsyncLLM, *args: Any, **kwargs: Any) -> Any:
        async with turn:
            collector = await add_at_once(self, *args, **kwargs)
            await asyncio.sleep(0)
        return collector

    AsyncLLM.add_request = add_request


def _end_in_time() -> None:
    serve = ServingPooling.__call__

    async def serve_in_time(self: ServingPooling, *args: Any, **kwargs: Any) -> Any:
        seconds = LIMITS.seconds
        try:
            async with asyncio.timeout(seconds) as timeout:
                return await serve(self, *args, **kwargs)
        except TimeoutError:
            if not timeout.expired():
                raise
            raise LimitError(
                f"The request took longer than the {seconds} s that are allowed; send less at once"
            ) from None

    ServingPooling.__call__ = serve_in_time


__all__ = [
    "POOLING_TASK",
    "BaseRenderer",
    "IOProcessor",
    "PoolingParams",
    "PoolingRequestOutput",
    "PromptType",
    "VllmConfig",
    "fetch_no_media",
    "keep_event_loop_free",
    "takes_priorities",
]
