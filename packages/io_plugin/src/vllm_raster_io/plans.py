"""What is done for a request, decided before a pixel is read."""

from typing import Literal

import numpy as np
import numpy.typing as npt

from vllm_raster_io.access import Access
from vllm_raster_io.augmentation import SYMMETRIES
from vllm_raster_io.closing import Closing
from vllm_raster_io.contract import OutputContract, RasterContract
from vllm_raster_io.coordinates import find_coordinates
from vllm_raster_io.deadlines import Deadline
from vllm_raster_io.encodings import Encoding
from vllm_raster_io.errors import RequestError
from vllm_raster_io.georeference import Georeference
from vllm_raster_io.instructions import Tokenizer, find_instruction
from vllm_raster_io.limits import LIMITS
from vllm_raster_io.products import class_dtype
from vllm_raster_io.regions import find_region
from vllm_raster_io.requests import RasterRequest
from vllm_raster_io.series import Series
from vllm_raster_io.tiling import Tiling, Window
from vllm_raster_io.units import Units
from vllm_raster_io.views import View

Answer = Literal["scores", "rounded", "ids"]
"""What comes back of a window: float32 scores; scores in half precision, of which a probability is
less than 1/255 off; or class ids."""

_FLOAT_BYTES = np.dtype(np.float32).itemsize


class Plan(Closing):
    """One request with its scene, of which nothing but the header is read yet.

    Args:
        request: What is asked.
        contract: What the checkpoint takes and gives.
        access: Which files may be read and written.
        deadline: Until when all must be done.
        tokenizer: The checkpoint's, if it has one: it tells which words are known.

    Attributes:
        instruction: What is asked in words.
        remarks: What is to be noted of them.
        encoding: What the map holds and how it is written.
        target: Where it is to be written; None for the answer.
        confidence_target: The same for the file of confidence.
        units: How the file's numbers become the checkpoint's; None where they are.
        series: The scene.
        region: What part of it is mapped, and how large the network's pixels are.
        place: Where the map lies.
        view: The part as the network sees it.
        tiling: How that is cut.
        windows: The windows.
        ways: In which ways the network sees each.
        coordinates: What else it is told.

    Raises:
        RasterIOError: The request cannot be served; the message says why.
    """

    def __init__(
        self,
        request: RasterRequest,
        contract: RasterContract,
        access: Access,
        deadline: Deadline | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.request, self.contract, self.deadline = request, contract, deadline
        self.instruction, self.remarks = find_instruction(request, contract, tokenizer)
        self.encoding = Encoding.choose(request, contract.output)
        self.units = Units.of(request, contract.input)
        self.target = access.target(request)
        self.confidence_target = None
        if self.target is not None and self.encoding.confidence:
            self.confidence_target = self.target.beside("_confidence")
        taken = contract.input
        files = access.sources(request, taken.frames, deadline, len(taken.bands))
        self.series = Series(files, contract.input, request.indices, request.bands)
        try:
            self._cut()
        except Exception:
            self.close()
            raise

    @property
    def map_size(self) -> tuple[int, int]:
        """Rows and columns of the map."""
        window, output = self.region.window, self.contract.output
        return output.extent(window.height), output.extent(window.width)

    @property
    def answer(self) -> Answer:
        """The least of a window that the map can be made of."""
        output, encoding = self.contract.output, self.encoding
        told = encoding.confidence or encoding.product == "probabilities"
        exact = told and encoding.dtype == "float32"
        if output.kind != "classes" or encoding.product == "logits" or exact:
            return "scores"
        alone = self.request.blending == "none" or not self.tiling.overlaps
        if alone and not told and len(self.ways) == 1 and not self.view.resamples:
            return "ids"
        return "rounded"

    def invalid(self) -> npt.NDArray[np.bool_]:
        """Which of the map's pixels are invalid, known where windows were read."""
        return _of_map(self.view.invalid, self.contract.output)

    def go_on(self) -> None:
        """Ends the work where there is no time left, or nobody waits for it any more.

        Raises:
            LimitError: So it is.
        """
        if self.deadline is not None:
            self.deadline.remaining()

    def close(self) -> None:
        """Gives the scene's memory back."""
        self.series.close()

    def _cut(self) -> None:
        request, series, contract = self.request, self.series, self.contract
        if request.nodata is not None:
            series.take_nodata(None if isinstance(request.nodata, str) else request.nodata)
        place, output = Georeference.of(series.dataset).checked(), contract.output
        self.region = find_region(request, place, series.height, series.width)
        part = place.part(self.region.window)
        self.place = part.scaled(output.upscale, output.downscale).checked()
        self.encoding.check_size(*self.map_size)
        self.view = View(series, self.region, self.units)
        self.tiling = _tiling(request, contract, self.view.height, self.view.width)
        self.ways = SYMMETRIES[request.augment]
        LIMITS.check("windows", len(self.tiling) * len(self.ways))
        LIMITS.check("score_bytes", self._score_bytes())
        self.windows = self.tiling.windows()
        middles = [self.view.in_scene(one) for one in self.windows]
        self.coordinates = find_coordinates(
            request, contract.input, series, middles, _middle(self.region.window)
        )

    def _score_bytes(self) -> int:
        """Of the map, and of the scores of one row of windows, of which it is made."""
        output, encoding, (height, width) = self.contract.output, self.encoding, self.map_size
        one = np.dtype(encoding.dtype).itemsize
        pixel = output.channels * one
        if encoding.product == "classes":
            ids = np.dtype(class_dtype(output.channels)).itemsize
            pixel = ids + one * encoding.confidence
        rows = output.extent(min(self.tiling.tile, self.view.height))
        strip = rows * output.extent(self.view.width) * output.channels * _FLOAT_BYTES
        return height * width * pixel + strip * (self.answer != "ids")


def _of_map(invalid: npt.NDArray[np.bool_], output: OutputContract) -> npt.NDArray[np.bool_]:
    """Of blocks that become one pixel, those of which no pixel is valid."""
    for axis in (0, 1):
        if output.downscale > 1:
            blocks = np.arange(0, invalid.shape[axis], output.downscale)
            invalid = np.logical_and.reduceat(invalid, blocks, axis=axis)
        if output.upscale > 1:
            invalid = invalid.repeat(output.upscale, axis=axis)
    return invalid


def _middle(window: Window) -> tuple[float, float]:
    return window.row + window.height / 2, window.column + window.width / 2


def _tiling(request: RasterRequest, contract: RasterContract, height: int, width: int) -> Tiling:
    tile, step = contract.tile, contract.output.downscale
    size = request.tile_size or tile.size
    if size > tile.size or size % step:
        blocks = f" and a multiple of {step}" if step > 1 else ""
        raise RequestError(
            f"`tile_size` must be at most {tile.size}, the checkpoint's{blocks}, got {size}"
        )
    overlap = request.overlap
    if overlap is None:
        overlap = tile.overlap * size // tile.size
    elif overlap > size - step:
        blocks = f", by a block of {step}" if step > 1 else ""
        raise RequestError(
            f"`overlap` must be less than the tile, which is {size} pixels{blocks}, got {overlap}"
        )
    return Tiling(height, width, size, overlap, step)
