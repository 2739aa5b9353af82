"""Requests that say in words what is mapped, from what a client sends to the answer."""

import asyncio
import base64
import random
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rasterio.io import MemoryFile

from vllm_raster_io import plugin
from vllm_raster_io.answers import RasterAnswer
from vllm_raster_io.contract import RasterContract
from vllm_raster_io.errors import ContractError, RequestError
from vllm_raster_io.jobs import Job
from vllm_raster_io.plugin import RasterIOProcessor
from vllm_raster_io.requests import RasterRequest
from vllm_raster_io.uploads import Upload
from vllm_raster_model.tokenizer import word_tokenizer

from ..factories import make_raster
from .networks import PixelNetwork
from .scenes import Array, raster_block

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

IMAGE, ROW, END, ANSWER = 4, 5, 1, 2
DIGIT_IDS = range(6, 22)
WORDS = {"fields": 22, "find": 23, "map": 24, "water": 25}
WORDINGS = {"water": ["find water", "water"], "fields": ["find fields", "map the fields"]}
SCENE = make_raster()


@pytest.fixture(autouse=True)
def _server_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # It changes how the whole process reads requests.
    monkeypatch.setattr(plugin, "keep_event_loop_free", lambda: None)


def make_contract(**instructions: Any) -> dict[str, Any]:
    block = raster_block("values", channels=1, overlap=0)
    return block | {"instructions": {"wordings": WORDINGS, **instructions}}


def processor_of(
    block: dict[str, Any], answer: int = ANSWER, *, tokenizer: bool = True, max_images: int = 2
) -> RasterIOProcessor:
    config = SimpleNamespace(
        raster=block,
        image_token_id=IMAGE,
        answer_token_id=answer,
        digit_token_ids=DIGIT_IDS,
        max_images=max_images,
    )
    vllm_config: Any = SimpleNamespace(model_config=SimpleNamespace(hf_config=config))
    renderer: Any = SimpleNamespace(tokenizer=word_tokenizer(WORDS) if tokenizer else None)
    return RasterIOProcessor(vllm_config, renderer)


def test_words_need_a_tokenizer() -> None:
    with pytest.raises(ContractError, match="start the server without --skip-tokenizer-init"):
        processor_of(make_contract(), tokenizer=False)


@pytest.fixture
def processor() -> RasterIOProcessor:
    return processor_of(make_contract())


def ask(prompt: str | None, content: bytes = SCENE) -> dict[str, Any]:
    request = {"data": base64.b64encode(content).decode()}
    return request if prompt is None else {**request, "prompt": prompt}


class Engine:
    """Answers prompts as vLLM does, with a token of the model's own behind each."""

    def __init__(self, processor: RasterIOProcessor, after: tuple[int, ...] = (ANSWER,)) -> None:
        self._network = PixelNetwork(processor.contract)
        self._after = after

    def __call__(self, prompt: Any) -> Any:
        tokens = prompt["prompt_token_ids"]
        place = tokens.index(IMAGE)
        image = [IMAGE, IMAGE, ROW, END]
        scores = self._network(prompt["multi_modal_data"]["image"])
        return SimpleNamespace(
            prompt_token_ids=[*tokens[:place], *image, *tokens[place + 1 :], *self._after],
            outputs=SimpleNamespace(data=torch.from_numpy(scores)),
        )


def token_ids(processor: RasterIOProcessor, prompt: str, content: bytes = SCENE) -> list[list[int]]:
    prompts: Any = processor.pre_process(processor.parse_data(ask(prompt, content)))
    return [one["prompt_token_ids"] for one in prompts]


def serve(processor: RasterIOProcessor, prompt: str, content: bytes = SCENE) -> RasterAnswer:
    prompts = processor.pre_process(processor.parse_data(ask(prompt, content)))
    return processor.post_process(list(map(Engine(processor), prompts)))


def pixels_of(answer: RasterAnswer) -> Array:
    with MemoryFile(base64.b64decode(answer.data)) as memory, memory.open() as dataset:
        return dataset.read()


