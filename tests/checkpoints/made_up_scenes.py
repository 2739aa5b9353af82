"""Made-up reflectance for training: what two real scenes do not hold.

Spectra from water to snow and some that no ground has, in soft gradients, hard-edged patches,
rows of roofs and single pixels.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

Array = npt.NDArray[Any]

SPECTRA = np.array(
    [
        (0.02, 0.04, 0.02, 0.40),  # forest
        (0.03, 0.07, 0.04, 0.50),  # crops in full leaf
        (0.05, 0.08, 0.07, 0.25),  # grass
        (0.08, 0.11, 0.14, 0.27),  # dry grass
        (0.09, 0.13, 0.18, 0.26),  # bare ground
        (0.06, 0.09, 0.18, 0.25),  # red earth
        (0.20, 0.27, 0.33, 0.40),  # sand
        (0.18, 0.20, 0.22, 0.25),  # concrete
        (0.12, 0.15, 0.25, 0.30),  # tiles
        (0.30, 0.26, 0.20, 0.22),  # blue sheets
        (0.50, 0.52, 0.53, 0.55),  # white roof
        (0.85, 0.85, 0.84, 0.80),  # snow, cloud
        (0.09, 0.10, 0.10, 0.12),  # asphalt
        (0.05, 0.04, 0.03, 0.01),  # clear water
        (0.08, 0.12, 0.11, 0.06),  # turbid water
        (0.03, 0.03, 0.03, 0.07),  # shadow
        (0.00, 0.00, 0.00, 0.00),
    ]
)
"""Blue, green, red and near infrared of common ground, rounded, near enough to start from."""


def scene(rng: np.random.Generator, height: int, width: int) -> Array:
    """Draws reflectance (4, height, width) of one kind or another."""
    kinds = (_gradients, _patches, _roofs, _scattered)
    kind = rng.choice(len(kinds), p=(0.35, 0.25, 0.25, 0.15))
    reflectance = kinds[kind](rng, height, width)
    if rng.random() < 0.5:
        odd = rng.random((height, width)) < 0.02
        reflectance[:, odd] = _spectra(rng, np.count_nonzero(odd)).T
    noise = rng.normal(1, rng.choice((0, 0.02, 0.08)), reflectance.shape)
    return np.clip(reflectance * noise, 0, None)


def _spectra(rng: np.random.Generator, count: int) -> Array:
    """(count, 4): known ground, brighter or darker, or anything at all."""
    known = SPECTRA[rng.integers(len(SPECTRA), size=count)]
    known = known * np.exp(rng.normal(0, 0.25, (count, 1)) + rng.normal(0, 0.1, (count, 4)))
    anything = rng.random((count, 4)) * np.exp(rng.uniform(np.log(0.1), np.log(1.2), (count, 1)))
    return np.where(rng.random((count, 1)) < 0.6, known, anything)


def _gradients(rng: np.random.Generator, height: int, width: int) -> Array:
    count = rng.integers(2, 7)
    size = (height, width)
    knots = [max(2, length // rng.integers(6, 25)) for length in size]
    coarse = rng.normal(size=(1, count, *knots))
    smooth = F.interpolate(torch.from_numpy(coarse), size=size, mode="bicubic", align_corners=True)
    shares = (smooth[0] * rng.uniform(1, 8)).softmax(dim=0).numpy()
    return np.einsum("kb,khw->bhw", _spectra(rng, count), shares)


def _patches(rng: np.random.Generator, height: int, width: int) -> Array:
    count = rng.integers(3, 40)
    row, column = rng.uniform(0, height, count), rng.uniform(0, width, count)
    y, x = np.arange(height)[:, None, None], np.arange(width)[None, :, None]
    nearest = (np.abs(y - row) + np.abs(x - column)).argmin(axis=-1)
    return _spectra(rng, count)[nearest].transpose(2, 0, 1)


def _roofs(rng: np.random.Generator, height: int, width: int) -> Array:
    reflectance = _gradients(rng, height, width)
    (down, deep), (across, broad) = (_period(rng) for _ in range(2))
    y, x = np.indices((height, width))
    roofs = (y % down < deep) & (x % across < broad)
    house = y // down * (width // across + 1) + x // across
    reflectance[:, roofs] = _spectra(rng, house.max() + 1)[house[roofs]].T
    return reflectance


def _period(rng: np.random.Generator) -> tuple[int, int]:
    period = int(rng.integers(2, 10))
    return period, int(rng.integers(1, period + 1))


def _scattered(rng: np.random.Generator, height: int, width: int) -> Array:
    return _spectra(rng, height * width).T.reshape(4, height, width)
