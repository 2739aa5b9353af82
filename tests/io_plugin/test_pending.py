"""Jobs are found again by their key alone, and let go when their request is over."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from vllm_raster_io import pending
from vllm_raster_io.errors import RequestError, ServingError
from vllm_raster_io.jobs import Job
from vllm_raster_io.pending import PendingJobs

DIGITS = list(range(100, 116))
PROMPT = [7, 7, 7, 8]


class FakeJob:
    def __init__(self) -> None:
        self.closed = 0
        self.given_up = False

    def give_up(self) -> None:
        self.given_up = True

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def jobs() -> PendingJobs:
    return PendingJobs(DIGITS)


def add(jobs: PendingJobs, job: FakeJob) -> list[int]:
    return jobs.add(cast(Job, job))


def take(jobs: PendingJobs, *keys: list[int]) -> Any:
    return jobs.take([PROMPT + key for key in keys])


async def closed(job: FakeJob) -> None:
    """Waits for it, which is done in a thread."""
    async with asyncio.timeout(10):
        while not job.closed:
            await asyncio.sleep(0.001)


class TestKeys:
    def test_are_tokens_of_digits(self, jobs: PendingJobs) -> None:
        key = add(jobs, FakeJob())
        assert len(key) == 8
        assert set(key) <= set(DIGITS)

    def test_lead_back_to_the_job(self, jobs: PendingJobs) -> None:
        async def serve() -> None:
            first, second = FakeJob(), FakeJob()
            key, other = add(jobs, first), add(jobs, second)
            assert key != other
            assert len(jobs) == 2
            assert take(jobs, other, other) is second
            assert take(jobs, key) is first
            assert len(jobs) == 0

        asyncio.run(serve())

    def test_differ_even_by_bad_chance(
        self, jobs: PendingJobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        digits = iter([3] * 8 + [3] * 8 + [4] * 8)
        monkeypatch.setattr(pending.secrets, "randbelow", lambda _: next(digits))

        async def serve() -> None:
            assert add(jobs, FakeJob()) == [103] * 8
            assert add(jobs, FakeJob()) == [104] * 8

        asyncio.run(serve())


class TestUnknownKeys:
    def test_one_that_was_never_given(self, jobs: PendingJobs) -> None:
        key = add(jobs, FakeJob())
        with pytest.raises(ServingError, match="belong to no request"):
            take(jobs, key[1:] + key[:1] if len({*key}) > 1 else [100] * 8)
        assert len(jobs) == 1

    @pytest.mark.parametrize("after", [[], [1]])
    @pytest.mark.parametrize("left", range(8))
    def test_one_that_was_cut(self, jobs: PendingJobs, left: int, after: list[int]) -> None:
        """The words of an instruction may hold digits too."""
        key = add(jobs, FakeJob())
        for words in ([], [100, 101], [*key, 1, 2, 3, 4, 5, 6, 7]):
            with pytest.raises(RequestError, match="leave out `truncate_prompt_tokens`"):
                jobs.take([[*words, 1, 2, *key[:left], *after]])
        assert take(jobs, [*key, *after]) is not None

    def test_one_that_was_taken(self, jobs: PendingJobs) -> None:
        key = add(jobs, FakeJob())
        take(jobs, key)
        with pytest.raises(ServingError, match="belong to no request"):
            take(jobs, key)

    def test_those_of_two_requests(self, jobs: PendingJobs) -> None:
        async def serve() -> None:
            keys = [add(jobs, FakeJob()) for _ in range(2)]
            with pytest.raises(ServingError, match="belong to 2 requests"):
                take(jobs, *keys)
            assert len(jobs) == 2

        asyncio.run(serve())

    def test_none(self, jobs: PendingJobs) -> None:
        with pytest.raises(ServingError, match="belong to 0 requests"):
            jobs.take([])


class TestOnline:
    """The task that serves a request ends, however it ends."""

    def test_it_fails(self, jobs: PendingJobs) -> None:
        job = FakeJob()

        async def serve() -> None:
            add(jobs, job)
            raise RuntimeError

        async def serve_and_go_on() -> None:
            task = asyncio.create_task(serve())
            await asyncio.wait([task])
            assert isinstance(task.exception(), RuntimeError)
            await closed(job)
            assert (len(jobs), job.given_up) == (0, True)

        asyncio.run(serve_and_go_on())

    def test_it_is_cancelled(self, jobs: PendingJobs) -> None:
        job, other = FakeJob(), FakeJob()

        async def serve(job: FakeJob) -> None:
            add(jobs, job)
            await asyncio.Event().wait()

        async def hang_up() -> None:
            tasks = [asyncio.create_task(serve(one)) for one in (job, other)]
            await asyncio.sleep(0)
            assert len(jobs) == 2
            tasks[0].cancel()
            await asyncio.wait(tasks[:1])
            await closed(job)
            assert (len(jobs), other.given_up, other.closed) == (1, False, 0)
            tasks[1].cancel()

        asyncio.run(hang_up())
        assert (len(jobs), other.closed) == (0, 1)

    def test_it_ends_without_an_answer(self, jobs: PendingJobs) -> None:
        job = FakeJob()

        async def serve() -> None:
            add(jobs, job)

        asyncio.run(serve())
        assert (len(jobs), job.closed) == (0, 1)

    def test_a_job_that_was_taken_is_the_takers(self, jobs: PendingJobs) -> None:
        job = FakeJob()

        async def serve() -> None:
            key = add(jobs, job)
            await asyncio.to_thread(take, jobs, key)

        asyncio.run(serve())
        assert (len(jobs), job.given_up, job.closed) == (0, True, 0)

    def test_a_task_may_have_several(self, jobs: PendingJobs) -> None:
        added = [FakeJob() for _ in range(3)]

        async def serve() -> None:
            keys = [add(jobs, job) for job in added]
            take(jobs, keys[1])

        asyncio.run(serve())
        assert [job.closed for job in added] == [1, 0, 1]


class SlowJob(FakeJob):
    def close(self) -> None:
        time.sleep(0.3)  # as where a window is being read
        super().close()


def test_closing_holds_nobody_up(jobs: PendingJobs) -> None:
    job = SlowJob()

    async def serve() -> None:
        add(jobs, job)

    async def wait() -> float:
        await asyncio.create_task(serve())
        started = time.monotonic()
        await asyncio.sleep(0.01)
        return time.monotonic() - started

    assert asyncio.run(wait()) < 0.2
    assert job.closed == 1


class TestOffline:
    """There is no task, but a thread has one request at a time."""

    def test_the_next_one_lets_go_of_the_one_before(self, jobs: PendingJobs) -> None:
        first, second = FakeJob(), FakeJob()
        add(jobs, first)
        assert (len(jobs), first.closed) == (1, 0)
        key = add(jobs, second)
        assert (len(jobs), first.closed, second.closed) == (1, 1, 0)
        assert take(jobs, key) is second

    def test_one_that_was_taken_is_left_alone(self, jobs: PendingJobs) -> None:
        first = FakeJob()
        take(jobs, add(jobs, first))
        add(jobs, FakeJob())
        assert first.closed == 0

    def test_threads_do_not_mind_one_another(self, jobs: PendingJobs) -> None:
        mine = FakeJob()
        key = add(jobs, mine)
        thread = threading.Thread(target=add, args=(jobs, FakeJob()))
        thread.start()
        thread.join()
        assert mine.closed == 0
        assert take(jobs, key) is mine


def test_many_threads_at_once(jobs: PendingJobs) -> None:
    count = 200
    wrong: list[int] = []

    def serve(tokens: Iterator[int]) -> None:
        for _ in tokens:
            job = FakeJob()
            if take(jobs, add(jobs, job)) is not job:
                wrong.append(1)

    threads = [threading.Thread(target=serve, args=(iter(range(count)),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(jobs) == 0
