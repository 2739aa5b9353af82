"""The windows' maps, put together again."""

import re
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vllm_raster_io.blending import Profile, axis_shares
from vllm_raster_io.errors import TilingError
from vllm_raster_io.tiling import Axis, Tiling, Window

from .mosaics import WholeMosaic

Map = npt.NDArray[np.float32]

PROFILES: tuple[Profile, ...] = get_args(Profile)
FADING: tuple[Profile, ...] = ("linear", "cosine", "gaussian")

each_profile = pytest.mark.parametrize("profile", PROFILES)
each_fading = pytest.mark.parametrize("profile", FADING)

axes = st.integers(1, 24).flatmap(
    lambda tile: st.builds(Axis, st.integers(1, 100), st.just(tile), st.integers(0, tile - 1))
)
profiles = st.sampled_from(PROFILES)
upscales = st.sampled_from([1, 2, 4])
quick = settings(derandomize=True, deadline=None, max_examples=60)


class TestWeights:
    @quick
    @given(axes, upscales, profiles)
    @example(Axis(300, 64, 63), 1, "cosine")
    def test_positive_and_sum_to_one(self, axis: Axis, upscale: int, profile: Profile) -> None:
        total = np.zeros(axis.size * upscale)
        for start, share in zip(axis.starts(), axis_shares(axis, upscale, profile), strict=True):
            assert share.weights.dtype == np.float32
            assert share.weights.min() > 0
            assert share.weights.max() <= 1
            # The part of the window and that of the scene are the same pixels.
            assert share.scene.start - share.window.start == start * upscale
            assert share.scene.stop - share.window.stop == start * upscale
            assert 0 <= share.window.start < share.window.stop <= axis.length * upscale
            total[share.scene] += share.weights
        np.testing.assert_allclose(total, 1, rtol=0, atol=1e-6)

    def test_linear(self) -> None:
        first, second = axis_shares(Axis(12, tile=8, overlap=4), 1, "linear")
        np.testing.assert_allclose(first.weights, [1, 1, 1, 1, 0.875, 0.625, 0.375, 0.125])
        np.testing.assert_allclose(second.weights, first.weights[::-1])

    def test_cosine(self) -> None:
        first, second = axis_shares(Axis(12, tile=8, overlap=4), 1, "cosine")
        middle = (1 + np.cos(np.pi * np.array([0.125, 0.375, 0.625, 0.875]))) / 2
        np.testing.assert_allclose(first.weights, [1, 1, 1, 1, *middle], rtol=1e-6)
        np.testing.assert_allclose(second.weights, first.weights[::-1])

    @pytest.mark.parametrize("overlap", [0, 4])
    def test_gaussian(self, overlap: int) -> None:
        axis = Axis(20, tile=8, overlap=overlap)
        # A deviation of one pixel, as the window has eight.
        bell = np.exp(-((np.arange(8) - 3.5) ** 2) / 2)
        total = np.zeros(20)
        for start in axis.starts():
            total[start : start + 8] += bell
        for start, share in zip(axis.starts(), axis_shares(axis, 1, "gaussian"), strict=True):
            expected = bell / total[start : start + 8]
            np.testing.assert_allclose(share.weights, expected, rtol=1e-6)

    def test_the_ramp_spans_the_actual_overlap(self) -> None:
        # 2 pixels were asked for, but 15 of 16 are shared.
        first, second = axis_shares(Axis(17, tile=16, overlap=2), 1, "linear")
        np.testing.assert_allclose(first.weights[1:], (14.5 - np.arange(15)) / 15, rtol=1e-6)
        assert first.weights[0] == second.weights[-1] == 1

    def test_the_ramp_spans_the_overlap_of_the_map(self) -> None:
        first, _ = axis_shares(Axis(12, tile=8, overlap=4), 2, "linear")
        np.testing.assert_allclose(first.weights[8:], (7.5 - np.arange(8)) / 8)

    def test_none_cuts_in_the_middle_of_the_overlap(self) -> None:
        shares = axis_shares(Axis(20, tile=8, overlap=2), 1, "none")
        assert [share.scene for share in shares] == [slice(0, 7), slice(7, 13), slice(13, 20)]
        assert [share.window for share in shares] == [slice(0, 7), slice(1, 7), slice(1, 8)]

    @each_profile
    def test_full_weight_without_neighbours(self, profile: Profile) -> None:
        (share,) = axis_shares(Axis(5, tile=8, overlap=4), 1, profile)
        np.testing.assert_array_equal(share.weights, np.ones(5))


