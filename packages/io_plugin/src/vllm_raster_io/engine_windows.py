"""The second part of the seam to vLLM: the way of a request's windows through the server.

vLLM reads all windows of a request, hands all of them to the engine, and keeps what comes back of
each until it has all: a large scene would be in memory several times over. Here a few are on
their way at once, and what comes back goes into the map right away. Written for vLLM 0.32, read
against 0.33.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from copy import copy
from typing import Any

from vllm.config import VllmConfig
from vllm.entrypoints.pooling.pooling.protocol import IOProcessorRequest
from vllm.entrypoints.pooling.pooling.serving import ServingPooling

from vllm_raster_io.errors import RequestError
from vllm_raster_io.pace import Pace
from vllm_raster_io.requests import refuse_fields_beside_data

_BLENDERS = 2
"""How many maps windows may be laid into at once."""
_BATCHES_AHEAD, _LEAST_AHEAD = 2, 6
_BYTES_AHEAD = 2**28
_BEING_READ = 2

Step = Callable[[ServingPooling, Any], Awaitable[None]]


def send_windows_a_few_at_once() -> None:
    """Bounds how many prompts of a request are on their way; to be called once."""
    prepare, collect = ServingPooling._prepare_generators, ServingPooling._collect_batch
    blenders = ThreadPoolExecutor(_BLENDERS, "raster-blend")

    async def preprocessing(self: ServingPooling, io_processor: Any, ctx: Any) -> None:
        if not isinstance(ctx.request, IOProcessorRequest):
            # Text has no map, and vLLM answers some of it with 500.
            raise RequestError("This server maps rasters, not text: send one in `data`")
        refuse_fields_beside_data(ctx.request.model_extra or {})
        # In a thread: some files take long to come or open.
        job = await io_processor.io_processor.open(
            ctx.request.data, getattr(ctx.request, "priority", 0)
        )
        ctx.request.data = job
        if job.request.priority is not None:
            ctx.priorities = job.request.priority
        flight = _Flight(self, io_processor, ctx, (prepare, collect), blenders)
        ctx.final_res_batch = await flight.answer(io_processor.get_request_factory_online(ctx))

    async def nothing(self: ServingPooling, ctx: Any) -> None:
        """All is done: vLLM's own steps were taken prompt by prompt."""

    ServingPooling._preprocessing = preprocessing
    ServingPooling._prepare_generators = ServingPooling._collect_batch = nothing


def prompts_at_once(
    vllm_config: VllmConfig, tokens: int, prompt_bytes: int, windows: int = 1
) -> int:
    """How many prompts of a request may be on their way, so that the engine never waits for one.

    While it computes a batch, as many as fit into its budget, two more batches wait or come back,
    six windows at least, but of large ones no more than have 256 MiB; and two are being read.

    Args:
        vllm_config: Tells the budget.
        tokens: Of one prompt.
        prompt_bytes: Of its pixels.
        windows: That it has.
    """
    scheduler = vllm_config.scheduler_config
    step = scheduler.max_num_scheduled_tokens or scheduler.max_num_batched_tokens
    fitting = min(step // tokens, scheduler.max_num_seqs)
    batch = max(1, fitting)
    ahead = max(_BATCHES_AHEAD * batch, -(-_LEAST_AHEAD // windows))
    return batch + min(ahead, _BYTES_AHEAD // prompt_bytes) + _BEING_READ


class _Flight:
    """The prompts of one request: each is read, answered by the engine and laid into the map."""

    def __init__(
        self,
        serving: ServingPooling,
        io_processor: Any,
        ctx: Any,
        steps: tuple[Step, Step],
        blenders: Executor,
    ) -> None:
        self._serving, self._io_processor, self._ctx = serving, io_processor, ctx
        self._steps, self._blenders = steps, blenders
        self._pace: Pace = io_processor.io_processor.pace
        self._turn = asyncio.Lock()
        self._waiting: deque[tuple[int, Any]] = deque()
        self._outputs: dict[int, Any] = {}

    async def answer(self, requests: Sequence[Any]) -> list[Any]:
        """The outputs of all prompts, whose maps are in the scene's already, and not in them."""
        self._waiting.extend(enumerate(requests))
        count = len(requests)
        del requests  # each is let go, with its pixels, when it has been answered
        # How many tokens a prompt has is known when one is read.
        index, request = self._waiting.popleft()
        rendered = await self._io_processor.render_async(request)
        tokens = len(rendered["prompts"]["prompt_token_ids"])
        longest = self._serving.vllm_config.model_config.max_model_len
        if tokens > longest:
            raise RequestError(
                f"`prompt` is too long: with a window and its key it has {tokens} tokens, but the "
                f"model reads {longest}. Say it in fewer words"
            )
        job = self._ctx.request.data
        at_once = prompts_at_once(
            self._serving.vllm_config, tokens, job.prompt_bytes, job.most_a_prompt
        )
        try:
            with self._pace.request() if job.tells_pace else nullcontext():
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._answer(index, rendered))
                    del request, rendered
                    for _ in range(min(at_once, count)):
                        group.create_task(self._work())
        except ExceptionGroup as failures:
            # One that fails ends the others; what it says is for whoever asked.
            raise failures.exceptions[0] from None
        return [self._outputs[i] for i in range(count)]

    async def _work(self) -> None:
        while self._waiting:
            index, request = self._waiting.popleft()
            rendered = await self._io_processor.render_async(request)
            await self._answer(index, rendered)

    async def _answer(self, index: int, rendered: Any) -> None:
        part = copy(self._ctx)
        part.engine_inputs = [rendered]
        part.prompt_request_ids = [f"{part.request_id}-{index}"]
        for step in self._steps:
            await step(self._serving, part)
        (output,) = part.final_res_batch
        loop, processor = asyncio.get_running_loop(), self._io_processor.io_processor
        # Of one request one at a time, or it would take all threads and have them wait.
        async with self._turn:
            await loop.run_in_executor(self._blenders, processor.feed, index, output)
        job = part.request.data
        if job.tells_pace:
            self._pace.came(job.numbers(index))
        self._outputs[index] = output
