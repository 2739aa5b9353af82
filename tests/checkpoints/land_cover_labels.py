"""What the land-cover checkpoint is to find, computed from the pixels themselves.

The labels are a decision list over published thresholds on surface reflectance; the first rule
that holds decides:

1. *dark* (water, shadow, wet asphalt): near infrared below 0.15. This is the limit below which a
   Sentinel-2 pixel counts as dark or shaded in Braaten's cloud and shadow masking (`NIR_DRK_THRESH`
   of "Sentinel-2 Cloud Masking with s2cloudless", Google Earth Engine community tutorials) and in
   biodivMapR (`NIR_Thresh = 1500`; Féret & de Boissieu 2020, doi:10.1111/2041-210X.13310).
2. *dense vegetation*: NDVI of 0.6 or more.
3. *sparse vegetation or grass*: NDVI of 0.2 or more. NDVI, (nir - red) / (nir + red), is from Rouse
   et al. 1974 ("Monitoring vegetation systems in the Great Plains with ERTS"); its ranges are those
   of the USGS ("NDVI, the Foundation for Remote Sensing Phenology"): about 0.6 to 0.9 in dense
   vegetation, 0.2 to 0.5 in shrubs, grassland and senescing crops, 0.1 or less over rock and
   sand. What lies between two ranges goes to the lower class.
4. *built or bright*: green above 0.175, the brightness test of Braaten, Cohen & Yang 2015
   (doi:10.1016/j.rse.2015.08.006). They look for clouds, which the two scenes have none of; what
   passes there are roofs and concrete.
5. *bare ground*: all the rest.

Each rule is an exact comparison, so a label is right by definition, also for made-up pixels.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

CLASS_NAMES = (
    "dense vegetation",
    "sparse vegetation or grass",
    "bare ground",
    "built or bright",
    "dark",
)

DARK_NIR = 0.15
DENSE_NDVI = 0.6
SPARSE_NDVI = 0.2
BRIGHT_GREEN = 0.175

HELD_OUT = {
    "sentinel2_forest_fields_4band.tif": (slice(200, 300), slice(0, 300)),
    "sentinel2_town_4band.tif": (slice(0, 152), slice(104, 155)),
}
"""Rows and columns of each scene that training never sees: a third of it, by file name."""

MARGIN = 8
"""Pixels beside the held-out part that training does not see either."""

PRESENT = 20
"""A class is present from this many labelled pixels on; with fewer, its IoU is mere chance."""


def index_labels(pixels: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Labels pixels by the rules above.

    Args:
        pixels: (4, height, width) or (4, n): blue, green, red, near infrared in counts.

    Returns:
        Class ids (height, width) or (n,), in the order of `CLASS_NAMES`.
    """
    _, green, red, nir = pixels.astype(np.float64) / 10_000
    # Without a division, so that black pixels need no exception.
    total, difference = nir + red, nir - red
    rules = [
        nir < DARK_NIR,
        difference >= DENSE_NDVI * total,
        difference >= SPARSE_NDVI * total,
        green > BRIGHT_GREEN,
    ]
    return np.select(rules, [4, 0, 1, 3], default=2).astype(np.uint8)


def mean_iou(
    ids: npt.NDArray[Any], labels: npt.NDArray[Any], valid: npt.NDArray[np.bool_]
) -> tuple[float, dict[str, float]]:
    """Intersection over union, where `valid`, of each class that the labels hold.

    A class with fewer than `PRESENT` labelled pixels is left out; what the map wrongly gives to
    it still counts against the others.

    Args:
        ids: Class ids of the map.
        labels: Class ids as they should be.
        valid: Where both are compared.

    Returns:
        The mean over the classes present, and each one's by its name.
    """
    found, wanted = ids[valid], labels[valid]
    by_class = {}
    for i, name in enumerate(CLASS_NAMES):
        if np.count_nonzero(wanted == i) >= PRESENT:
            both = np.count_nonzero((found == i) & (wanted == i))
            either = np.count_nonzero((found == i) | (wanted == i))
            by_class[name] = float(both / either)
    return sum(by_class.values()) / len(by_class), by_class
