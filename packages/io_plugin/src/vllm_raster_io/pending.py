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

from vllm_raster_io.errors import RequestError, ServingError
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
