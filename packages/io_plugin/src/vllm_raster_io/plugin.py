"""The IO processor: what vLLM calls before and after the engine.

Online through `POST /pooling`, offline through `LLM.encode({"data": …})`. vLLM calls the
synchronous hooks only; the asynchronous ones are for those who drive `AsyncLLM` themselves.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any
from uuid import uuid4

from vllm_raster_io.access import Access
from vllm_raster_io.answers import RasterAnswer
from vllm_raster_io.contract import RasterContract
from vllm_raster_io.datasets import accept_missing_reference
from vllm_raster_io.deadlines import Deadline
from vllm_raster_io.engine import (
    POOLING_TASK,
    BaseRenderer,
    IOProcessor,
    PoolingParams,
    PoolingRequestOutput,
    PromptType,
    VllmConfig,
    fetch_no_media,
    keep_event_loop_free,
    takes_priorities,
)
from vllm_raster_io.errors import RequestError, ServingError
from vllm_raster_io.jobs import Job
from vllm_raster_io.limits import LIMITS
from vllm_raster_io.pace import Pace
from vllm_raster_io.pending import PendingJobs, digit_ids
from vllm_raster_io.requests import RasterRequest
from vllm_raster_io.settings import Settings

_FETCHES = 8
"""How many requests may fetch files at once; more of them wait, and hold up no others."""


class RasterIOProcessor(IOProcessor[RasterRequest | Job, RasterAnswer]):
    """Turns a request's raster into windows, and the windows' maps into a raster.

    Raises:
        ContractError: The checkpoint has no usable `raster` block or tokenizer.
        SettingsError: What clients are allowed is said in a way that cannot be.
    """

    def __init__(self, vllm_config: VllmConfig, renderer: BaseRenderer) -> None:
        super().__init__(vllm_config, renderer)
        settings = Settings.load()
        LIMITS.set(settings.limits)
        accept_missing_reference()
        fetch_no_media(vllm_config)
        keep_event_loop_free()
        config = vllm_config.model_config.hf_config
        self.contract = RasterContract.of(config)
        self._image_token_id: int = config.image_token_id
        self._tokenizer = renderer.tokenizer
        digits = digit_ids(config, self.contract, self._tokenizer)
        self._pending = PendingJobs(digits)
        self._between = digits[0]
        # Where there are instructions, several images of a prompt are read together.
        several = self.contract.instructions is None
        self._most_windows: int = getattr(config, "max_images", 1) if several else 1
        self._usual_windows: int = getattr(config, "usual_images", self._most_windows)
        self.pace = Pace()
        self._takes_priorities = takes_priorities(vllm_config)
        self._access = Access(settings)
        # What the model is asked for by the request that this task or thread is about; not of the
        # module, for the request of another checkpoint may need more.
        self._asked: ContextVar[Mapping[str, str]] = ContextVar("asked")
        # Apart from all others, for a slow host keeps a thread busy.
        self._fetchers = ThreadPoolExecutor(_FETCHES, "raster-fetch")

    def parse_data(self, data: object) -> RasterRequest | Job:
        """Reads a request (`parse_request` in the guides), unless that was done before.

        Raises:
            RequestError: A field is wrong; names each.
        """
        return data if isinstance(data, RasterRequest | Job) else RasterRequest.parse(data)

    async def open(self, data: object, priority: int = 0) -> Job:
        """Reads a request and opens its scene, in a thread: some files take long to come or open.

        Args:
            data: The request.
            priority: What stands beside it in the body, a field of vLLM's own; 0 says nothing.

        Raises:
            RasterIOError: The request cannot be served; the message says why.
        """
        executor = self._fetchers if _is_to_be_fetched(data) else None
        deadline = Deadline(LIMITS.seconds, "The request")
        made: list[Job] = []

        def make() -> Job:
            made.append(self._job(_with_priority(self.parse_data(data), priority), deadline))
            if deadline.cancelled:
                made[0].close()
            return made[0]

        try:
            return await asyncio.get_running_loop().run_in_executor(executor, make)
        except asyncio.CancelledError:
            # The thread goes on: one of the two sees what the other has done.
            deadline.cancel()
            for job in made:
                job.close()
            raise

    def merge_pooling_params(self, params: PoolingParams | None = None) -> PoolingParams:
        """Sets the pooling task (`validate_or_generate_params` in the guides).

        Between `pre_process` or `pre_process_async` and their counterpart in the same task or
        thread, as vLLM calls it, it also asks for the least that this request's map can be made
        of, see `Job.asked`. Otherwise it asks for scores.

        Returns:
            New parameters: those given may be for other requests, too, which need more.
        """
        params = PoolingParams() if params is None else params.clone()
        params.task = POOLING_TASK
        if asked := self._asked.get({}):
            params.extra_kwargs = {**(params.extra_kwargs or {}), **asked}
        return params

    def pre_process(
        self, prompt: RasterRequest | Job, request_id: str | None = None, **kwargs: Any
    ) -> Sequence[PromptType]:
        """Cuts a request's scene into prompts, of a window or some. No pixel is read yet.

        Raises:
            RasterIOError: The request cannot be served; the message says why.
        """
        self._refuse_priority(prompt)
        return self._prompts(self._job(prompt))

    async def pre_process_async(
        self, prompt: RasterRequest | Job, request_id: str | None = None, **kwargs: Any
    ) -> Sequence[PromptType]:
        """Like `pre_process`, with the file decoded and opened in a thread."""
        self._refuse_priority(prompt)
        return self._prompts(await self.open(prompt))

    def post_process(
        self,
        model_output: Sequence[PoolingRequestOutput],
        request_id: str | None = None,
        **kwargs: Any,
    ) -> RasterAnswer:
        """Puts the windows' maps together and writes the answer.

        Args:
            model_output: The engine's outputs in the order of the prompts; without `data` where
                that was fed before.
            request_id: Goes into the answer; it is no key.
            **kwargs: Not used.

        Raises:
            ServingError: The outputs are not those of one request.
        """
        self._asked.set({})
        job = self._pending.take([one.prompt_token_ids for one in model_output])
        try:
            for i, output in enumerate(model_output):
                _feed(job, i, output)
            return job.answer((), request_id)
        finally:
            job.close()

    def feed(self, index: int, output: PoolingRequestOutput) -> None:
        """Takes the output of one prompt of a request, in any order; its `data` is None then.

        So no more of a scene's scores is in memory than is needed. What was not fed,
        `post_process` takes.

        Args:
            index: The place of the prompt.
            output: What came of it.

        Raises:
            ServingError: The output is not that of a request that is under way.
            LimitError: It takes too long, or nobody waits for it any more.
        """
        _feed(self._pending.find(output.prompt_token_ids), index, output)

    async def post_process_async(
        self,
        model_output: AsyncGenerator[tuple[int, PoolingRequestOutput]],
        request_id: str | None = None,
        **kwargs: Any,
    ) -> RasterAnswer:
        """Like `post_process`, of outputs that come in any order, with the work in a thread.

        Args:
            model_output: Gives each output with the place of its prompt.
            request_id: Goes into the answer; it is no key.
            **kwargs: Not used.

        Raises:
            ServingError: The outputs are not those of one request.
        """
        self._asked.set({})
        outputs: dict[int, PoolingRequestOutput] = {}
        async for i, one in model_output:
            outputs[i] = one
            await asyncio.to_thread(self.feed, i, one)
        if sorted(outputs) != list(range(len(outputs))):
            raise ServingError(f"Outputs came for the prompts {sorted(outputs)}, some are missing")
        in_order = [outputs[i] for i in range(len(outputs))]
        return await asyncio.to_thread(self.post_process, in_order, request_id)

    def _job(self, prompt: RasterRequest | Job, deadline: Deadline | None = None) -> Job:
        if isinstance(prompt, Job):
            return prompt
        if prompt.priority and not self._takes_priorities:
            raise RequestError(
                "`priority` is refused: this server takes requests as they come. Leave it out, or "
                "have the server started with --scheduling-policy priority"
            )
        return Job(
            prompt,
            self.contract,
            self._access,
            deadline,
            self._tokenizer,
            self.pace.prompt_size(self._usual_windows, self._most_windows),
        )

    @staticmethod
    def _refuse_priority(prompt: RasterRequest | Job) -> None:
        """A server tells the scheduler; for others only they themselves can."""
        if isinstance(prompt, RasterRequest) and prompt.priority is not None:
            raise RequestError(
                "`priority` is for requests to a server. Give it to the engine: "
                "LLM.encode(..., priority=...)"
            )

    def _prompts(self, job: Job) -> list[PromptType]:
        self._asked.set(job.asked)
        opening, key = self._opening(job.instruction), self._pending.add(job)
        all_items = job.items()
        # Two images may not touch.
        another = [self._between, self._image_token_id]
        return [
            {
                "prompt_token_ids": [*opening, *another * (len(items) - 1), *key],
                "multi_modal_data": {"image": items if len(items) > 1 else items[0]},
                # Names of their own spare vLLM to read and hash the pixels.
                "multi_modal_uuids": {"image": [uuid4().hex for _ in items]},
            }
            for items in ([all_items[i] for i in one] for one in job.prompts)
        ]

    def _opening(self, instruction: str | None) -> list[int]:
        """The tokens of a prompt before its key: the instruction, if any, and the image."""
        if instruction is None or self.contract.instructions is None:
            return [self._image_token_id]
        return list(self._tokenizer.encode(self.contract.instructions.prompt(instruction)))


def _feed(job: Job, index: int, output: PoolingRequestOutput) -> None:
    """Hands over what came of a prompt, which the output then has no more."""
    data, output.outputs.data = output.outputs.data, None
    if data is not None:
        # From half precision to single, numpy takes twenty times as long.
        job.feed_prompt(index, (data.float() if data.is_floating_point() else data).numpy())


def _with_priority(request: RasterRequest | Job, beside: int) -> RasterRequest | Job:
    """A request with the priority that stands beside it, which vLLM's usual scheduler ignores."""
    if isinstance(request, Job) or beside in (0, request.priority):
        return request
    if request.priority is not None:
        raise RequestError(
            f"`priority` is {request.priority} within `data` and {beside} beside it: leave one out"
        )
    return request.model_copy(update={"priority": beside})


def _is_to_be_fetched(data: object) -> bool:
    asked = data.get("data_format") if isinstance(data, dict) else None
    return (data.data_format if isinstance(data, RasterRequest) else asked) == "url"
