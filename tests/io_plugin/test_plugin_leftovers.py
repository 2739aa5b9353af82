"""What requests leave behind when they are over, however they end: nothing."""

import asyncio
import base64
import threading
import time
from typing import Any

import pytest

from vllm_raster_io import plugin
from vllm_raster_io.errors import (
    RasterError,
    ServingError,
)
from vllm_raster_io.jobs import Job
from vllm_raster_io.requests import RasterRequest
from vllm_raster_io.uploads import Upload

from ..factories import make_raster
from .processors import (
    Engine,
    make_processor,
)

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")


@pytest.fixture(autouse=True)
def _server_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # It changes how the whole process reads requests.
    monkeypatch.setattr(plugin, "keep_event_loop_free", lambda: None)


class TestNothingIsLeftBehind:
    """The file of a request is in memory only until the request is over."""

    def test_answered(self) -> None:
        processor, upload = make_processor(), Upload.of(make_raster())
        prompts = processor.pre_process(RasterRequest(data=upload))
        outputs = list(map(Engine(processor), prompts))
        assert upload.memory.exists()
        processor.post_process(outputs)
        assert not upload.memory.exists()

    def test_refused(self) -> None:
        upload = Upload.of(make_raster(bands=2))
        with pytest.raises(RasterError):
            make_processor().pre_process(RasterRequest(data=upload))
        assert not upload.memory.exists()

    def test_not_answered_for_an_error(self) -> None:
        processor, upload = make_processor(), Upload.of(make_raster())
        (prompt,) = processor.pre_process(RasterRequest(data=upload))
        output = Engine(processor)(prompt)
        output.outputs.data = output.outputs.data[:1]
        with pytest.raises(ServingError):
            processor.post_process([output])
        assert not upload.memory.exists()

    def test_the_engine_fails_or_the_client_is_gone(self) -> None:
        processor = make_processor()
        failed, gone, waiting = (Upload.of(make_raster()) for _ in range(3))
        fails = asyncio.Event()

        async def serve(upload: Upload) -> None:
            prompts = processor.pre_process(RasterRequest(data=upload))
            await fails.wait()
            Engine(processor)(prompts[1])  # there is but one

        async def serve_all() -> None:
            tasks = [asyncio.create_task(serve(one)) for one in (failed, gone, waiting)]
            await asyncio.sleep(0)
            tasks[1].cancel()
            await asyncio.wait(tasks[1:2])
            await asyncio.sleep(0)
            assert [one.memory.exists() for one in (failed, gone, waiting)] == [True, False, True]
            fails.set()
            await asyncio.wait(tasks)
            assert isinstance(tasks[0].exception(), IndexError)
            await asyncio.sleep(0)
            assert not failed.memory.exists()

        asyncio.run(serve_all())

    def test_hung_up_while_the_file_is_opened(self) -> None:
        processor, upload = make_processor(), Upload.of(make_raster())

        async def serve() -> None:
            await processor.pre_process_async(RasterRequest(data=upload))
            await asyncio.Event().wait()

        async def hang_up() -> None:
            task = asyncio.create_task(serve())
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.wait([task])

        asyncio.run(hang_up())
        assert not upload.memory.exists()

    def test_hung_up_while_it_is_fetched(self, monkeypatch: pytest.MonkeyPatch) -> None:
        processor, begun, closed = make_processor(), threading.Event(), threading.Event()

        class Slow:
            def __init__(self, request: Any, contract: Any, access: Any, deadline: Any) -> None:
                begun.set()
                while not deadline.cancelled:
                    time.sleep(0.001)

            def close(self) -> None:
                closed.set()

        monkeypatch.setattr(plugin, "Job", Slow)

        async def hang_up() -> None:
            body = {"data": "https://example.org/", "data_format": "url"}
            task = asyncio.create_task(processor.open(body))
            await asyncio.to_thread(begun.wait)
            task.cancel()
            await asyncio.wait([task])

        asyncio.run(hang_up())
        assert closed.wait(5)

    def test_offline_the_next_request_shows_that_the_last_is_over(self) -> None:
        processor = make_processor()
        uploads = [Upload.of(make_raster()) for _ in range(3)]
        for upload in uploads:
            processor.pre_process(RasterRequest(data=upload))
        assert [one.memory.exists() for one in uploads] == [False, False, True]

    def test_a_file_that_turns_out_to_be_damaged(self) -> None:
        processor = make_processor()
        upload = Upload.of(make_raster(height=200, width=200)[:-30_000])

        async def serve() -> None:
            prompts = processor.pre_process(RasterRequest(data=upload))
            for prompt in prompts:
                await asyncio.to_thread(Engine(processor), prompt)

        with pytest.raises(RasterError, match="damaged"):
            asyncio.run(serve())
        assert not upload.memory.exists()


async def test_what_is_fetched_slowly_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    processor, done = make_processor(), threading.Event()

    class Fetched(Job):
        def __init__(self, request: RasterRequest, *args: Any) -> None:
            if request.data_format == "url":
                done.wait()
                request = RasterRequest(data=scene)
            super().__init__(request, *args)

    monkeypatch.setattr(plugin, "Job", Fetched)
    scene = base64.b64encode(make_raster()).decode()
    body = {"data": "https://example.org/", "data_format": "url"}
    # More than there are threads, of the processor's and of the event loop's.
    slow = [asyncio.create_task(processor.open(body)) for _ in range(50)]
    quick = await asyncio.wait_for(processor.open({"data": scene}), 5)
    assert not any(one.done() for one in slow)
    done.set()
    for job in (quick, *await asyncio.gather(*slow)):
        job.close()
