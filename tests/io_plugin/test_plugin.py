"""The hooks that vLLM calls, with a made-up engine between them."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from vllm.pooling_params import PoolingParams

from vllm_raster_io import plugin
from vllm_raster_io.answers import RasterAnswer
from vllm_raster_io.errors import (
    ContractError,
    RasterError,
    RequestError,
    ServingError,
    SettingsError,
)
from vllm_raster_io.limits import LimitsInForce
from vllm_raster_io.plugin import RasterIOProcessor
from vllm_raster_io.requests import RasterRequest

from ..factories import make_raster
from .networks import PixelNetwork
from .processors import (
    DIGIT_IDS,
    IMAGE_TOKEN,
    Engine,
    Tokenizer,
    make_processor,
    pixels_of,
    processor_of,
)
from .requested import request
from .scenes import raster_block

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

SIZES = [(64, 64), (64, 96), (96, 64)]


@pytest.fixture(autouse=True)
def _server_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # It changes how the whole process reads requests.
    monkeypatch.setattr(plugin, "keep_event_loop_free", lambda: None)


class TestStart:
    def test_reads_the_contract(self) -> None:
        contract = make_processor(channels=2, size=32).contract
        assert contract.output.channels == 2
        assert contract.tile.size == 32

    def test_without_a_raster_block(self) -> None:
        with pytest.raises(ContractError, match="needs a `raster` block"):
            processor_of(SimpleNamespace(image_token_id=IMAGE_TOKEN), Tokenizer())

    @pytest.mark.parametrize("ids", [{"7": [17, 18]}, {"7": []}, {"7": [16]}])
    def test_every_digit_needs_a_token_of_its_own(self, ids: dict[str, list[int]]) -> None:
        with pytest.raises(ContractError, match="a token for each of the digits 0 to f"):
            make_processor(tokenizer=Tokenizer(ids))

    def test_reads_the_settings(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("VLLM_RASTER_READ_ROOTS", str(tmp_path))
        monkeypatch.setenv("VLLM_RASTER_MAX_BANDS", "3")
        monkeypatch.setattr(plugin, "LIMITS", limits := LimitsInForce())
        processor = make_processor()
        assert limits.bands == 3
        (tmp_path / "scene.tif").write_bytes(make_raster(height=20, width=30))
        request = processor.parse_data({"data": "scene.tif", "data_format": "path"})
        answer = processor.post_process(
            list(map(Engine(processor), processor.pre_process(request)))
        )
        assert (answer.height, answer.width) == (20, 30)

    def test_wrong_settings_stop_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("VLLM_RASTER_READ_ROOT", "/")
        with pytest.raises(SettingsError, match="did you mean VLLM_RASTER_READ_ROOTS"):
            make_processor()

    def test_without_a_tokenizer_the_configuration_tells_the_digits(self) -> None:
        ids = list(DIGIT_IDS.values())
        config = SimpleNamespace(
            raster=raster_block("classes"), image_token_id=IMAGE_TOKEN, digit_token_ids=ids
        )
        prompt, *_ = processor_of(config, None).pre_process(request(make_raster()))
        image, *key = prompt["prompt_token_ids"]
        assert image == IMAGE_TOKEN
        assert set(key) <= set(ids)

    @pytest.mark.parametrize(
        "ids", [None, [], range(10, 25), [10] * 16, range(16)], ids=lambda ids: str(ids)[:12]
    )
    def test_without_a_tokenizer_and_digits(self, ids: Any) -> None:
        config = SimpleNamespace(
            raster=raster_block("classes"), image_token_id=IMAGE_TOKEN, digit_token_ids=ids
        )
        with pytest.raises(ContractError, match="must give digit_token_ids"):
            processor_of(config, None)


class TestRequests:
    def test_parsed(self) -> None:
        processor = make_processor()
        parsed = processor.parse_data({"data": "AA==", "indices": [1]})
        assert parsed == RasterRequest(data="AA==", indices=[1])
        assert processor.parse_data(parsed) is parsed

    @pytest.mark.parametrize("data", [None, [], "AA==", {}, {"data": "AA==", "tile": 3}])
    def test_refused(self, data: object) -> None:
        with pytest.raises(RequestError):
            make_processor().parse_data(data)

    def test_the_pooling_task_is_one_that_every_runner_has(self) -> None:
        processor = make_processor()
        assert processor.merge_pooling_params().task == "token_classify"
        params = PoolingParams(task="embed", extra_kwargs={"image": 1})
        merged = processor.merge_pooling_params(params)
        assert (merged.task, merged.extra_kwargs) == ("token_classify", {"image": 1})

    def test_the_same_parameters_serve_requests_that_need_more(self) -> None:
        processor, params = make_processor(), PoolingParams()
        told = []
        for product in ("classes", "logits"):
            wanted = request(make_raster()).model_copy(
                update={"blending": "none", "product": product}
            )
            processor.pre_process(wanted)
            told.append(processor.merge_pooling_params(params).extra_kwargs)
        assert told == [{"answer": "ids"}, None]


class TestPriority:
    """The scheduler's, where it has any."""

    def test_refused_where_the_scheduler_has_none(self) -> None:
        wanted = RasterRequest(data=request(make_raster()).data, priority=-1)
        with pytest.raises(RequestError, match="--scheduling-policy priority"):
            asyncio.run(make_processor().open(wanted))

    @pytest.mark.parametrize("priority", [0, None])
    def test_the_usual_one_may_be_asked_for(self, priority: int | None) -> None:
        wanted = RasterRequest(data=request(make_raster()).data, priority=priority)
        job = asyncio.run(make_processor().open(wanted))
        assert job.request.priority == priority
        job.close()

    def test_taken_where_it_has(self) -> None:
        processor = make_processor(policy="priority")
        wanted = RasterRequest(data=request(make_raster()).data, priority=-1)
        job = asyncio.run(processor.open(wanted))
        prompts = processor.pre_process(job)
        answer = processor.post_process(list(map(Engine(processor), prompts)))
        assert answer.effective.priority == -1

    def test_beside_the_request(self) -> None:
        """A field of vLLM's own, which its usual scheduler takes and then ignores."""
        wanted = RasterRequest(data=request(make_raster()).data)
        with pytest.raises(RequestError, match="--scheduling-policy priority"):
            asyncio.run(make_processor().open(wanted, 4))
        with asyncio.run(make_processor().open(wanted, 0)) as job:
            assert job.request.priority is None
        with asyncio.run(make_processor(policy="priority").open(wanted, 4)) as job:
            assert job.request.priority == 4

    def test_within_and_beside_the_request(self) -> None:
        processor = make_processor(policy="priority")
        wanted = RasterRequest(data=request(make_raster()).data, priority=-1)
        for same in (0, -1):
            with asyncio.run(processor.open(wanted, same)) as job:
                assert job.request.priority == -1
        with pytest.raises(RequestError, match="-1 within `data` and 4 beside it"):
            asyncio.run(processor.open(wanted, 4))

    def test_offline_it_is_for_the_engine(self) -> None:
        processor = make_processor(policy="priority")
        wanted = RasterRequest(data=request(make_raster()).data, priority=1)
        with pytest.raises(RequestError, match=r"LLM\.encode\(\.\.\., priority"):
            processor.pre_process(wanted)
        with pytest.raises(RequestError, match=r"LLM\.encode\(\.\.\., priority"):
            asyncio.run(processor.pre_process_async(wanted))


