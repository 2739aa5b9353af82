"""The third part of the seam: what is asked of the engine, looked at before it is handed over.

A pooler must not raise, or the engine ends. So what it could answer with nothing only, because it
is asked for the map of an image that is not there, or for class ids of what has none, is refused
in front of the engine, where an error reaches the one who asked. Written for vLLM 0.32, read
against 0.33.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from vllm.multimodal.inputs import MultiModalFeatureSpec
from vllm.pooling_params import PoolingParams
from vllm.v1.engine.input_processor import InputProcessor

from vllm_raster_model.config import RasterConfig
from vllm_raster_model.errors import ImageItemError
from vllm_raster_model.pooler import ALL_IMAGES
from vllm_raster_model.sent import ANSWERS

_KNOWN = ("image", "answer")


def check_what_is_asked_for() -> None:
    """Has prompts refused that ask for what there is not; may be called twice."""
    process = InputProcessor.process_inputs
    if process.__module__ == __name__:
        return

    def process_inputs(self: InputProcessor, *args: Any, **kwargs: Any) -> Any:
        request = process(self, *args, **kwargs)
        config = self.model_config.hf_config
        if isinstance(config, RasterConfig) and request.pooling_params:
            images = [one for one in request.mm_features or () if one.modality == "image"]
            asked = request.pooling_params.extra_kwargs or {}
            _check_cache(self, request.pooling_params)
            _check_names(asked)
            _check_image(config, images, asked)
            _check_answer(config.contract.output.kind, asked)
        return request

    InputProcessor.process_inputs = process_inputs


def _check_cache(front: InputProcessor, params: PoolingParams) -> None:
    if front.cache_config.enable_prefix_caching and params.skip_reading_prefix_cache is False:
        raise ImageItemError(
            "PoolingParams has skip_reading_prefix_cache=False, but a map is made of all tokens of "
            "a prompt, and those that a cache has are not read again: leave it out"
        )


def _check_names(asked: object) -> None:
    if not isinstance(asked, Mapping):
        raise ImageItemError(
            f"PoolingParams.extra_kwargs must be a mapping, got {type(asked).__name__}"
        )
    if unknown := sorted(asked.keys() - _KNOWN):
        raise ImageItemError(
            f"PoolingParams.extra_kwargs has {', '.join(map(repr, unknown))}, but may have "
            f"{' and '.join(map(repr, _KNOWN))} only"
        )


def _check_image(
    config: RasterConfig, images: Sequence[MultiModalFeatureSpec], asked: dict[str, Any]
) -> None:
    if not images:
        raise ImageItemError(
            "The prompt has no image to map: put one, or a list of them, into "
            'multi_modal_data["image"]'
        )
    number = asked.get("image", 0)
    if number == ALL_IMAGES:
        _check_alike(config, images)
    elif type(number) is not int or number not in range(len(images)):
        raise ImageItemError(
            f"PoolingParams.extra_kwargs asks for the image {number!r}, but those of the prompt "
            f"are counted from 0 to {len(images) - 1}; {ALL_IMAGES!r} are all of them"
        )


def _check_alike(config: RasterConfig, images: Sequence[MultiModalFeatureSpec]) -> None:
    """Refuses to lay maps of several sizes on each other."""
    sizes = [
        tuple(one.data["pixel_values"].data[0].shape[-2:]) for one in images if one.data is not None
    ]
    if len({config.grid(*size) for size in sizes}) > 1:
        raise ImageItemError(
            f"PoolingParams.extra_kwargs asks for the maps of {ALL_IMAGES!r} images, but those of "
            f"the prompt are of several sizes, in rows and columns of pixels: {sizes}"
        )


def _check_answer(kind: str, asked: dict[str, Any]) -> None:
    answer = asked.get("answer", "scores")
    known = ANSWERS if kind == "classes" else ANSWERS[:1]
    if answer not in known:
        raise ImageItemError(
            f"PoolingParams.extra_kwargs asks for the answer {answer!r}, but a checkpoint that "
            f"gives {kind} has {', '.join(map(repr, known))}"
        )
