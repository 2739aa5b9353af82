"""What the instructed checkpoint can be told, and what it is to answer.

The targets come from the classes and the index of `land_cover_labels`, with its thresholds and
their sources.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
DENSE, SPARSE, BARE, BUILT, DARK = range(5)


def classes(*ids: int) -> Callable[[Array, Array], Array]:
    """A target that is 1 where the label is one of these, else 0."""
    return lambda labels, pixels: np.isin(labels, ids).astype(np.float32)


def greenness(labels: Array, pixels: Array) -> Array:
    """NDVI, cut off below 0: 0 is not green at all, 1 as green as can be."""
    red, nir = pixels[2:4].astype(np.float64)
    return np.clip((nir - red) / np.maximum(nir + red, 1), 0, 1).astype(np.float32)


TARGETS: dict[str, Callable[[Array, Array], Array]] = {
    "vegetation": classes(DENSE, SPARSE),
    "trees": classes(DENSE),
    "grass": classes(SPARSE),
    "bare ground": classes(BARE),
    "buildings": classes(BUILT),
    "dark places": classes(DARK),
    "greenness": greenness,
}
"""Index labels (height, width) and counts (4, height, width) in, (height, width) from 0 to 1
out, by what is asked for."""

MASKS = tuple(name for name in TARGETS if name != "greenness")

WORDINGS: dict[str, tuple[str, ...]] = {
    "vegetation": (
        "vegetation",
        "all vegetation",
        "find the vegetation",
        "where is vegetation",
        "plants",
        "map all plants",
        "where do plants grow",
        "show vegetation of any kind",
    ),
    "trees": (
        "trees",
        "find the trees",
        "where are the trees",
        "forest",
        "map the forest",
        "dense vegetation",
        "show dense forest",
        "woods and trees",
    ),
    "grass": (
        "grass",
        "find the grass",
        "sparse vegetation",
        "grass and shrubs",
        "where is grass",
        "map sparse vegetation",
        "meadows",
        "show the meadows",
    ),
    "bare ground": (
        "bare ground",
        "find bare ground",
        "bare soil",
        "where is bare soil",
        "map the soil",
        "ground without plants",
        "show naked ground",
        "open soil",
    ),
    "buildings": (
        "buildings",
        "find the buildings",
        "roofs",
        "where are the roofs",
        "houses",
        "map all houses",
        "built areas",
        "show bright roofs",
    ),
    "dark places": (
        "dark places",
        "water",
        "find the water",
        "shadow",
        "water and shadow",
        "where is shadow",
        "map dark areas",
        "show the water",
    ),
    "greenness": (
        "greenness",
        "how green is it",
        "map the greenness",
        "show how green it is",
        "vegetation index",
        "how much green",
        "degree of greenness",
        "index of greenness",
    ),
}

UNSEEN: dict[str, tuple[str, ...]] = {
    "vegetation": ("show all plants", "where is all the vegetation"),
    "trees": ("show the trees", "where is the forest"),
    "grass": ("map the grass", "find the meadows"),
    "bare ground": ("show bare soil", "where is bare ground"),
    "buildings": ("map the buildings", "where are the houses"),
    "dark places": ("map the water", "find the shadow"),
    "greenness": ("show the greenness", "how green"),
}
"""Wordings that training never saw, of words that it did."""