def test_windows_do_not_share_a_prompt() -> None:
    """Several images of an instructed prompt are read together, as before and after."""
    processor = processor_of(make_contract(), max_images=4)
    content = make_raster(height=150, width=150)
    prompts = processor.pre_process(processor.parse_data(ask("water", content)))
    assert len(prompts) > 1
    assert not any(isinstance(one["multi_modal_data"]["image"], list) for one in prompts)
    assert "image" not in (processor.merge_pooling_params().extra_kwargs or {})


class TestContract:
    def test_prompt_and_examples(self) -> None:
        block = make_contract(template="map {instruction} of <image>")
        instructions = RasterContract.of(SimpleNamespace(raster=block)).instructions
        assert instructions is not None
        assert instructions.prompt("a {b} c") == "map a {b} c of <image>"
        assert instructions.examples() == "'find water', 'find fields'"

    def test_the_template_that_is_not_given(self) -> None:
        contract = RasterContract.of(SimpleNamespace(raster=make_contract()))
        assert contract.instructions is not None
        assert contract.instructions.template == "{instruction}<image>"

    @pytest.mark.parametrize("wordings", [{}, None, {"water": "water"}, {"water": []}])
    def test_something_must_be_known_to_ask_for(self, wordings: Any) -> None:
        with pytest.raises(ContractError, match=r"instructions\.wordings"):
            RasterContract.of(SimpleNamespace(raster=make_contract(wordings=wordings)))


class TestRefusals:
    @pytest.mark.parametrize("answer", [DIGIT_IDS[0], DIGIT_IDS[-1]])
    def test_an_answer_that_is_opened_by_a_digit(self, answer: int) -> None:
        """It would be taken for the last digit of the key, behind which it stands."""
        message = rf"answer_token_id={answer}, which is a digit for the tokenizer"
        with pytest.raises(ContractError, match=message):
            processor_of(make_contract(), answer)

    def test_words_for_a_checkpoint_that_reads_none(self) -> None:
        processor = processor_of(raster_block("values"))
        message = r"`prompt` is refused: .* no language model, it always maps values. Leave it out"
        for prompt in ("find water", " ", ""):
            with pytest.raises(RequestError, match=message):
                processor.pre_process(processor.parse_data(ask(prompt)))

    @pytest.mark.parametrize("prompt", [None, "", " ", "\n\t "])
    def test_no_words_for_one_that_does(
        self, processor: RasterIOProcessor, prompt: str | None
    ) -> None:
        message = r"must say what to map.* asked for example: 'find water', 'find fields'$"
        with pytest.raises(RequestError, match=message):
            processor.pre_process(processor.parse_data(ask(prompt)))

    @pytest.mark.parametrize("prompt", [7, ["water"], "water " * 200])
    def test_what_is_no_text_of_some_length(
        self, processor: RasterIOProcessor, prompt: Any
    ) -> None:
        with pytest.raises(RequestError, match="`prompt`: "):
            processor.parse_data({"data": "AA==", "prompt": prompt})

    def test_the_longest(self, processor: RasterIOProcessor) -> None:
        assert processor.parse_data({"data": "AA==", "prompt": "w" * 1000}).prompt == "w" * 1000

    @pytest.mark.parametrize(
        ("prompt", "named"),
        [
            ("find water<image>", "<image>"),
            ("<row>", "<row>"),
            ("<row> and <image>", "<image> or <row>"),
        ],
    )
    def test_words_that_stand_for_the_image(
        self, processor: RasterIOProcessor, prompt: str, named: str
    ) -> None:
        request = processor.parse_data(ask(prompt))
        with pytest.raises(RequestError, match=f"`prompt` may not hold {named}, which stands"):
            processor.pre_process(request)
        with pytest.raises(RequestError, match=f"`prompt` may not hold {named}, which stands"):
            asyncio.run(processor.pre_process_async(request))

    @pytest.mark.parametrize(
        ("prompt", "named"),
        [
            ("snow", "'snow'"),
            ("Snow?", r"'Snow', '\?'"),
            ("g h i j k l m", "'g', 'h', 'i', 'j', 'k', 2 more"),
            ("n\x1bn" + "o" * 100, r"'n', '\\x1b', 'no.*\.\.\..*o'"),
        ],
    )
    def test_no_word_that_is_known(
        self, processor: RasterIOProcessor, prompt: str, named: str
    ) -> None:
        message = rf"has no word .* knows, got {named}. It can .*: 'find water', 'find fields'$"
        request = processor.parse_data(ask(prompt))
        with pytest.raises(RequestError, match=message):
            processor.pre_process(request)
        with pytest.raises(RequestError, match=message):
            asyncio.run(processor.pre_process_async(request))

    @pytest.mark.parametrize("prompt", [None, "<image>", "snow"])
    def test_nothing_is_left_behind(self, processor: RasterIOProcessor, prompt: str | None) -> None:
        upload = Upload.of(SCENE)
        memory = upload.memory
        request = RasterRequest(data=upload, prompt=prompt)
        with pytest.raises(RequestError):
            processor.pre_process(request)
        del request, upload
        assert not memory.exists()

    def test_before_the_scene_is_opened(self, processor: RasterIOProcessor) -> None:
        with pytest.raises(RequestError, match="must say what to map"):
            Job(RasterRequest(data="no base64"), processor.contract)