class TestPrompts:
    def test_one_a_window(self) -> None:
        processor = make_processor(size=64, overlap=0)
        prompts = processor.pre_process(request(make_raster(height=128, width=65)))
        assert len(prompts) == 4
        for prompt in prompts:
            assert set(prompt) == {"prompt_token_ids", "multi_modal_data", "multi_modal_uuids"}
            assert set(prompt["multi_modal_data"]) == {"image"}
        (tokens,) = {tuple(prompt["prompt_token_ids"]) for prompt in prompts}
        assert tokens[0] == IMAGE_TOKEN
        assert set(tokens[1:]) <= set(DIGIT_IDS.values())

    def test_no_two_images_have_the_same_name(self) -> None:
        processor = make_processor(size=16, overlap=0)
        names = [
            name
            for _ in range(3)
            for prompt in processor.pre_process(request(make_raster(height=48, width=48)))
            for name in prompt["multi_modal_uuids"]["image"]
        ]
        assert len(names) == len(set(names)) == 27

    @pytest.mark.parametrize("windows", [2, 4, 16])
    def test_windows_share_a_prompt(self, windows: int) -> None:
        processor = make_processor(size=16, overlap=0, windows=windows)
        prompts = processor.pre_process(request(make_raster(height=48, width=48)))
        images = [prompt["multi_modal_data"]["image"] for prompt in prompts]
        counts = [len(one) if isinstance(one, list) else 1 for one in images]
        assert counts == {2: [2, 2, 2, 2, 1], 4: [4, 4, 1], 16: [9]}[windows]
        names = [name for one in prompts for name in one["multi_modal_uuids"]["image"]]
        assert len(set(names)) == len(names) == 9
        # The maps of all of them are asked for, also where one is alone.
        assert processor.merge_pooling_params().extra_kwargs == {"answer": "ids", "image": "all"}

    def test_one_window_is_asked_for_as_ever(self) -> None:
        processor = make_processor(size=16, overlap=0, windows=16)
        (prompt,) = processor.pre_process(request(make_raster(height=9, width=16)))
        assert set(prompt["multi_modal_data"]["image"]) == {"pixel_values", "valid"}
        assert processor.merge_pooling_params().extra_kwargs == {"answer": "ids"}

    def test_nothing_is_read_yet(self) -> None:
        # What is damaged is found only when it is read.
        damaged = make_raster(height=200, width=200)[:-30_000]
        prompts = make_processor().pre_process(request(damaged))
        with pytest.raises(RasterError):
            np.asarray(prompts[-1]["multi_modal_data"]["image"]["pixel_values"])


