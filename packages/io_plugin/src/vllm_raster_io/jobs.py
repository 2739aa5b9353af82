"""One request from its scene to its map."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from vllm_raster_io.access import Access, deliver
from vllm_raster_io.blending import Mosaic, Profile
from vllm_raster_io.contract import RasterContract
from vllm_raster_io.coordinates import find_coordinates
from vllm_raster_io.deadlines import Deadline
from vllm_raster_io.errors import RequestError, ServingError, TilingError
from vllm_raster_io.limits import LIMITS
from vllm_raster_io.maps import RasterMap, class_dtype, class_map, value_map, write_geotiff
from vllm_raster_io.requests import ClassSummary, Effective, RasterAnswer, RasterRequest
from vllm_raster_io.series import Series
from vllm_raster_io.tiling import Tiling, Window
from vllm_raster_io.windows import Loaded, lazy_item

_BLENDING: Profile = "linear"
_SPECIAL_WORDS = ("<image>", "<row>")
"""What stands for the image in a prompt, where the checkpoint's template puts it."""


class Job:
    """Cuts a scene into image items, and puts the maps of its windows together.

    Args:
        request: What is asked.
        contract: What the checkpoint takes and gives.
        access: Which files may be read and written.
        deadline: Until when all must be done; without it, there is no hurry.

    Raises:
        RasterIOError: The request cannot be served; the message says why.
    """

    def __init__(
        self,
        request: RasterRequest,
        contract: RasterContract,
        access: Access | None = None,
        deadline: Deadline | None = None,
    ) -> None:
        access = access or Access()
        self.contract = contract
        self._deadline = deadline
        self.instruction = _instruction(request, contract)
        self._target = access.target(request)
        taken = contract.input
        files = access.sources(request, taken.frames, deadline, len(taken.bands))
        self.series = Series(files, contract.input, request.indices)
        try:
            size, tile = (self.series.height, self.series.width), contract.tile
            self.tiling = Tiling(*size, tile.size, tile.overlap, contract.output.downscale)
            LIMITS.check("windows", len(self.tiling))
            LIMITS.check("score_bytes", self._score_bytes())
            self.windows = self.tiling.windows()
            self.coordinates = find_coordinates(request, contract.input, self.series, self.windows)
        except Exception:
            self.close()
            raise
        # Zeros, for they cost nothing before they are written; read windows set what is not valid.
        self._invalid = np.zeros(size, dtype=np.bool_)

    def items(self) -> list[dict[str, Any]]:
        """An image item a window, in the order of the windows; pixels are not read yet."""
        dtype = self.series.dtype
        return [
            lazy_item(partial(self._read, window), self.series.shape(window), dtype)
            | self.coordinates.item(i)
            for i, window in enumerate(self.windows)
        ]

    def answer(self, maps: Sequence[npt.NDArray[Any]], request_id: str | None) -> RasterAnswer:
        """The map of the scene, from those of its windows.

        Args:
            maps: One (channels, height, width) a window, in the order of the windows, padded
                at the bottom and the right.
            request_id: As the server knows the request.

        Raises:
            ServingError: The maps are not those of this scene's windows.
        """
        output = self.contract.output
        mosaic = Mosaic(self.tiling, output.channels, output.upscale, _BLENDING)
        try:
            for window, scores in zip(self.windows, maps, strict=True):
                height, width = output.extent(window.height), output.extent(window.width)
                mosaic.feed(window, scores[:, :height, :width])
        except (TilingError, ValueError) as error:
            raise ServingError(f"The network's maps do not fit the scene: {error}") from error
        invalid = self._invalid_pixels()
        if output.kind == "classes":
            raster = class_map(mosaic.class_ids(class_dtype(output.channels)), invalid)
        else:
            raster = value_map(mosaic.data(), invalid)
        return self._describe(raster, int(np.count_nonzero(invalid)), request_id)

    def close(self) -> None:
        """Gives the scene's memory back."""
        self.series.close()

    def _read(self, window: Window) -> Loaded:
        pixels, valid = self.series.read(window)
        np.logical_not(valid, out=self._invalid[window.slices])
        return pixels, valid

    def _score_bytes(self) -> int:
        output = self.contract.output
        pixels = output.extent(self.series.height) * output.extent(self.series.width)
        return pixels * output.channels * np.dtype(np.float32).itemsize

    def _invalid_pixels(self) -> npt.NDArray[np.bool_]:
        """The map's: those of a block of which no pixel is valid."""
        invalid, output = self._invalid, self.contract.output
        for axis in (0, 1):
            if output.downscale > 1:
                blocks = np.arange(0, invalid.shape[axis], output.downscale)
                invalid = np.logical_and.reduceat(invalid, blocks, axis=axis)
            if output.upscale > 1:
                invalid = invalid.repeat(output.upscale, axis=axis)
        return invalid

    def _describe(self, raster: RasterMap, invalid: int, request_id: str | None) -> RasterAnswer:
        output, dataset = self.contract.output, self.series.dataset
        _, height, width = raster.pixels.shape
        crs = dataset.crs or dataset.gcps[1]
        content = write_geotiff(raster, dataset, output, self.series.tags)
        if self._target is not None and self._deadline is not None:
            self._deadline.remaining()  # or nobody waits for the file
        data_format, data = deliver(content, self._target)
        return RasterAnswer(
            data_format=data_format,
            data=data,
            request_id=request_id,
            kind=output.kind,
            width=width,
            height=height,
            dtype=str(raster.pixels.dtype),
            nodata="nan" if np.isnan(raster.nodata) else int(raster.nodata),
            invalid_pixels=invalid,
            crs=None if crs is None else crs.to_string(),
            classes=self._summary(raster) if output.kind == "classes" else None,
            effective=self._effective(),
        )

    def _effective(self) -> Effective:
        contract, told = self.contract, self.coordinates
        return Effective(
            indices=list(self.series.indices),
            bands=list(contract.input.bands),
            bands_by=self.series.bands_by,
            tile_size=contract.tile.size,
            overlap=self.tiling.rows.overlap * self.tiling.step,
            blending=_BLENDING,
            windows=len(self.windows),
            upscale=contract.output.upscale,
            downscale=contract.output.downscale,
            frames=contract.input.frames,
            coordinates=told.names,
            dates=told.days,
            dates_by=told.days_by,
            location_by=told.places_by,
            prompt=self.instruction,
            notes=[*self.series.notes, *told.notes],
        )

    def _summary(self, raster: RasterMap) -> list[ClassSummary]:
        classes = self.contract.output.classes
        # Row by row: bincount works on a copy in 64 bits, and lets no other thread run.
        length = np.iinfo(raster.pixels.dtype).max + 1
        found = np.zeros(length, dtype=np.int64)
        for row in raster.pixels[0]:
            found += np.bincount(row, minlength=length)
        return [
            ClassSummary(id=i, name=one.name, color=one.color, pixels=int(found[i]))
            for i, one in enumerate(classes)
        ]


def _instruction(request: RasterRequest, contract: RasterContract) -> str | None:
    """What a request asks for in words, which it must where there is a language model."""
    known, asked = contract.instructions, request.prompt
    if known is None:
        if asked is not None:
            raise RequestError(
                "`prompt` is refused: this checkpoint has no language model, it always maps "
                f"{contract.output.kind}. Leave it out"
            )
        return None
    if asked is None or not asked.strip():
        raise RequestError(
            "`prompt` must say what to map, for this checkpoint maps what it is told. "
            f"It was trained on, among others: {known.examples()}"
        )
    if taken := [word for word in _SPECIAL_WORDS if word in asked]:
        raise RequestError(
            f"`prompt` may not hold {' or '.join(taken)}, which stands for a part of the image. "
            "Say in words what to map; the image goes to its place by itself"
        )
    return asked
