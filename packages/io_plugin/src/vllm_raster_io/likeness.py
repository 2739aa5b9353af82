"""What the files of one request must have in common: their place, size and type."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from rasterio.crs import CRS
from rasterio.transform import Affine

from vllm_raster_io.errors import RasterError
from vllm_raster_io.quoting import cut
from vllm_raster_io.rasters import Scene

_SHIFT = 0.01
"""Pixels by which the corners of two files may differ, for writers round."""
_SHORT = ("size", "reference system", "type")
"""What fits into a message."""


def check_alike(scenes: Sequence[tuple[Scene, Sequence[int]]], parts: str) -> None:
    """Compares each file with the first.

    Args:
        scenes: The files, and the bands of each that are used.
        parts: What there is a file of each, for the message: "dates", "bands".

    Raises:
        RasterError: One is not like the first; says in what.
    """
    first = _Likeness(*scenes[0])
    for number, (scene, indices) in enumerate(scenes[1:], 2):
        if differences := first.differences(_Likeness(scene, indices)):
            raise RasterError(
                f"The files of the {parts} must be alike, but number {number} has "
                f"{', '.join(differences)}. Bring all to one grid and type"
            )


class _Likeness:
    """What must be the same in all files."""

    def __init__(self, scene: Scene, indices: Sequence[int]) -> None:
        dataset = scene.dataset
        points, points_crs = dataset.gcps
        self._size = (scene.height, scene.width)
        self._transform = dataset.transform
        self._told = {
            "size": f"{scene.height}×{scene.width}",
            "reference system": _short(dataset.crs or points_crs),
            "ground control points": [(one.row, one.col, one.x, one.y) for one in points],
            "rational polynomials": dataset.rpcs and dataset.rpcs.to_dict(),
            "type": str(scene.dtype(indices)),
        }

    def differences(self, other: "_Likeness") -> list[str]:
        """What is not the same, each with what the other has, and what was expected."""
        told = [
            f"another {name}" + (f" ({found}, not {wanted})" if name in _SHORT else "")
            for (name, wanted), found in zip(self._told.items(), other._told.values(), strict=True)
            if wanted != found
        ]
        if self._size == other._size and not self._same_place(other):
            found, wanted = _six(other._transform), _six(self._transform)
            told.append(f"another transform ({found}, not {wanted})")
        return told

    def _same_place(self, other: "_Likeness") -> bool:
        if self._transform == other._transform:
            return True
        if self._transform.is_degenerate or other._transform.is_degenerate:
            return False
        height, width = self._size
        corners = np.array([(0, 0, 1), (width, 0, 1), (0, height, 1), (width, height, 1)]).T
        found = _matrix(~self._transform) @ _matrix(other._transform) @ corners
        return bool(np.allclose(found, corners, rtol=0, atol=_SHIFT))


def _short(crs: CRS | None) -> str:
    return "none" if crs is None else cut(crs.to_string())


def _matrix(transform: Affine) -> npt.NDArray[np.float64]:
    return np.array(transform[:9]).reshape(3, 3)


def _six(transform: Affine) -> list[float]:
    return [float(one) for one in transform[:6]]