class TestTokens:
    @pytest.mark.parametrize(
        ("template", "instruction", "opening"),
        [
            ("{instruction}<image>", "find water", [23, 25, IMAGE]),
            ("{instruction}<image>", "Find GOLD", [23, 3, IMAGE]),
            ("<bos>map {instruction}: <image>", "water", [1, 24, 25, 3, IMAGE]),
            ("map {instruction}<image>find", "fields", [24, 22, IMAGE, 23]),
            ("{instruction}<image>", "{instruction} map", [3, 3, 3, 24, IMAGE]),
        ],
    )
    def test_template_then_image_then_key(
        self, template: str, instruction: str, opening: list[int]
    ) -> None:
        (tokens,) = token_ids(processor_of(make_contract(template=template)), instruction)
        assert tokens[:-8] == opening
        assert set(tokens[-8:]) <= set(DIGIT_IDS)

    def test_the_same_for_each_window(self, processor: RasterIOProcessor) -> None:
        tokens = token_ids(processor, "find fields", make_raster(height=128, width=65))
        assert len(tokens) == 4
        assert all(one == tokens[0] for one in tokens)
        assert tokens[0][:3] == [23, 22, IMAGE]

    def test_without_a_language_model_only_the_image(self) -> None:
        processor = processor_of(raster_block("values"))
        (prompt,) = processor.pre_process(processor.parse_data(ask(None)))
        assert prompt["prompt_token_ids"][:-8] == [IMAGE]


