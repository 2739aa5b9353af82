"""Whatever a request asks for, it ends in a map of the right form or is refused in words."""

import base64
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rasterio.control import GroundControlPoint

from vllm_raster_io.errors import RasterIOError

from ..factories import make_raster
from .requesting import mapped, noise
from .scenes import make_contract

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

POINTS = [GroundControlPoint(r, c, 10 + c / 48, 50 - r / 32) for r in (0, 32) for c in (0, 48)]
SCENES = [
    make_raster(values=noise(37, 53), nodata=0, descriptions=["B02", "B03", "B04", "B08"]),
    make_raster(values=noise(5, 40), crs=None),
    make_raster(values=noise(20, 20), crs="EPSG:4326", gcps=POINTS),
    make_raster(values=noise(33, 1) / np.float32(10_000), dtype="float32"),
]
CONTRACTS = [
    make_contract(channels=3, size=32),
    make_contract("values", channels=2, size=32, downscale=4, coordinates=("location",)),
    make_contract("image", channels=3, size=32, upscale=2),
]

numbers = st.one_of(
    st.integers(-3, 70), st.floats(allow_subnormal=True), st.just(10**400), st.just(-(2**63))
)
texts = st.sampled_from(["B02", "nir", "", "none", "nan", "EPSG:4326", "EPSG:32632", "x", "cog"])
anything = st.one_of(st.none(), st.booleans(), numbers, texts, st.lists(numbers, max_size=5))
likely: dict[str, st.SearchStrategy[Any]] = {
    "bands": st.lists(st.one_of(st.integers(1, 5), texts), min_size=4, max_size=4),
    "indices": st.lists(st.integers(0, 4), min_size=4, max_size=4),
    "scale": numbers,
    "offset": numbers,
    "nodata": st.one_of(numbers, texts),
    "window": st.lists(st.integers(0, 40), min_size=4, max_size=4),
    "bbox": st.sampled_from(
        [[600_000, 5_299_800, 600_300, 5_299_990], [10.2, 47.0, 10.5, 48.0], [0, 0, 1, 1]]
    ),
    "bbox_crs": st.sampled_from(["EPSG:4326", "EPSG:32632", "EPSG:1"]),
    "resolution": st.sampled_from([3, 10, 25, [10, 40], 0.001]),
    "tile_size": st.integers(1, 33),
    "overlap": st.integers(0, 32),
    "blending": st.sampled_from(["none", "linear", "cosine", "gaussian"]),
    "augment": st.sampled_from(["none", "flips", "flips_rotations"]),
    "product": st.sampled_from(["classes", "probabilities", "logits", "values", "image"]),
    "dtype": st.sampled_from(["float32", "uint8"]),
    "confidence": st.booleans(),
    "format": st.sampled_from(["geotiff", "cog", "png", "webp", "jpeg", "npy"]),
    "compression": st.sampled_from(["none", "deflate", "lzw", "zstd"]),
    "quality": st.integers(0, 101),
}
BEGINS = {
    "geotiff": b"II*\0",
    "cog": b"II*\0",
    "png": b"\x89PNG",
    "webp": b"RIFF",
    "jpeg": b"\xff\xd8\xff",
    "npy": b"\x93NUMPY",
}


@settings(derandomize=True, deadline=None, max_examples=400)
@given(st.data())
def test_a_map_or_a_refusal(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(likely)), unique=True, max_size=4))
    odd = data.draw(st.integers(0, 5)) == 0
    fields = {name: data.draw(anything if odd else likely[name]) for name in names}
    contract = data.draw(st.sampled_from(CONTRACTS))
    scene = data.draw(st.integers(0, len(SCENES) - 1))
    try:
        answer = mapped(SCENES[scene], contract, **fields)
    except RasterIOError as error:
        message = str(error)
    else:
        message = ""
    if message:
        assert 20 < len(message) < 1_500
        return
    assert base64.b64decode(answer.data).startswith(BEGINS[answer.format])
    column, row, width, height = answer.effective.window
    assert (answer.width, answer.height) == (
        contract.output.extent(width),
        contract.output.extent(height),
    )
    assert 0 <= answer.invalid_pixels <= answer.width * answer.height
    assert min(column, row) >= 0
    for name, value in fields.items():
        if name in ("overlap", "tile_size", "blending", "augment", "window") and value is not None:
            told = getattr(answer.effective, name)
            # Whole blocks are shared.
            assert told >= value if name == "overlap" else told == value
