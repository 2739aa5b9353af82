"""A request's windows on their way: a few at once, whatever becomes of them."""

import asyncio
import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_raster_io.engine_windows import _Flight, prompts_at_once
from vllm_raster_io.errors import RasterError, RequestError
from vllm_raster_io.pace import Pace

BATCH = 4
AT_ONCE = BATCH + 2 * BATCH + 2
LONGEST = 100


def vllm_config(
    tokens: int = 100 * BATCH, sequences: int = 64, scheduled: int | None = None
) -> Any:
    scheduler = SimpleNamespace(
        max_num_batched_tokens=tokens, max_num_seqs=sequences, max_num_scheduled_tokens=scheduled
    )
    model = SimpleNamespace(max_model_len=LONGEST)
    return SimpleNamespace(scheduler_config=scheduler, model_config=model)


class Request:
    """Of one window, with what stands for its pixels."""


class Server:
    """What is between a request and the engine, made up; counts what is on its way."""

    def __init__(self, fails: str = "", at: int = -1) -> None:
        self.fails, self.at = fails, at
        self.on_their_way = self.most = 0
        self.begun: list[int] = []
        self.fed: list[int] = []
        self.ended: list[int] = []
        self.vllm_config = vllm_config()
        self.io_processor = self
        self.pace = Pace()
        self.release = asyncio.Event()
        self.release.set()

    async def render_async(self, request: Request) -> dict[str, Any]:
        index = len(self.begun)
        self.begun.append(index)
        self.on_their_way += 1
        self.most = max(self.most, self.on_their_way)
        await asyncio.sleep(0)
        self._fail("read", index)
        return {"prompts": {"prompt_token_ids": [0] * 100}, "request": request}

    async def prepare(self, _: Any, part: Any) -> None:
        (part.rendered,) = part.engine_inputs
        part.index = int(part.prompt_request_ids[0].removeprefix("pooling-x-"))

    async def collect(self, _: Any, part: Any) -> None:
        try:
            # Those that came later are sometimes answered earlier.
            for _ in range(3 + part.index % 5):
                await asyncio.sleep(0)
            await self.release.wait()
            self._fail("computed", part.index)
        finally:
            self.ended.append(part.index)
        part.final_res_batch = [SimpleNamespace(index=part.index)]

    def feed(self, index: int, output: Any) -> None:
        assert output.index == index
        self._fail("fed", index)
        self.fed.append(index)
        self.on_their_way -= 1

    def _fail(self, where: str, index: int) -> None:
        if (where, index) == (self.fails, self.at):
            raise RasterError(f"{where} {index}")


async def answer(server: Server, count: int, watched: list[Any] | None = None) -> list[Any]:
    job = SimpleNamespace(
        prompt_bytes=1000, most_a_prompt=1, numbers=lambda _: 500, tells_pace=count > 1
    )
    context = SimpleNamespace(request=SimpleNamespace(data=job), request_id="pooling-x")
    with ThreadPoolExecutor(2) as blenders:
        steps: Any = (server.prepare, server.collect)
        flight = _Flight(server, server, context, steps, blenders)
        requests = [Request() for _ in range(count)]
        if watched is not None:
            watched.extend(map(weakref.ref, requests))
        waiting = flight.answer(requests)
        del requests
        return await waiting


async def test_a_prompt_that_is_too_long() -> None:
    server = Server()
    server.vllm_config.model_config.max_model_len = 99
    with pytest.raises(RequestError, match=r"`prompt` is too long: .* 100 tokens, .* reads 99"):
        await answer(server, 3)
    assert server.begun == [0]


@pytest.mark.parametrize("count", [1, 2, AT_ONCE, 200])
async def test_all_are_answered_in_order(count: int) -> None:
    server = Server()
    outputs = await answer(server, count)
    assert [one.index for one in outputs] == list(range(count))
    assert sorted(server.fed) == list(range(count))
    assert server.begun == list(range(count))


async def test_the_pace_is_that_of_scenes_that_tell_it() -> None:
    server = Server()
    await answer(server, 1)
    assert server.pace.numbers_a_second == 0
    await answer(server, 2)
    assert server.pace.numbers_a_second > 0


async def test_windows_that_fail_have_no_pace() -> None:
    server = Server("fed", 0)
    with pytest.raises(RasterError):
        await answer(server, 2)
    assert server.pace.numbers_a_second == 0


async def test_a_few_at_once() -> None:
    server, watched = Server(), []
    server.release.clear()
    task = asyncio.create_task(answer(server, 200, watched))
    for _ in range(100):
        await asyncio.sleep(0)
    assert server.most == AT_ONCE + 1  # with the first, which tells how many tokens one has
    server.release.set()
    await task
    assert server.most <= AT_ONCE + 1
    gc.collect()
    assert not any(one() for one in watched)


@pytest.mark.parametrize("where", ["read", "computed", "fed"])
@pytest.mark.parametrize("at", [0, 7, 199])
async def test_one_that_fails_ends_the_others(where: str, at: int) -> None:
    server = Server(where, at)
    with pytest.raises(RasterError, match=f"^{where} {at}$"):
        await answer(server, 200)
    assert len(server.begun) <= at + 2 * AT_ONCE
    begun = len(server.begun)
    await asyncio.sleep(0.01)
    assert len(server.begun) == begun


async def test_whoever_hangs_up_ends_them() -> None:
    server = Server()
    server.release.clear()
    task = asyncio.create_task(answer(server, 200))
    for _ in range(100):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(server.begun) == len(server.ended) == AT_ONCE + 1
    assert not server.fed


@pytest.mark.parametrize(
    ("budget", "tokens", "prompt_bytes", "windows", "expected"),
    [
        # Usual prompts, where there is room for longer ones; and such.
        ((16975, 256, 4291), 4291, 12_582_912, 4, 1 + 2 + 2),
        ((16975, 256, 4291), 16975, 50_331_648, 16, 1 + 2 + 2),
        ((8192, 256), 1056, 3_145_728, 1, 7 + 14 + 2),
        ((8192, 4), 1056, 3_145_728, 1, 4 + 8 + 2),
        ((8192, 256), 9000, 3_145_728, 1, 1 + 6 + 2),
        ((8192, 256), 1056, 2**27, 1, 7 + 2 + 2),
        ((8192, 256), 1056, 2**30, 1, 7 + 0 + 2),
        ((4291, 256), 4236, 12_582_912, 4, 1 + 2 + 2),
        ((4291, 256), 2122, 6_291_456, 2, 2 + 4 + 2),
        ((2122, 256), 2122, 6_291_456, 2, 1 + 3 + 2),
    ],
)
def test_how_many(
    budget: tuple[int, ...], tokens: int, prompt_bytes: int, windows: int, expected: int
) -> None:
    """A batch in the engine and two more, but large windows no more than memory has room for."""
    assert prompts_at_once(vllm_config(*budget), tokens, prompt_bytes, windows) == expected