class TestAnswers:
    @pytest.mark.parametrize("size", [(1, 1), (64, 64), (100, 150)])
    def test_the_map_is_that_of_the_whole_scene(self, size: tuple[int, int]) -> None:
        processor = make_processor(channels=5)
        pixels = np.random.default_rng(0).integers(0, 5_000, (4, *size)).astype("uint16")
        answer = offline(processor, make_raster(values=pixels))
        expected = PixelNetwork(processor.contract).ids(pixels)
        np.testing.assert_array_equal(pixels_of(answer)[0], expected)
        assert answer.request_id is None

    @pytest.mark.parametrize("kind", ["classes", "values"])
    @pytest.mark.parametrize("windows", [1, 2, 4, 16])
    @pytest.mark.parametrize("overlap", [0, 16])
    def test_both_kinds_of_hooks_give_the_same(self, kind: str, windows: int, overlap: int) -> None:
        """Also where windows share a prompt, of a scene whose last ones are smaller."""
        content = make_raster(height=150, width=90, nodata=77)
        expected = offline(make_processor(kind, overlap=overlap), content)
        processor = make_processor(kind, overlap=overlap, windows=windows)
        engine = Engine(processor, several=windows > 1)
        prompts = processor.pre_process(request(content))
        assert processor.post_process(list(map(engine, prompts))) == expected

        async def serve() -> RasterAnswer:
            prompts = await processor.pre_process_async(request(content))
            outputs = list(enumerate(map(engine, prompts)))
            random.Random(0).shuffle(outputs)
            return await processor.post_process_async(each(outputs))

        assert asyncio.run(serve()) == expected

    @pytest.mark.parametrize("request_id", ["pool-1", "../../etc/passwd", "", "a\n\0b", None])
    def test_the_request_id_is_told_and_no_more(self, request_id: str | None) -> None:
        processor = make_processor()
        prompts = processor.pre_process(request(make_raster()), request_id)
        answer = processor.post_process(list(map(Engine(processor), prompts)), request_id)
        assert answer.request_id == request_id

    def test_16_at_once_each_get_their_own(self) -> None:
        """Constants of different sizes, whose windows come back mixed up."""
        processor = make_processor("values", bands=("A",), channels=1)
        wanted = [(100 + k, SIZES[k % 3]) for k in range(16)]
        # Half of them under one and the same id.
        ids = ["same" if k % 2 else f"id-{k}" for k in range(16)]

        async def serve(k: int) -> RasterAnswer:
            prompts = processor.pre_process(request(constant(*wanted[k])), ids[k])
            outputs = await asyncio.gather(*(engine(prompt) for prompt in prompts))
            return await asyncio.to_thread(processor.post_process, outputs, ids[k])

        async def serve_all(pool: ThreadPoolExecutor) -> list[RasterAnswer]:
            asyncio.get_running_loop().set_default_executor(pool)
            return await asyncio.gather(*(serve(k) for k in range(16)))

        async def engine(prompt: Any) -> Any:
            await asyncio.sleep(chance.random() / 100)
            return await asyncio.to_thread(Engine(processor), prompt)

        chance = random.Random(0)
        with ThreadPoolExecutor(8) as pool:
            answers = asyncio.run(serve_all(pool))
        for (k, size), request_id, answer in zip(wanted, ids, answers, strict=True):
            assert (answer.height, answer.width) == size
            np.testing.assert_allclose(pixels_of(answer), np.full((1, *size), k / 7), rtol=1e-6)
            assert answer.request_id == request_id

    def test_two_under_one_id_answered_in_the_other_order(self) -> None:
        processor = make_processor("values", bands=("A",), channels=1)

        async def serve() -> None:
            outputs = [
                list(map(Engine(processor), processor.pre_process(request(one), "same")))
                for one in (constant(7, (64, 64)), constant(14, (64, 64)))
            ]
            answers = [processor.post_process(one, "same") for one in reversed(outputs)]
            assert [float(pixels_of(one).mean()) for one in answers] == [2, 1]

        asyncio.run(serve())