class TestAnswers:
    def test_the_map_and_what_was_asked(self, processor: RasterIOProcessor) -> None:
        pixels = np.random.default_rng(0).integers(0, 5_000, (4, 100, 150)).astype("uint16")
        answer = serve(processor, " Find the Water", make_raster(values=pixels))
        assert answer.effective.prompt == " Find the Water"
        assert answer.effective.windows == 6
        expected = PixelNetwork(processor.contract).scores(pixels)
        np.testing.assert_allclose(pixels_of(answer), expected, rtol=1e-6)

    @pytest.mark.parametrize(
        ("prompt", "named"),
        [
            ("find water", None),
            ("find water?!", None),
            ("FIND\nthe Water, the 5 a", "'the', ',', '5', 'a'"),
            ("find snow", "'snow'"),
            ("find p q r s t u", "'p', 'q', 'r', 's', 't', 1 more"),
        ],
    )
    def test_words_that_are_not_known(
        self, processor: RasterIOProcessor, prompt: str, named: str | None
    ) -> None:
        notes = serve(processor, prompt).effective.notes
        told = [one for one in notes if "has not learnt" in one]
        assert told == (
            []
            if named is None
            else [
                f"The checkpoint has not learnt {named} of `prompt`: any other that it has not "
                "learnt would give the same map"
            ]
        )

    @pytest.mark.parametrize(
        ("template", "wording", "known"),
        [
            ("map {instruction}<image>", "find a lake", True),
            ("map a {instruction}<image>", "lake", True),
            ("map {instruction}<image>", "lake", False),
        ],
    )
    def test_digits_are_words_where_they_were_taught(
        self, template: str, wording: str, known: bool
    ) -> None:
        """The tokenizer has them all, for keys."""
        block = make_contract(template=template, wordings={"lake": [wording]})
        processor = processor_of(block)
        if not known:
            with pytest.raises(RequestError, match="no word that the checkpoint knows, got 'A'"):
                serve(processor, "A")
            return
        assert not [one for one in serve(processor, "A").effective.notes if "learnt" in one]

    def test_the_map_says_what_it_is_of(self, processor: RasterIOProcessor) -> None:
        """And no scene's own words, nor what could not be written."""
        told = make_raster(tags={"PROMPT": "another"})
        for content, words, tag in (
            (SCENE, "find water", "find water"),
            (told, "find\nwater \x01é\0", "find water  é "),
        ):
            answer = serve(processor, words, content)
            with MemoryFile(base64.b64decode(answer.data)) as memory, memory.open() as dataset:
                assert dataset.tags()["PROMPT"] == tag
        plain = processor_of(raster_block("values"))
        prompts = plain.pre_process(plain.parse_data(ask(None, told)))
        answer = plain.post_process(list(map(Engine(plain, ()), prompts)))
        with MemoryFile(base64.b64decode(answer.data)) as memory, memory.open() as dataset:
            assert "PROMPT" not in dataset.tags()

    def test_all_words_are_known_to_one_that_takes_them_apart(self) -> None:
        processor = processor_of(make_contract())
        # Such as Qwen's has no token for what it does not know.
        processor._tokenizer = SimpleNamespace(encode=lambda text, **_: [22] * len(text))
        request = processor.parse_data(ask("snow, ice"))
        job = Job(request, processor.contract, tokenizer=processor._tokenizer)
        assert job.plan.remarks == []

    def test_nothing_was_asked(self) -> None:
        processor = processor_of(raster_block("values"))
        prompts = processor.pre_process(processor.parse_data(ask(None)))
        answer = processor.post_process(list(map(Engine(processor, ()), prompts)))
        assert answer.effective.prompt is None

    @pytest.mark.parametrize("after", [(), (ANSWER,), (ANSWER, END, 3)])
    @pytest.mark.parametrize(
        "prompt", ["find water", "water 0 1 2 3 4 5 6 7 8 9 a b c d e f", "water f"]
    )
    def test_the_key_is_found(
        self, processor: RasterIOProcessor, prompt: str, after: tuple[int, ...]
    ) -> None:
        engine = Engine(processor, after)

        async def both() -> list[str | None]:
            outputs = []
            for said in (prompt, "water"):
                prompts = processor.pre_process(processor.parse_data(ask(said)))
                outputs.append(list(map(engine, prompts)))
            return [processor.post_process(one).effective.prompt for one in reversed(outputs)]

        assert asyncio.run(both()) == ["water", prompt]

    def test_both_kinds_of_hooks_give_the_same(self, processor: RasterIOProcessor) -> None:
        content = make_raster(height=150, width=90, nodata=77)
        expected = serve(processor, "find fields", content)

        async def shuffled(outputs: list[Any]) -> AsyncIterator[tuple[int, Any]]:
            numbered = list(enumerate(outputs))
            random.Random(0).shuffle(numbered)
            for one in numbered:
                await asyncio.sleep(0)
                yield one

        async def serve_async() -> RasterAnswer:
            request = processor.parse_data(ask("find fields", content))
            prompts: Any = await processor.pre_process_async(request)
            assert all(one["prompt_token_ids"][:3] == [23, 22, IMAGE] for one in prompts)
            return await processor.post_process_async(
                shuffled(list(map(Engine(processor), prompts)))
            )

        assert asyncio.run(serve_async()) == expected
        assert expected.effective.prompt == "find fields"
