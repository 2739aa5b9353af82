"""The jobs under way, each found again by a random key of its own.

vLLM gives `post_process` nothing of what `pre_process` made but the prompts' tokens; a request's
id may be chosen by its client, and twice. So the key travels as the last tokens of each prompt.
Nothing tells of a request that failed in between, so a job is let go when the task that serves
the request ends, however it ends.
"""

import asyncio
import secrets
import threading
from collections.abc import Sequence
from typing import Any

from vllm_raster_io.contract import RasterContract
from vllm_raster_io.errors import ContractError, RequestError, ServingError
from vllm_raster_io.instructions import Tokenizer
from vllm_raster_io.jobs import Job

_DIGITS = "0123456789abcdef"
_KEY_LENGTH = 8


class PendingJobs:
    """Keeps jobs from `add` to `take`.

    Args:
        digit_ids: Token ids of the hexadecimal digits, in order.
    """

    def __init__(self, digit_ids: Sequence[int]) -> None:
        self._digit_ids = list(digit_ids)
        self._jobs: dict[tuple[int, ...], Job] = {}
        self._offline: dict[int, tuple[int, ...]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: Job) -> list[int]:
        """Keeps a job until it is taken, or until the request that it belongs to is over.

        That is, until the asyncio task that calls this ends, or, outside of one, until the same
        thread adds its next job: `LLM.encode` is not left before its answer is there.

        Returns:
            The key, as the tokens to end each of the job's prompts with.
        """
        with self._lock:
            key = self._free_key()
            self._jobs[key] = job
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        if task is not None:
            task.add_done_callback(lambda _: self._end(key, job))
        else:
            thread = threading.get_ident()
            with self._lock:
                last = self._offline.get(thread, ())
                self._offline[thread] = key
            self._drop(last)
        return list(key)

    def find(self, prompt: Sequence[int]) -> Job:
        """Gives the job that a prompt belongs to; it stays here.

        Raises:
            RequestError: The prompt does not end with a key: it was cut, as the client asked.
            ServingError: It belongs to no job.
        """
        with self._lock:
            return _there(self._jobs.get(self._key_of(prompt)))

    def take(self, prompts: Sequence[Sequence[int]]) -> Job:
        """Gives out the job that these prompts belong to; the caller closes it.

        Args:
            prompts: The token ids of each of the job's prompts.

        Raises:
            RequestError: A prompt does not end with a key: it was cut, as the client asked.
            ServingError: They belong to no job, or to several.
        """
        keys = {self._key_of(prompt) for prompt in prompts}
        if len(keys) != 1:
            raise ServingError(f"The outputs belong to {len(keys)} requests, expected one")
        with self._lock:
            return _there(self._jobs.pop(keys.pop(), None))

    def _key_of(self, prompt: Sequence[int]) -> tuple[int, ...]:
        last = list(prompt[-2 * _KEY_LENGTH :])
        # The model may have put tokens of its own behind the key.
        while last and last[-1] not in self._digit_ids:
            last.pop()
        key = tuple(last[-_KEY_LENGTH:])
        if len(key) < _KEY_LENGTH or not {*key} <= {*self._digit_ids}:
            raise RequestError(
                "The end of a window's prompt is missing, which tells whose it is: leave out "
                "`truncate_prompt_tokens`"
            )
        return key

    def _end(self, key: tuple[int, ...], job: Job) -> None:
        job.give_up()
        # Apart, for it waits for a window that is being read.
        asyncio.get_running_loop().run_in_executor(None, self._drop, key)

    def _drop(self, key: tuple[int, ...]) -> None:
        with self._lock:
            job = self._jobs.pop(key, None)
        if job is not None:
            job.close()

    def _free_key(self) -> tuple[int, ...]:
        while True:
            key = tuple(self._digit_ids[secrets.randbelow(16)] for _ in range(_KEY_LENGTH))
            if key not in self._jobs:
                return key


def _there(job: Job | None) -> Job:
    if job is None:
        raise ServingError("The outputs belong to no request that is under way")
    return job


def digit_ids(config: Any, contract: RasterContract, tokenizer: Tokenizer | None) -> list[int]:
    """The token of each hexadecimal digit, in which requests' keys are written.

    Args:
        config: The checkpoint's configuration.
        contract: What it says of rasters.
        tokenizer: The checkpoint's, if vLLM has one.

    Raises:
        ContractError: Some digit has none, or another digit's, or that of the model's answer.
    """
    if tokenizer is None:
        digits = _stated_digit_ids(config, contract)
    else:
        digits = _known_digit_ids(tokenizer)
    if getattr(config, "answer_token_id", None) in digits:
        raise ContractError(
            f"config.json has answer_token_id={config.answer_token_id}, which is a digit for "
            "the tokenizer: requests are told apart by the digits that end their prompts"
        )
    return digits


def _known_digit_ids(tokenizer: Tokenizer) -> list[int]:
    """The token of each hexadecimal digit, in which requests' keys are written."""
    ids = [tokenizer.encode(digit, add_special_tokens=False) for digit in _DIGITS]
    if any(len(one) != 1 for one in ids) or len({one[0] for one in ids}) != len(_DIGITS):
        raise ContractError(
            "The checkpoint's tokenizer must have a token for each of the digits 0 to f, "
            f"got {dict(zip(_DIGITS, ids, strict=True))}"
        )
    return [one[0] for one in ids]


def _stated_digit_ids(config: Any, contract: RasterContract) -> list[int]:
    """The same where vLLM has no tokenizer to ask: the configuration says them.

    They are the attribute `digit_token_ids`; in vllm-raster-model that is what its minimal
    tokenizer has, unless config.json says otherwise.
    """
    if contract.instructions is not None:
        raise ContractError(
            "The checkpoint takes instructions, which need its tokenizer: "
            "start the server without --skip-tokenizer-init"
        )
    ids = list(getattr(config, "digit_token_ids", None) or [])
    if len(set(ids)) != len(_DIGITS) or len(ids) != len(_DIGITS) or config.image_token_id in ids:
        raise ContractError(
            "Without a tokenizer the checkpoint's configuration must give digit_token_ids, the "
            f"tokens of the digits 0 to f, none of them the image token, got {ids}: "
            "start the server without --skip-tokenizer-init"
        )
    return ids
