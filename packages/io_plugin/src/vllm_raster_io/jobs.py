"""One request from its scene to its map."""

import base64
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from vllm_raster_io.access import read_source
from vllm_raster_io.bands import choose_bands
from vllm_raster_io.blending import Mosaic, Profile
from vllm_raster_io.contract import RasterContract
from vllm_raster_io.errors import RequestError, ServingError, TilingError
from vllm_raster_io.limits import LIMITS
from vllm_raster_io.maps import RasterMap, class_dtype, class_map, value_map, write_geotiff
from vllm_raster_io.places import centres
from vllm_raster_io.rasters import Scene
from vllm_raster_io.requests import ClassSummary, Effective, RasterAnswer, RasterRequest
from vllm_raster_io.tiling import Tiling, Window
from vllm_raster_io.windows import Loaded, lazy_item

_BLENDING: Profile = "linear"
_SPECIAL_WORDS = ("<image>", "<row>")
"""What stands for the image in a prompt, where the checkpoint's template puts it."""


class Job:
    """Cuts a scene into image items, and puts the maps of its windows together.

    Raises:
        RasterIOError: The request cannot be served; the message says why.
    """

    def __init__(self, request: RasterRequest, contract: RasterContract) -> None:
        self.contract = contract
        self.instruction = _instruction(request, contract)
        self.scene = Scene(read_source(request))
        try:
            self.bands = choose_bands(self.scene, contract.input.bands, request.indices)
            tile = contract.tile
            self.tiling = Tiling(self.scene.height, self.scene.width, tile.size, tile.overlap)
            LIMITS.check("windows", len(self.tiling))
            LIMITS.check("score_bytes", self._score_bytes())
            self.windows = self.tiling.windows()
            self.places = self._find_places()
        except Exception:
            self.close()
            raise
        # Zeros, for they cost nothing before they are written; read windows set what is not valid.
        self._invalid = np.zeros((self.scene.height, self.scene.width), dtype=np.bool_)

    def items(self) -> list[dict[str, Any]]:
        """An image item a window, in the order of the windows; pixels are not read yet."""
        dtype = self.scene.dtype(self.bands.indices)
        items = []
        for i, window in enumerate(self.windows):
            shape = (len(self.bands.indices), window.height, window.width)
            item = lazy_item(partial(self._read, window), shape, dtype)
            if self.places is not None:
                item["location_coords"] = self.places[i]
            items.append(item)
        return items

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
                height, width = window.height * output.upscale, window.width * output.upscale
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
        self.scene.close()

    def _read(self, window: Window) -> Loaded:
        pixels, valid = self.scene.read(window, self.bands.indices)
        np.logical_not(valid, out=self._invalid[window.slices])
        return pixels, valid

    def _score_bytes(self) -> int:
        output = self.contract.output
        pixels = self.scene.height * self.scene.width * output.upscale**2
        return pixels * output.channels * np.dtype(np.float32).itemsize

    def _find_places(self) -> npt.NDArray[np.float64] | None:
        if "location" not in self.contract.input.coordinates:
            return None
        return centres(self.scene.dataset, self.windows)

    def _invalid_pixels(self) -> npt.NDArray[np.bool_]:
        upscale = self.contract.output.upscale
        if upscale == 1:
            return self._invalid
        return self._invalid.repeat(upscale, axis=0).repeat(upscale, axis=1)

    def _describe(self, raster: RasterMap, invalid: int, request_id: str | None) -> RasterAnswer:
        contract, output = self.contract, self.contract.output
        _, height, width = raster.pixels.shape
        dataset = self.scene.dataset
        crs = dataset.crs or dataset.gcps[1]
        return RasterAnswer(
            data=base64.b64encode(write_geotiff(raster, dataset, output)).decode("ascii"),
            request_id=request_id,
            kind=output.kind,
            width=width,
            height=height,
            dtype=str(raster.pixels.dtype),
            nodata="nan" if np.isnan(raster.nodata) else int(raster.nodata),
            invalid_pixels=invalid,
            crs=None if crs is None else crs.to_string(),
            classes=self._summary(raster) if output.kind == "classes" else None,
            effective=Effective(
                indices=list(self.bands.indices),
                bands=list(contract.input.bands),
                bands_by=self.bands.by,
                tile_size=contract.tile.size,
                overlap=contract.tile.overlap,
                blending=_BLENDING,
                windows=len(self.windows),
                coordinates=["location"] if self.places is not None else [],
                prompt=self.instruction,
            ),
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