class TestWrongOutputs:
    def test_those_of_two_requests(self) -> None:
        processor = make_processor()

        async def serve() -> None:
            outputs = [
                Engine(processor)(prompt)
                for _ in range(2)
                for prompt in processor.pre_process(request(make_raster()))
            ]
            with pytest.raises(ServingError, match="belong to 2 requests"):
                processor.post_process(outputs)

        asyncio.run(serve())

    def test_those_of_a_request_that_was_answered(self) -> None:
        processor = make_processor()
        prompts = processor.pre_process(request(make_raster()))
        outputs = list(map(Engine(processor), prompts))
        processor.post_process(outputs)
        with pytest.raises(ServingError, match="belong to no request"):
            processor.post_process(outputs)

    @pytest.mark.parametrize("places", [[1, 2], [0, 2], [0, 1, 3]])
    def test_some_are_missing(self, places: list[int]) -> None:
        processor = make_processor(overlap=0)

        async def serve() -> None:
            content = make_raster(height=64, width=64 * 4)
            prompts = processor.pre_process(request(content))
            outputs = [(i, Engine(processor)(prompts[i])) for i in places]
            with pytest.raises(ServingError, match="some are missing"):
                await processor.post_process_async(each(outputs))

        asyncio.run(serve())

    @pytest.mark.parametrize("change", [lambda maps: maps[:-1], lambda maps: maps[0]])
    def test_not_a_map_for_each_window(self, change: Any) -> None:
        processor = make_processor(overlap=0, windows=2)
        prompts = processor.pre_process(request(make_raster(height=64, width=128)))
        outputs = list(map(Engine(processor, several=True), prompts))
        outputs[0].outputs.data = change(outputs[0].outputs.data)
        with pytest.raises(ServingError, match=r"\d maps came of a prompt of 2 windows"):
            processor.post_process(outputs)

    @pytest.mark.parametrize("windows", [1, 2])
    def test_of_a_network_that_failed(self, windows: int) -> None:
        processor = make_processor(overlap=0, windows=windows)
        prompts = processor.pre_process(request(make_raster(height=64, width=128)))
        outputs = list(map(Engine(processor, several=windows > 1), prompts))
        outputs[-1].outputs.data = torch.zeros(3, 0, 0)
        with pytest.raises(ServingError, match="The network failed on a window; the server's log"):
            processor.post_process(outputs)

    def test_of_a_prompt_that_there_is_not(self) -> None:
        processor = make_processor(overlap=0)
        (prompt,) = processor.pre_process(request(make_raster(height=64, width=64)))
        with pytest.raises(ServingError, match="came of prompt 1, but there are 1"):
            processor.feed(1, Engine(processor)(prompt))

    def test_the_last_is_missing(self) -> None:
        processor = make_processor(overlap=0)
        prompts = processor.pre_process(request(make_raster(height=64, width=128)))
        with pytest.raises(ServingError, match="do not fit the scene"):
            processor.post_process([Engine(processor)(prompts[0])])


def offline(processor: RasterIOProcessor, content: bytes) -> RasterAnswer:
    prompts = processor.pre_process(processor.parse_data({"data": request(content).data}))
    return processor.post_process(list(map(Engine(processor), prompts)))


def constant(value: int, size: tuple[int, int]) -> bytes:
    return make_raster(values=np.full((1, *size), value))


async def each(outputs: Sequence[tuple[int, Any]]) -> AsyncIterator[tuple[int, Any]]:
    for one in outputs:
        await asyncio.sleep(0)
        yield one
