"""One request from its scene to its map."""

import math
import threading
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from itertools import groupby
from typing import Any

import numpy.typing as npt

from vllm_raster_io.access import Access
from vllm_raster_io.answers import RasterAnswer
from vllm_raster_io.assembly import Assembly
from vllm_raster_io.augmentation import Symmetry, whole_blocks
from vllm_raster_io.closing import Closing
from vllm_raster_io.contract import RasterContract
from vllm_raster_io.deadlines import Deadline
from vllm_raster_io.errors import ServingError
from vllm_raster_io.instructions import Tokenizer
from vllm_raster_io.pace import PromptSize
from vllm_raster_io.plans import Plan
from vllm_raster_io.reports import answer_of
from vllm_raster_io.requests import RasterRequest
from vllm_raster_io.tiling import Window
from vllm_raster_io.windows import Loaded, lazy_item


class Job(Closing):
    """Cuts a scene into image items, and puts the maps of its windows together.

    Args:
        request: What is asked.
        contract: What the checkpoint takes and gives.
        access: Which files may be read and written.
        deadline: Until when all must be done; without it, there is no hurry.
        tokenizer: The checkpoint's, if it has one: it tells which words are known.
        prompt_size: How many image items may share a prompt.

    Raises:
        RasterIOError: The request cannot be served; the message says why.
    """

    def __init__(
        self,
        request: RasterRequest,
        contract: RasterContract,
        access: Access | None = None,
        deadline: Deadline | None = None,
        tokenizer: Tokenizer | None = None,
        prompt_size: PromptSize | None = None,
    ) -> None:
        self.request = request
        self.plan = Plan(request, contract, access or Access(), deadline, tokenizer)
        self._prompt_size = prompt_size or PromptSize()
        self._items_a_prompt = self._prompt_size.windows(self._window_numbers)
        self._lock = threading.Lock()

    @property
    def instruction(self) -> str | None:
        """What is asked in words."""
        return self.plan.instruction

    def items(self) -> list[dict[str, Any]]:
        """An image item a window and way to see it, in the order of the windows.

        No pixels are read yet.
        """
        return [
            lazy_item(*self._seen(window, way), self.plan.view.dtype) | extras
            for window, extras in zip(self.plan.windows, self._extras(), strict=True)
            for way in self.plan.ways
        ]

    @cached_property
    def prompts(self) -> list[range]:
        """Which items share a prompt: neighbours of one size."""
        shapes = self._shapes
        alike = [list(run) for _, run in groupby(range(len(shapes)), shapes.__getitem__)]
        return [
            range(first, min(first + self._items_a_prompt, run[-1] + 1))
            for run in alike
            for first in run[:: self._items_a_prompt]
        ]

    @property
    def prompt_bytes(self) -> int:
        """Bytes of the pixels of a prompt, at most."""
        return self._window_numbers * self.plan.view.dtype.itemsize * self.most_a_prompt

    def numbers(self, index: int) -> int:
        """Of the windows of a prompt: one a pixel, band and date."""
        items = self.prompts[index]
        return len(items) * math.prod(self._shapes[items[0]])

    @property
    def tells_pace(self) -> bool:
        """Whether it has more than a usual prompt: less says how long a request takes."""
        return len(self._shapes) > self._prompt_size.usual

    @cached_property
    def most_a_prompt(self) -> int:
        """Items of the prompt that has the most."""
        return max(map(len, self.prompts))

    @property
    def asked(self) -> dict[str, str]:
        """What the model is asked for, in `PoolingParams.extra_kwargs`.

        `answer` is "ids" or "rounded" where no more is needed, see `Plan.answer`: a model that
        does not know of it gives scores. `image` is "all" where items share a prompt.
        """
        answer = {} if self.plan.answer == "scores" else {"answer": self.plan.answer}
        return answer | ({"image": "all"} if self.most_a_prompt > 1 else {})

    def feed(self, index: int, scores: npt.NDArray[Any]) -> None:
        """Takes the map of an item, in any order and from any thread; see `Assembly.feed`.

        Raises:
            ServingError: It is not that of this scene's window.
            LimitError: It takes too long, or nobody waits for it any more.
        """
        with self._lock:
            self._assembly.feed(index, scores)

    def feed_prompt(self, index: int, maps: npt.NDArray[Any]) -> None:
        """Takes what came of a prompt.

        Args:
            index: Its place among the prompts.
            maps: (items, channels, height, width) where `asked` is for all images, else the map
                of the one item.

        Raises:
            ServingError: There is none for some item; and as `feed`.
            LimitError: As `feed`.
        """
        if index not in range(len(self.prompts)):
            raise ServingError(f"Maps came of prompt {index}, but there are {len(self.prompts)}")
        if not maps.size:
            raise ServingError("The network failed on a window; the server's log says why")
        items, several = self.prompts[index], maps if self.most_a_prompt > 1 else maps[None]
        if len(several) != len(items):
            raise ServingError(f"{len(several)} maps came of a prompt of {len(items)} windows")
        for item, scores in zip(items, several, strict=True):
            self.feed(item, scores)

    def answer(
        self, maps: Iterable[npt.NDArray[Any] | None], request_id: str | None
    ) -> RasterAnswer:
        """The map of the scene, from those of its windows; to be called once.

        Args:
            maps: One (channels, height, width) an item, in the order of the items, padded
                at the bottom and the right; None for one that was fed before.
            request_id: As the server knows the request.

        Raises:
            ServingError: The maps are not those of this scene's windows.
            LimitError: It takes too long, or nobody waits for it any more.
        """
        for i, one in enumerate(maps):
            if one is not None:
                self.feed(i, one)
        return answer_of(self.plan, self._assembly, request_id)

    def give_up(self) -> None:
        """Says that nobody waits for the map any more, from any thread."""
        if self.plan.deadline is not None:
            self.plan.deadline.cancel()

    def close(self) -> None:
        """Gives the scene's memory back."""
        self.plan.close()

    @property
    def _window_numbers(self) -> int:
        # The first window is as large as any.
        return math.prod(self.plan.view.shape(self.plan.windows[0]))

    @cached_property
    def _shapes(self) -> list[tuple[int, ...]]:
        """Of the image items."""
        views = ((window, way) for window in self.plan.windows for way in self.plan.ways)
        return [self._seen(*one)[1] for one in views]

    @cached_property
    def _assembly(self) -> Assembly:
        # Made when the first map is there: it is as large as the map of the scene.
        return Assembly(self.plan)

    def _extras(self) -> list[dict[str, Any]]:
        return [dict(self.plan.coordinates.item(i)) for i in range(len(self.plan.windows))]

    def _seen(self, window: Window, way: Symmetry) -> tuple[Callable[[], Loaded], tuple[int, ...]]:
        """What reads a window in one way, and its shape."""
        view, block = self.plan.view, self.plan.contract.output.downscale
        shape = view.shape(window)
        if way == Symmetry():
            return partial(view.read, window), shape
        sides = way.size(*(-(-side // block) * block for side in shape[-2:]))

        def load() -> Loaded:
            pixels, valid = (whole_blocks(one, block) for one in view.read(window))
            return way.apply(pixels), way.apply(valid)

        return load, (*shape[:-2], *sides)
