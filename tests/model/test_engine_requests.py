"""What is asked of the engine for an image that is not there is refused in front of it."""

from collections.abc import Sequence
from typing import Any

import pytest
from vllm.config import set_current_vllm_config
from vllm.pooling_params import PoolingParams
from vllm.v1.engine.input_processor import InputProcessor

from vllm_raster_model.engine_requests import check_what_is_asked_for
from vllm_raster_model.errors import ImageItemError

from .instructed import FIND, IMAGE, WATER
from .items import window
from .serving import InstructedServing

TASK = "token_classify"


@pytest.fixture
def front(serving: InstructedServing) -> InputProcessor:
    with set_current_vllm_config(serving.vllm_config):
        return InputProcessor(serving.vllm_config)


def ask(front: InputProcessor, images: int, ids: Sequence[int], asked: Any = None) -> Any:
    prompt: dict[str, Any] = {"prompt_token_ids": list(ids)}
    if images:
        prompt["multi_modal_data"] = {"image": [window(8, 8 * (i + 1)) for i in range(images)]}
    params = PoolingParams(task=TASK, extra_kwargs=asked)
    return front.process_inputs("request", prompt, params, (TASK,))


@pytest.mark.parametrize(
    ("images", "asked"),
    [(1, None), (1, {}), (1, {"image": 0}), (2, None), (2, {"image": 0}), (2, {"image": 1})],
)
def test_an_image_that_is_there(front: InputProcessor, images: int, asked: Any) -> None:
    request = ask(front, images, [FIND, WATER], asked)
    assert len(request.mm_features) == images
    assert request.pooling_params.extra_kwargs == asked


@pytest.mark.parametrize("number", [2, -1, 1.0, "0", True, None, [0]])
def test_an_image_that_is_not(front: InputProcessor, number: Any) -> None:
    message = r"asks for the image .*, but those .* are counted from 0 to 1; 'all' are all"
    with pytest.raises(ImageItemError, match=message):
        ask(front, 2, [FIND, IMAGE, WATER, IMAGE], {"image": number})


@pytest.mark.parametrize("sizes", [[(8, 8)], [(9, 17), (9, 17)], [(9, 17), (16, 24)]])
def test_all_images_of_one_grid(front: InputProcessor, sizes: list[tuple[int, int]]) -> None:
    items = [window(*size) for size in sizes]
    prompt: Any = {"prompt_token_ids": [FIND, WATER], "multi_modal_data": {"image": items}}
    params = PoolingParams(task=TASK, extra_kwargs={"image": "all"})
    assert len(front.process_inputs("request", prompt, params, (TASK,)).mm_features) == len(sizes)


@pytest.mark.parametrize("sizes", [[(8, 8), (8, 16)], [(8, 16), (16, 8)], [(24, 8), (16, 16)]])
def test_all_images_of_several_sizes(front: InputProcessor, sizes: list[tuple[int, int]]) -> None:
    items = [window(*size) for size in sizes]
    prompt: Any = {"prompt_token_ids": [FIND, WATER], "multi_modal_data": {"image": items}}
    params = PoolingParams(task=TASK, extra_kwargs={"image": "all"})
    with pytest.raises(ImageItemError, match=r"of 'all' images, .* sizes, .*: \[\(\d+, \d+\), "):
        front.process_inputs("request", prompt, params, (TASK,))


@pytest.mark.parametrize("asked", [None, {"image": 0}, {"image": "all"}])
def test_no_image_at_all(front: InputProcessor, asked: Any) -> None:
    with pytest.raises(ImageItemError, match="The prompt has no image to map: put one"):
        ask(front, 0, [FIND, WATER], asked)


@pytest.fixture
def front_of_classes(front: InputProcessor, monkeypatch: pytest.MonkeyPatch) -> InputProcessor:
    config = front.model_config.hf_config
    output = config.contract.output.model_copy(update={"kind": "classes"})
    changed = config.contract.model_copy(update={"output": output})
    monkeypatch.setattr(config, "contract", changed)
    return front


@pytest.mark.parametrize("answer", ["scores", "rounded", "ids"])
def test_an_answer_that_there_is(front_of_classes: InputProcessor, answer: str) -> None:
    request = ask(front_of_classes, 1, [FIND, WATER], {"answer": answer})
    assert request.pooling_params.extra_kwargs == {"answer": answer}


@pytest.mark.parametrize("answer", ["", "id", None, 1, ["ids"]])
def test_an_answer_that_there_is_not(front_of_classes: InputProcessor, answer: Any) -> None:
    message = r"asks for the answer .*gives classes has 'scores', 'rounded', 'ids'$"
    with pytest.raises(ImageItemError, match=message):
        ask(front_of_classes, 1, [FIND, WATER], {"answer": answer})


@pytest.mark.parametrize("answer", ["rounded", "ids"])
def test_ids_of_what_has_none(front: InputProcessor, answer: str) -> None:
    with pytest.raises(ImageItemError, match=r"that gives values has 'scores'$"):
        ask(front, 1, [FIND, WATER], {"answer": answer})


def test_a_misspelt_name(front: InputProcessor) -> None:
    with pytest.raises(ImageItemError, match="has 'img', but may have 'image' and 'answer' only"):
        ask(front, 2, [FIND, WATER], {"img": 0})


def test_other_models_are_left_alone(
    front: InputProcessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front.model_config, "hf_config", object())
    assert ask(front, 0, [FIND], {"image": 7}).mm_features is None


def test_it_is_looked_at_once() -> None:
    before = InputProcessor.process_inputs
    check_what_is_asked_for()
    assert InputProcessor.process_inputs is before