class TestWindowsThatDisagree:
    """What the windows say differs from one to the next."""

    def test_linear_is_the_weighted_mean(self) -> None:
        tiling = Tiling(1, 12, 8, 4)
        first, second = tiling.windows()
        mosaic = WholeMosaic(tiling, 1)
        mosaic.feed(first, np.zeros((1, 1, 8)))
        mosaic.feed(second, np.full((1, 1, 8), 8))
        np.testing.assert_allclose(
            mosaic.data()[0, 0], [0, 0, 0, 0, 1, 3, 5, 7, 8, 8, 8, 8], rtol=1e-6
        )

    def test_weights_of_both_axes_multiply(self) -> None:
        tiling = Tiling(12, 12, 8, 4)
        mosaic = WholeMosaic(tiling, 1)
        for window, value in zip(tiling.windows(), [0, 0, 0, 64], strict=True):
            mosaic.feed(window, np.full((1, 8, 8), value))
        np.testing.assert_allclose(
            mosaic.data()[0, 4:8, 4:8], np.outer([1, 3, 5, 7], [1, 3, 5, 7]), rtol=1e-6
        )

    def test_none_takes_each_pixel_from_one_window(self) -> None:
        tiling = Tiling(10, 10, 6, 2)
        mosaic = WholeMosaic(tiling, 1, profile="none")
        for number, window in enumerate(tiling.windows()):
            mosaic.feed(window, np.full((1, 6, 6), number))
        expected = np.kron([[0, 1], [2, 3]], np.ones((5, 5)))
        np.testing.assert_array_equal(mosaic.data()[0], expected)

    @pytest.mark.parametrize("overlap", [2, 3, 8])
    def test_none_leaves_out_half_the_overlap(self, overlap: int) -> None:
        tiling = Tiling(41, 60, 16, overlap)
        scene = noise(1, 41, 60)
        mosaic = WholeMosaic(tiling, 1, profile="none")
        for window in tiling.windows():
            scores = scene[:, *window.slices].copy()
            spoil_inner_edges(scores, window, tiling, overlap // 2)
            mosaic.feed(window, scores)
        np.testing.assert_array_equal(mosaic.data(), scene)

    @pytest.mark.parametrize("profile", ["linear", "cosine"])
    def test_no_step_at_a_window_edge(self, profile: Profile) -> None:
        tiling = Tiling(1, 200, 64, 32)
        mosaic = WholeMosaic(tiling, 1, profile=profile)
        for number, window in enumerate(tiling.windows()):
            mosaic.feed(window, np.full((1, 1, 64), number % 2))
        assert np.abs(np.diff(mosaic.data())).max() < 0.06

    @each_profile
    def test_the_order_does_not_matter(self, profile: Profile) -> None:
        tiling = Tiling(50, 40, 16, 7)
        maps = {window: noise(2, 16, 16, seed) for seed, window in enumerate(tiling.windows())}
        results = []
        for windows in (list(maps), list(maps)[::-1]):
            mosaic = WholeMosaic(tiling, 2, profile=profile)
            for window in windows:
                mosaic.feed(window, maps[window])
            results.append(mosaic.data())
        np.testing.assert_allclose(results[0], results[1], rtol=0, atol=1e-6)

    @each_profile
    def test_nan_stays_in_its_window(self, profile: Profile) -> None:
        tiling = Tiling(20, 20, 12, 4)
        bad = tiling.windows()[0]
        mosaic = WholeMosaic(tiling, 1, profile=profile)
        for window in tiling.windows():
            mosaic.feed(window, np.full((1, 12, 12), np.nan if window == bad else 1))
        outside = np.ones((20, 20), np.bool_)
        outside[bad.slices] = False
        np.testing.assert_allclose(mosaic.data()[0][outside], 1, rtol=1e-6)

    def test_the_map_fed_is_left_as_it_is(self) -> None:
        scores = noise(1, 8, 8)
        scores.flags.writeable = False
        tiling = Tiling(8, 12, 8, 4)
        mosaic = WholeMosaic(tiling, 1)
        mosaic.feed(tiling.windows()[0], scores)
        np.testing.assert_array_equal(scores, noise(1, 8, 8))


class TestErrors:
    tiling = Tiling(10, 10, 6, 2)
    scores = np.zeros((2, 6, 6), np.float32)

    @pytest.mark.parametrize("shape", [(1, 6, 6), (2, 6, 5), (2, 12, 12), (6, 6), (1, 2, 6, 6)])
    def test_wrong_shape(self, shape: tuple[int, ...]) -> None:
        came, expected = re.escape(f"{shape}"), re.escape("(2, 6, 6)")
        with pytest.raises(TilingError, match=f"row=4, column=0.*{came}.*{expected}"):
            WholeMosaic(self.tiling, 2).feed(Window(4, 0, 6, 6), np.zeros(shape))

    @pytest.mark.parametrize(
        "window", [Window(1, 0, 6, 6), Window(0, 2, 6, 6), Window(0, 0, 6, 5), Window(4, 10, 6, 6)]
    )
    def test_unknown_window(self, window: Window) -> None:
        with pytest.raises(TilingError, match=re.escape(f"{window} is no window of")):
            WholeMosaic(self.tiling, 2).feed(window, self.scores)

    def test_second_feed(self) -> None:
        mosaic = WholeMosaic(self.tiling, 2)
        window = Window(0, 4, 6, 6)
        mosaic.feed(window, self.scores)
        with pytest.raises(TilingError, match=re.escape(f"{window} was fed before")):
            mosaic.feed(window, self.scores)

    def test_missing_windows(self) -> None:
        mosaic = WholeMosaic(self.tiling, 2)
        first, second, third, _ = self.tiling.windows()
        mosaic.feed(first, self.scores)
        mosaic.feed(third, self.scores)
        message = re.escape(f"2 of 4 windows were not fed, the first is {second}")
        with pytest.raises(TilingError, match=message):
            mosaic.data()

    def test_a_refused_map_may_be_fed_again(self) -> None:
        mosaic = WholeMosaic(Tiling(4, 4, 4, 0), 1)
        with pytest.raises(TilingError):
            mosaic.feed(Window(0, 0, 4, 4), np.zeros((1, 3, 4)))
        mosaic.feed(Window(0, 0, 4, 4), np.ones((1, 4, 4)))
        np.testing.assert_array_equal(mosaic.data(), np.ones((1, 4, 4)))

    @pytest.mark.parametrize("name", ["channels", "upscale"])
    def test_values_out_of_range(self, name: str) -> None:
        sizes: dict[str, Any] = {"channels": 1, name: 0}
        with pytest.raises(TilingError, match=f"{name} is 0, but must be at least 1"):
            WholeMosaic(self.tiling, **sizes)

    def test_unknown_profile(self) -> None:
        profile: Any = "gauss"
        with pytest.raises(
            TilingError, match="'gauss', but must be one of none, linear, cosine, gaussian"
        ):
            WholeMosaic(self.tiling, 1, profile=profile)


def noise(channels: int, height: int, width: int, seed: int = 0) -> Map:
    generator = np.random.default_rng(seed)
    return generator.uniform(-1, 1, (channels, height, width)).astype(np.float32)


def spoil_inner_edges(scores: Map, window: Window, tiling: Tiling, depth: int) -> None:
    """Overwrites the pixels near edges that lie within the scene, as a network's padding does."""
    if window.row > 0:
        scores[:, :depth] = np.nan
    if window.row + window.height < tiling.height:
        scores[:, -depth:] = np.nan
    if window.column > 0:
        scores[:, :, :depth] = np.nan
    if window.column + window.width < tiling.width:
        scores[:, :, -depth:] = np.nan
