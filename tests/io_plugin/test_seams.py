"""A scene cut into windows is mapped as if it had not been cut, to the last bit."""

from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vllm_raster_io.blending import Profile, axis_shares
from vllm_raster_io.tiling import Axis, Tiling

from .mosaics import WholeMosaic

Map = npt.NDArray[np.float32]

PROFILES: tuple[Profile, ...] = get_args(Profile)
SIDES = [1, 5, 15, 16, 17, 63, 64, 65]

each_profile = pytest.mark.parametrize("profile", PROFILES)
profiles = st.sampled_from(PROFILES)
upscales = st.sampled_from([1, 2, 4])
sides = st.sampled_from(SIDES) | st.integers(1, 60)
quick = settings(derandomize=True, deadline=None, max_examples=80)


@st.composite
def tilings(draw: st.DrawFn) -> Tiling:
    """Of any size and overlap that leaves few enough windows to be quick."""
    tile = draw(st.integers(1, 24))
    overlap = draw(st.integers(0, tile - 1))
    # Windows that advance by a pixel are many.
    longest = 64 if tile - overlap > tile // 3 else tile + 6
    height, width = (min(draw(sides), longest) for _ in range(2))
    return Tiling(height, width, tile, overlap)


class TestSameAsUntiled:
    @quick
    @given(tilings(), upscales, profiles, st.randoms(use_true_random=False))
    @example(Tiling(1, 300, 128, 16), 1, "linear", None)
    @example(Tiling(300, 1, 128, 16), 2, "cosine", None)
    @example(Tiling(1, 300, 64, 63), 1, "gaussian", None)
    @example(Tiling(65, 65, 64, 63), 1, "linear", None)
    @example(Tiling(511, 513, 256, 64), 1, "linear", None)
    @example(Tiling(513, 511, 256, 0), 1, "gaussian", None)
    @example(Tiling(40, 40, 16, 15), 1, "cosine", None)
    def test_a_function_of_the_pixel(
        self, tiling: Tiling, upscale: int, profile: Profile, random: Any
    ) -> None:
        scene = noise(2, tiling.height, tiling.width)
        windows = tiling.windows()
        if random is not None:
            random.shuffle(windows)
        mosaic = WholeMosaic(tiling, 2, upscale, profile)
        for window in windows:
            mosaic.feed(window, network(scene[:, *window.slices], upscale))
        result = mosaic.data()
        assert result.dtype == np.float32
        np.testing.assert_array_equal(result, network(scene, upscale))

    @quick
    @given(
        tilings(), profiles, st.floats(width=32, allow_nan=False, allow_infinity=True, min_value=0)
    )
    @example(Tiling(65, 90, 32, 12), "linear", 12_345.678)
    @example(Tiling(65, 90, 32, 12), "gaussian", -0.3)
    @example(Tiling(65, 90, 32, 12), "cosine", float("-inf"))
    @example(Tiling(65, 90, 32, 12), "cosine", 3.4028235e38)
    def test_a_constant(self, tiling: Tiling, profile: Profile, value: float) -> None:
        scene = np.full((1, tiling.height, tiling.width), value, np.float32)
        np.testing.assert_array_equal(blend(tiling, scene, profile), scene)

    @quick
    @given(tilings(), profiles, st.data())
    def test_a_shifted_crop(self, tiling: Tiling, profile: Profile, data: st.DataObject) -> None:
        """Of a part of the scene the map is that part of the scene's map."""
        scene = noise(1, tiling.height, tiling.width)
        row = data.draw(st.integers(0, tiling.height - 1))
        column = data.draw(st.integers(0, tiling.width - 1))
        part = scene[:, row:, column:]
        cropped = Tiling(part.shape[1], part.shape[2], tiling.tile, tiling.overlap)
        expected = blend(tiling, scene, profile)[:, row:, column:]
        np.testing.assert_array_equal(blend(cropped, part, profile), expected)

    @each_profile
    def test_bit_identical_where_one_window_covers(self, profile: Profile) -> None:
        tiling = Tiling(50, 70, 32, 6)
        scene = noise(2, 50, 70) * 1e7
        np.testing.assert_array_equal(blend(tiling, scene, profile), scene)

    @each_profile
    @pytest.mark.parametrize("overlap", [0, 3, 11])
    def test_a_bright_pixel_at_seams_and_corners(self, profile: Profile, overlap: int) -> None:
        tiling = Tiling(20, 27, 12, overlap)
        rows, columns = interesting(tiling.rows), interesting(tiling.columns)
        for row in rows if overlap < 11 else rows[::5]:
            for column in columns if overlap < 11 else columns[::5]:
                scene = np.zeros((1, 20, 27), np.float32)
                scene[0, row, column] = 1000
                np.testing.assert_array_equal(blend(tiling, scene, profile), scene)


class TestWeights:
    @quick
    @given(tilings(), upscales, profiles)
    @example(Tiling(300, 300, 64, 63), 1, "gaussian")
    def test_never_sum_to_0(self, tiling: Tiling, upscale: int, profile: Profile) -> None:
        for axis in (tiling.rows, tiling.columns):
            total = np.zeros(axis.size * upscale)
            for share in axis_shares(axis, upscale, profile):
                assert share.weights.min() > 0
                total[share.scene] += share.weights
            np.testing.assert_allclose(total, 1, rtol=0, atol=1e-5)


def noise(channels: int, height: int, width: int) -> Map:
    generator = np.random.default_rng([height, width])
    return generator.uniform(-1, 1, (channels, height, width)).astype(np.float32)


def network(image: Map, upscale: int) -> Map:
    """Looks at each pixel by itself and tells its block's corners apart."""
    block = np.arange(upscale * upscale, dtype=np.float32).reshape(upscale, upscale)
    return np.kron(image, np.ones_like(block)) + np.tile(block / 64, image.shape[1:])


def blend(tiling: Tiling, scene: Map, profile: Profile) -> Map:
    mosaic = WholeMosaic(tiling, scene.shape[0], profile=profile)
    for window in tiling.windows():
        mosaic.feed(window, scene[:, *window.slices])
    return mosaic.data()


def interesting(axis: Axis) -> list[int]:
    """The pixels on both sides of each seam and each window's edge, and the scene's own edges."""
    edges = {start for start in axis.starts()} | {start + axis.length for start in axis.starts()}
    edges |= {share.scene.start for share in axis_shares(axis, 1, "none")}
    return sorted({pixel for e in edges for pixel in (e - 1, e) if 0 <= pixel < axis.size})
