"""The IO processor: what vLLM calls before and after the engine.

Online through `POST /pooling`, offline through `LLM.encode({"data": …})`. vLLM calls the
synchronous hooks only; the asynchronous ones are for those who drive `AsyncLLM` themselves.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any
from uuid import uuid4

from vllm_raster_io.contract import RasterContract
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
)
from vllm_raster_io.errors import ContractError, ServingError
from vllm_raster_io.jobs import Job
from vllm_raster_io.pending import PendingJobs
from vllm_raster_io.rasters import accept_missing_reference
from vllm_raster_io.requests import RasterAnswer, RasterRequest

_DIGITS = "0123456789abcdef"


class RasterIOProcessor(IOProcessor[RasterRequest | Job, RasterAnswer]):
    """Turns a request's raster into windows, and the windows' maps into a raster.

    Raises:
        ContractError: The checkpoint has no usable `raster` block or tokenizer.
    """

    def __init__(self, vllm_config: VllmConfig, renderer: BaseRenderer) -> None:
        super().__init__(vllm_config, renderer)
        accept_missing_reference()
        fetch_no_media(vllm_config)
        keep_event_loop_free()
        config = vllm_config.model_config.hf_config
        self.contract = RasterContract.of(config)
        self._image_token_id: int = config.image_token_id
        self._tokenizer = renderer.get_tokenizer()
        digits = _digit_ids(self._tokenizer)
        if getattr(config, "answer_token_id", None) in digits:
            raise ContractError(
                f"config.json has answer_token_id={config.answer_token_id}, which is a digit for "
                "the tokenizer: requests are told apart by the digits that end their prompts"
            )
        self._pending = PendingJobs(digits)

    def parse_data(self, data: object) -> RasterRequest | Job:
        """Reads a request (`parse_request` in the guides), unless that was done before.

        Raises:
            RequestError: A field is wrong; names each.
        """
        return data if isinstance(data, RasterRequest | Job) else RasterRequest.parse(data)

    async def open(self, data: object) -> Job:
        """Reads a request and opens its scene, in a thread: some files take long to open.

        Raises:
            RasterIOError: The request cannot be served; the message says why.
        """
        return await asyncio.to_thread(lambda: self._job(self.parse_data(data)))

    def merge_pooling_params(self, params: PoolingParams | None = None) -> PoolingParams:
        """Sets the pooling task (`validate_or_generate_params` in the guides)."""
        params = params or PoolingParams()
        params.task = POOLING_TASK
        return params

    def pre_process(
        self, prompt: RasterRequest | Job, request_id: str | None = None, **kwargs: Any
    ) -> Sequence[PromptType]:
        """Cuts a request's scene into prompts, one a window. No pixel is read yet.

        Raises:
            RasterIOError: The request cannot be served; the message says why.
        """
        return self._prompts(self._job(prompt))

    async def pre_process_async(
        self, prompt: RasterRequest | Job, request_id: str | None = None, **kwargs: Any
    ) -> Sequence[PromptType]:
        """Like `pre_process`, with the file decoded and opened in a thread."""
        return self._prompts(await self.open(prompt))

    def post_process(
        self,
        model_output: Sequence[PoolingRequestOutput],
        request_id: str | None = None,
        **kwargs: Any,
    ) -> RasterAnswer:
        """Puts the windows' maps together and writes the answer.

        Args:
            model_output: The engine's outputs in the order of the prompts.
            request_id: Goes into the answer; it is no key.
            **kwargs: Not used.

        Raises:
            ServingError: The outputs are not those of one request.
        """
        job = self._pending.take([one.prompt_token_ids for one in model_output])
        try:
            return job.answer([one.outputs.data.numpy() for one in model_output], request_id)
        finally:
            job.close()

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
        outputs = {i: one async for i, one in model_output}
        if sorted(outputs) != list(range(len(outputs))):
            raise ServingError(f"Outputs came for the prompts {sorted(outputs)}, some are missing")
        in_order = [outputs[i] for i in range(len(outputs))]
        return await asyncio.to_thread(self.post_process, in_order, request_id)

    def _job(self, prompt: RasterRequest | Job) -> Job:
        return prompt if isinstance(prompt, Job) else Job(prompt, self.contract)

    def _prompts(self, job: Job) -> list[PromptType]:
        token_ids = [*self._opening(job.instruction), *self._pending.add(job)]
        return [
            {
                "prompt_token_ids": list(token_ids),
                "multi_modal_data": {"image": item},
                # A name of its own spares vLLM to read and hash the pixels.
                "multi_modal_uuids": {"image": [uuid4().hex]},
            }
            for item in job.items()
        ]

    def _opening(self, instruction: str | None) -> list[int]:
        """The tokens of a prompt before its key: the instruction, if any, and the image."""
        if instruction is None or self.contract.instructions is None:
            return [self._image_token_id]
        return list(self._tokenizer.encode(self.contract.instructions.prompt(instruction)))


def _digit_ids(tokenizer: Any) -> list[int]:
    """The token of each hexadecimal digit, in which requests' keys are written."""
    ids = [tokenizer.encode(digit, add_special_tokens=False) for digit in _DIGITS]
    if any(len(one) != 1 for one in ids) or len({one[0] for one in ids}) != len(_DIGITS):
        raise ContractError(
            "The checkpoint's tokenizer must have a token for each of the digits 0 to f, "
            f"got {dict(zip(_DIGITS, ids, strict=True))}"
        )
    return [one[0] for one in ids]
