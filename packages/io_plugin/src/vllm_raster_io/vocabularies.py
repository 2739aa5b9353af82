"""Names of bands: what each of the common vocabularies calls the same part of the spectrum.

The meanings are STAC's common names. A file or a checkpoint names its bands in one vocabulary, but
does not say in which: B05 is a red edge to Sentinel-2 and near infrared to HLS L30. So names are
read together, in each vocabulary that knows the most of them.

Each table names where it is from. The tests have the bands' wavelengths, and see that each lies
where the STAC extension `eo` says that bands of its common name lie.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

# STAC extension `eo` 2.0.0: the schema's `eo:common_name`, and the README, "Common Band Names".
_STAC = (
    "pan coastal blue green green05 yellow red rededge rededge071 rededge075 rededge078 nir nir08 "
    "nir09 cirrus swir16 swir22 lwir lwir11 lwir12"
)
_COMMON = {name: name for name in _STAC.split()} | {
    "rededge1": "rededge071",
    "rededge2": "rededge075",
    "rededge3": "rededge078",
    "coastalaerosol": "coastal",
    "nirbroad": "nir",
    "nirnarrow": "nir08",
    "watervapor": "nir09",
    "watervapour": "nir09",
    "swir1": "swir16",
    "swir2": "swir22",
    "thermalinfrared1": "lwir11",
    "thermalinfrared2": "lwir12",
}
"""STAC's, Earth Search's and TerraTorch's names, which do not contradict one another.

`rededge1` to `rededge3` are keys of assets in Earth Search's collection `sentinel-2-l2a`, and in
TerraTorch's enumeration `HLSBands` (`terratorch.datasets`), as all that follow.
"""

# ESA, Sentinel-2 User Handbook, "Spectral bands"; the common names as in STAC's table.
_SENTINEL_2 = {
    "1": "coastal",
    "2": "blue",
    "3": "green",
    "4": "red",
    "5": "rededge071",
    "6": "rededge075",
    "7": "rededge078",
    "8": "nir",
    "8a": "nir08",
    "9": "nir09",
    "10": "cirrus",
    "11": "swir16",
    "12": "swir22",
}
# USGS, Landsat 8-9 Collection 2 Level 2 Science Product Guide; common names as in USGS's own STAC
# catalogue (`landsat-c2l2-sr`, `landsat-c2l2-st`) and STAC's table.
_LANDSAT_8 = {
    "1": "coastal",
    "2": "blue",
    "3": "green",
    "4": "red",
    "5": "nir08",
    "6": "swir16",
    "7": "swir22",
    "9": "cirrus",
    "10": "lwir11",
    "11": "lwir12",
}
# USGS, Landsat 4-7 Collection 2 Level 2 Science Product Guide. Band 4, from 0.76 to 0.90 µm, is
# nir08 in USGS's own catalogue; STAC's table calls it nir, as which it is found too, see `WIDER`.
_LANDSAT_4 = {
    "1": "blue",
    "2": "green",
    "3": "red",
    "4": "nir08",
    "5": "swir16",
    "6": "lwir",
    "7": "swir22",
}
# NASA, MODIS Surface Reflectance User's Guide (MOD09GA, MYD09GA); the common names as in STAC's
# table, which has none for band 5, at 1.24 µm.
_MODIS = {"1": "red", "2": "nir", "3": "blue", "4": "green", "6": "swir16", "7": "swir22"}
# The panchromatic bands 8 are left out: they are of another size, and a B8 is Sentinel-2's.


def _padded(bands: dict[str, str]) -> dict[str, str]:
    """With two digits, as in B02; B8A has one."""
    return {f"b{k.zfill(2)}": meaning for k, meaning in bands.items()}


def _prefixed(bands: dict[str, str], prefix: str, numbers: str) -> dict[str, str]:
    return {f"{prefix}{number}": bands[number] for number in numbers.split()}


VOCABULARIES: dict[str, dict[str, str]] = {
    "Sentinel-2": _padded(_SENTINEL_2) | {f"b{k}": v for k, v in _SENTINEL_2.items()},
    # NASA, HLS Product User Guide 2.0, "HLS spectral bands nomenclature": both keep the numbers of
    # the instrument, with two digits.
    "HLS S30": _padded(_SENTINEL_2),
    "HLS L30": _padded(_LANDSAT_8),
    "Landsat 8 and 9": {f"b{k}": v for k, v in _LANDSAT_8.items()}
    | _prefixed(_LANDSAT_8, "srb", "1 2 3 4 5 6 7")
    | _prefixed(_LANDSAT_8, "stb", "10"),
    "Landsat 4 to 7": {f"b{k}": v for k, v in _LANDSAT_4.items()}
    | _prefixed(_LANDSAT_4, "srb", "1 2 3 4 5 7")
    | _prefixed(_LANDSAT_4, "stb", "6"),
    "MODIS": _prefixed(_MODIS, "surreflb0", "1 2 3 4 6 7"),
}
"""For each vocabulary the meanings of its names, besides the common ones, which all know."""

WIDER = {"nir": ("nir08",), "rededge": ("rededge071", "rededge075", "rededge078")}
"""What a general name may also mean, where there is but one of these and not itself."""


@dataclass(frozen=True)
class Reading:
    """Names as one vocabulary reads them.

    Attributes:
        vocabulary: Its name.
        meanings: For each name its meaning, None where the vocabulary does not know it.
    """

    vocabulary: str
    meanings: tuple[str | None, ...]


def readings(names: Sequence[str | None]) -> list[Reading]:
    """The ways in which names can be read: those that understand the most of them.

    Each has other meanings than the ones before. Names that only count the bands, as B1, B2, B3,
    are understood by none.
    """
    simple = [None if name is None else simplified(name) for name in names]
    if _only_counts(simple):
        simple = [None] * len(simple)
    found: dict[tuple[str | None, ...], Reading] = {}
    for vocabulary, own in VOCABULARIES.items():
        known = _COMMON | own
        meanings = tuple(None if one is None else known.get(one) for one in simple)
        found.setdefault(meanings, Reading(vocabulary, meanings))
    most = max(_understood(one) for one in found.values())
    return [one for one in found.values() if _understood(one) == most]


def simplified(name: str) -> str:
    """A name without case, spaces, marks, and what GDAL appends to it after a comma."""
    return re.sub(r"[^0-9a-z]", "", name.partition(",")[0].casefold())


def _only_counts(names: Sequence[str | None]) -> bool:
    found = [re.fullmatch(r"b0*(\d+)", name or "") for name in names]
    numbers = [int(one[1]) for one in found if one is not None]
    return len(numbers) == len(names) > 1 and numbers in (
        list(range(len(names))),
        list(range(1, len(names) + 1)),
    )


def _understood(reading: Reading) -> int:
    return sum(one is not None for one in reading.meanings)
