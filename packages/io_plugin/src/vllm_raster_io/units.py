"""What the numbers of a file stand for, where that is not what the checkpoint expects."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vllm_raster_io.contract import InputContract
from vllm_raster_io.errors import RequestError
from vllm_raster_io.requests import RasterRequest

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Units:
    """How a file's numbers become the checkpoint's: number * factor + shift, for each band.

    The checkpoint takes numbers n that stand for n * scale + offset of its own; those of the file
    stand for what the request says.

    Attributes:
        scales: What the request says, one a band.
        offsets: The same, added after.
        factors: One a band.
        shifts: One a band.
    """

    scales: tuple[float, ...]
    offsets: tuple[float, ...]
    factors: tuple[float, ...]
    shifts: tuple[float, ...]

    @classmethod
    def of(cls, request: RasterRequest, contract: InputContract) -> Self | None:
        """Those that a request asks for; None where the numbers are the checkpoint's already.

        Raises:
            RequestError: It says too little, or something for another number of bands.
        """
        if request.scale is None and request.offset is None:
            return None
        if request.offset is None and contract.offset != 0:
            raise RequestError(
                "`scale` needs `offset` beside it, for the checkpoint's own is not 0 but "
                f"{contract.offset}: give that of the file, 0 if it has none"
            )
        scales = _each("scale", request.scale, contract.scale, contract.bands)
        offsets = _each("offset", request.offset, contract.offset, contract.bands)
        if 0 in scales:
            raise RequestError("`scale` must not be 0: all pixels would be alike")
        factors = tuple(one / contract.scale for one in scales)
        shifts = tuple((one - contract.offset) / contract.scale for one in offsets)
        if all(one == 1 for one in factors) and not any(shifts):
            return None
        return cls(scales, offsets, factors, shifts)

    def apply(self, pixels: Array) -> npt.NDArray[np.float32]:
        """The checkpoint's numbers for pixels (bands, …) of a file; infinite where too large."""
        shape = (-1,) + (1,) * (pixels.ndim - 1)
        with np.errstate(over="ignore", invalid="ignore"):
            values = pixels * np.array(self.factors).reshape(shape)
            return (values + np.array(self.shifts).reshape(shape)).astype(np.float32)


def _each(
    field: str, asked: float | Sequence[float] | None, own: float, bands: Sequence[str]
) -> tuple[float, ...]:
    if asked is None:
        return (own,) * len(bands)
    if isinstance(asked, int | float):
        return (float(asked),) * len(bands)
    if len(asked) != len(bands):
        raise RequestError(
            f"`{field}` must be one number, or one for each of {len(bands)} bands "
            f"({', '.join(bands)}), got {len(asked)}"
        )
    return tuple(map(float, asked))
