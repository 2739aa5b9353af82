"""The seam to vLLM: this and `engine_windows.py` touch its moving parts.

Everything else imports vLLM's names from here. Written for vLLM 0.32, read against 0.33.
"""

import asyncio
import gc
import json
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from vllm_raster_io.engine_version import require_vllm

require_vllm()  # before the imports below fail for a reason that says nothing

from fastapi import HTTPException
from starlette.requests import Request
from vllm.config import VllmConfig
from vllm.entrypoints.pooling.pooling.serving import ServingPooling
from vllm.inputs import PromptType
from vllm.outputs import PoolingRequestOutput
from vllm.plugins.io_processors.interface import IOProcessor
from vllm.pooling_params import PoolingParams
from vllm.renderers import BaseRenderer
from vllm.utils.async_utils import make_async
from vllm.v1.engine.async_llm import AsyncLLM

from vllm_raster_io.bodies import BodyReader
from vllm_raster_io.engine_windows import send_windows_a_few_at_once
from vllm_raster_io.errors import LimitError
from vllm_raster_io.limits import LIMITS
from vllm_raster_io.memory import give_memory_back
from vllm_raster_io.uploads import as_text

POOLING_TASK = "token_classify"
"""The task that both of vLLM's model runners accept and that sees every token; `plugin`, which
vLLM would choose, is refused by the second one."""

_ROUTES = ("/pooling", "/invocations")
_REWRITTEN = "/invocations"
_NO_DOMAIN = "none.invalid"
_ANSWERS = 2
"""How many maps may be written at once."""
_IDLE_SECONDS = 2.0
"""How long nobody must have asked for anything before memory is given back."""


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

    It also ends requests that take longer than allowed, and takes those that nobody waits for
    any more out of the engine at once.

    Four places of the server would hold it up, by a second for a scene of 100 MB and 2,000
    windows, and none can be reached by a hook: the reading of a body, which is done here as it
    arrives, the opening of a scene, which is done in a thread, the handing over of windows to the
    engine, which is done a few at once and one by one, and taking them back, done all together.
    """
    if getattr(Request.body, "__module__", None) != __name__:
        # What is here by now stays: looking through all of it for garbage takes 0.2 s.
        gc.freeze()
        _read_bodies_as_they_arrive()
        send_windows_a_few_at_once()
        _hand_over_one_by_one()
        _take_back_together()
        _end_in_time()


def _read_bodies_as_they_arrive() -> None:
    whole_body, whole_json = Request.body, Request.json

    async def body(self: Request) -> bytes:
        if not hasattr(self, "_body") and _may_hold_scene(self):
            self._raster_body = await _read_body(self)
            self._body = self._raster_body.rest
        return await whole_body(self)

    async def whole_value(self: Request) -> Any:
        await self.body()
        if not hasattr(self, "_json") and hasattr(self, "_raster_body"):
            parsed = _parsed(self._raster_body)
            # On that route what comes before vLLM writes the body as json once more.
            self._json = as_text(parsed) if self.url.path.endswith(_REWRITTEN) else parsed
        return await whole_json(self)

    Request.body, Request.json = body, whole_value


async def _read_body(request: Request) -> BodyReader:
    reader = BodyReader()
    try:
        async with asyncio.timeout(LIMITS.seconds):
            async for chunk in request.stream():
                reader.feed(chunk)
    except TimeoutError:
        reader.close()
        raise _refusal(
            f"The request's body did not come within the {LIMITS.seconds} s that are allowed; "
            "send less at once"
        ) from None
    except BaseException:
        reader.close()
        raise
    return reader


def _parsed(reader: BodyReader) -> Any:
    try:
        return reader.parse()
    except json.JSONDecodeError:
        raise  # which the server tells the client
    except LimitError as error:
        raise _refusal(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise _refusal(f"The request's body is not json that can be read: {error}") from None


def _refusal(message: str) -> HTTPException:
    # Of what else is raised while a body is read, the server tells the client nothing.
    return HTTPException(400, message)


def _may_hold_scene(request: Request) -> bool:
    kind = request.headers.get("content-type", "")
    return request.method == "POST" and request.url.path.endswith(_ROUTES) and "json" in kind


def _hand_over_one_by_one() -> None:
    add_at_once = AsyncLLM.add_request
    turn = asyncio.Lock()

    async def add_request(self: AsyncLLM, *args: Any, **kwargs: Any) -> Any:
        async with turn:
            adding = asyncio.ensure_future(add_at_once(self, *args, **kwargs))
            try:
                collector = await asyncio.shield(adding)
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                # vLLM takes nothing back of which it has not been told that it was taken.
                adding.add_done_callback(lambda done: _take_back(self, done))
                raise
        return collector

    AsyncLLM.add_request = add_request


def _take_back(engine: AsyncLLM, adding: asyncio.Future[Any]) -> None:
    if not adding.cancelled() and adding.exception() is None:
        collector = adding.result()
        collector.close()
        _keep(engine.abort(collector.request_id, internal=True))


def _take_back_together() -> None:
    abort_at_once = AsyncLLM.abort
    leaving: list[str] = []

    async def abort_all(self: AsyncLLM) -> None:
        # One by one, each would be looked for among all that wait.
        together = leaving.copy()
        leaving.clear()
        await abort_at_once(self, together, internal=True)

    async def abort(self: AsyncLLM, request_id: Any, internal: bool = False) -> None:
        if not internal or not isinstance(request_id, str):
            return await abort_at_once(self, request_id, internal)
        leaving.append(request_id)
        if len(leaving) == 1:
            # The others of the same client are told so in the same turn of the event loop.
            _keep(abort_all(self))

    AsyncLLM.abort = abort


_kept: set[asyncio.Task[None]] = set()


def _keep(work: Coroutine[Any, Any, None]) -> None:
    """Has something done by and by; the event loop itself keeps no hold of its tasks."""
    task = asyncio.ensure_future(work)
    _kept.add(task)
    task.add_done_callback(_kept.discard)


def _end_in_time() -> None:
    serve = ServingPooling.__call__
    # Not where windows are read and laid: those of others would wait for a large map.
    answers = ThreadPoolExecutor(_ANSWERS, "raster-answer")
    idle = _Idle()

    async def serve_in_time(self: ServingPooling, *args: Any, **kwargs: Any) -> Any:
        self._postprocessing_async = make_async(self._postprocessing, executor=answers)
        seconds = LIMITS.seconds
        try:
            with idle.not_now():
                async with asyncio.timeout(seconds) as timeout:
                    return await serve(self, *args, **kwargs)
        except TimeoutError:
            if not timeout.expired():
                raise
            raise LimitError(
                f"The request took longer than the {seconds} s that are allowed; send less at once"
            ) from None

    ServingPooling.__call__ = serve_in_time


class _Idle:
    """Gives memory back once nobody has asked for anything for a while."""

    def __init__(self) -> None:
        self._busy = 0
        self._soon: asyncio.TimerHandle | None = None

    @contextmanager
    def not_now(self) -> Iterator[None]:
        """For as long as a request is worked on."""
        self._busy += 1
        if self._soon is not None:
            self._soon.cancel()
        try:
            yield
        finally:
            self._busy -= 1
            if not self._busy:
                loop = asyncio.get_running_loop()
                self._soon = loop.call_later(_IDLE_SECONDS, self._give_back, loop)

    def _give_back(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._busy:
            loop.run_in_executor(None, give_memory_back)


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
