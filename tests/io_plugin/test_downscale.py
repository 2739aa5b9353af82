"""Maps of which a pixel stands for a block of the scene's."""

import base64
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rasterio import Affine
from rasterio.control import GroundControlPoint
from rasterio.io import DatasetReader, MemoryFile
from rasterio.transform import RPCTransformer

from vllm_raster_io import plans
from vllm_raster_io.answers import RasterAnswer
from vllm_raster_io.client import MapResult
from vllm_raster_io.contract import OutputContract, RasterContract
from vllm_raster_io.errors import LimitError, TilingError
from vllm_raster_io.jobs import Job
from vllm_raster_io.limits import Limits
from vllm_raster_io.maps import opened
from vllm_raster_io.previews import true_colour, value_preview
from vllm_raster_io.requests import RasterRequest
from vllm_raster_io.tiling import Tiling, Window

from ..factories import make_raster
from .mosaics import WholeMosaic
from .networks import PixelNetwork
from .scenes import Array, make_contract, open_scene
from .test_coordinates import polynomials

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

SIZES = [(1, 1), (1, 300), (5, 15), (16, 17), (63, 64), (64, 65), (79, 81), (150, 201)]


class TestTiling:
    def test_windows_start_with_a_block(self) -> None:
        # 5 blocks of 8 rows, the last of 3: the last window is as much shorter.
        assert Tiling(35, 16, 16, 3, step=8).windows() == [
            Window(0, 0, 16, 16),
            Window(8, 0, 16, 16),
            Window(16, 0, 16, 16),
            Window(24, 0, 11, 16),
        ]

    @pytest.mark.parametrize(
        ("overlap", "step", "starts"),
        [(0, 4, [0, 12, 24]), (1, 4, [0, 12, 24]), (5, 4, [0, 8, 16, 24]), (15, 4, [0] * 0)],
    )
    def test_the_overlap_is_in_whole_blocks(
        self, overlap: int, step: int, starts: list[int]
    ) -> None:
        tiling = Tiling(40, 16, 16, overlap, step)
        found = [window.row for window in tiling.windows()]
        if starts:
            assert found == starts
        else:
            assert found == list(range(0, 25, 4))  # a block of its own is left to each window

    @settings(derandomize=True, deadline=None)
    @given(
        st.integers(1, 150), st.integers(1, 150), st.integers(1, 9), st.integers(1, 6), st.data()
    )
    def test_any_scene(self, height: int, width: int, step: int, blocks: int, data: Any) -> None:
        overlap = data.draw(st.integers(0, step * blocks - 1))
        tiling = Tiling(height, width, step * blocks, overlap, step)
        windows = tiling.windows()
        assert len(tiling) == len(windows) == len(set(windows))
        cover = np.zeros((height, width), int)
        for window in windows:
            assert window.row % step == window.column % step == 0
            for start, length, size in (
                (window.row, window.height, height),
                (window.column, window.width, width),
            ):
                assert 1 <= length <= step * blocks
                # Whole blocks, but where the scene ends.
                assert length % step == 0 or start + length == size
                assert -(-length // step) == min(blocks, -(-size // step))
            cover[window.slices] += 1
        assert cover.min() >= 1

    @pytest.mark.parametrize("step", [3, 5, 32])
    def test_a_tile_is_whole_blocks(self, step: int) -> None:
        with pytest.raises(TilingError, match=f"tile is 16, but must be a multiple of step={step}"):
            Tiling(40, 40, 16, 0, step)

    @pytest.mark.parametrize("step", [0, -1])
    def test_the_step_is_at_least_a_pixel(self, step: int) -> None:
        with pytest.raises(TilingError, match=f"step is {step}, but must be at least 1"):
            Tiling(40, 40, 16, 0, step)

    def test_the_map_has_a_pixel_a_block(self) -> None:
        tiling = Tiling(35, 16, 16, 0, step=8)
        mosaic = WholeMosaic(tiling, 1, profile="none")
        for number, window in enumerate(tiling.windows()):
            mosaic.feed(window, np.full((1, 2, 2), number))
        np.testing.assert_array_equal(mosaic.data()[0, :, 0], [0, 1, 1, 2, 2])
        with pytest.raises(TilingError, match="is no window of"):
            WholeMosaic(tiling, 1).feed(Window(24, 0, 16, 16), np.zeros((1, 2, 2)))


class TestSameAsUntiled:
    @pytest.mark.parametrize("size", SIZES)
    @pytest.mark.parametrize("downscale", [2, 4, 16])
    @pytest.mark.parametrize("overlap", [0, 16, 21, 63])
    def test_classes(self, size: tuple[int, int], downscale: int, overlap: int) -> None:
        pixels = noise(*size)
        contract = make_contract(channels=5, overlap=overlap, downscale=downscale)
        answer = mapped(make_raster(values=pixels), contract)
        assert answer.height == -(-size[0] // downscale)
        assert answer.width == -(-size[1] // downscale)
        expected = PixelNetwork(contract).ids(pixels)
        np.testing.assert_array_equal(pixels_of(answer)[0], expected)
        assert (answer.effective.upscale, answer.effective.downscale) == (1, downscale)
        whole = -(-overlap // downscale) * downscale
        assert answer.effective.overlap == min(whole, 64 - downscale)

    @pytest.mark.parametrize("size", SIZES)
    @pytest.mark.parametrize("downscale", [4, 8])
    def test_values(self, size: tuple[int, int], downscale: int) -> None:
        pixels = noise(*size)
        contract = make_contract("values", channels=2, downscale=downscale)
        found = pixels_of(mapped(make_raster(values=pixels), contract))
        np.testing.assert_allclose(found, PixelNetwork(contract).scores(pixels), rtol=1e-6)

    def test_of_several_dates(self) -> None:
        pixels = np.random.default_rng(0).integers(1, 5_000, (6, 100, 90))
        contract = make_contract(bands=("A", "B"), frames=3, channels=5, downscale=8)
        answer = mapped(make_raster(values=pixels), contract)
        seen = pixels.reshape(3, 2, 100, 90).swapaxes(0, 1)
        np.testing.assert_array_equal(pixels_of(answer)[0], PixelNetwork(contract).ids(seen))

    def test_a_constant_block_is_seen_by_its_own_pixel_alone(self) -> None:
        """Wherever a window begins, what is in a block comes out at the block."""
        contract = make_contract("values", bands=("A",), channels=1, downscale=4, overlap=20)
        for row in range(0, 120, 4):
            pixels = np.zeros((1, 120, 70), np.uint16)
            pixels[0, row : row + 4, 60:64] = 7
            found = pixels_of(mapped(make_raster(values=pixels), contract))[0]
            assert np.argwhere(found).tolist() == [[row // 4, 15]]


class TestInvalidPixels:
    @pytest.mark.parametrize("kind", ["classes", "values"])
    def test_a_block_is_invalid_if_all_of_its_pixels_are(self, kind: str) -> None:
        pixels = noise(100, 90)
        invalid = np.zeros((100, 90), bool)
        invalid[0:8, 0:8] = True  # four whole blocks
        invalid[16:20, 16:20] = True
        invalid[19, 19] = False  # all but a pixel
        invalid[96:, 88:] = True  # what is left of the last block
        pixels[1, invalid] = 9_999
        contract = make_contract(kind, channels=3, downscale=4)
        answer = mapped(make_raster(values=pixels, nodata=9_999), contract)
        with opened(base64.b64decode(answer.data)) as dataset:
            found = np.argwhere(dataset.read_masks(1) == 0)
        assert found.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [24, 22]]
        assert answer.invalid_pixels == 5

    def test_nothing_but(self) -> None:
        content = make_raster(values=np.full((4, 70, 70), 9), nodata=9)
        answer = mapped(content, make_contract(downscale=16))
        assert answer.invalid_pixels == 25
        assert (pixels_of(answer) == 255).all()


class TestPlace:
    @pytest.mark.parametrize("size", [(32, 48), (33, 50), (5, 7)])
    def test_corners(self, size: tuple[int, int]) -> None:
        place = Affine(0.3, 0.02, 7.1, -0.01, -0.7, 47.3)
        content = make_raster(height=size[0], width=size[1], crs="EPSG:4326", transform=place)
        answer = mapped(content, make_contract(downscale=4))
        with opened(base64.b64decode(answer.data)) as dataset:
            assert dataset.crs.to_epsg() == 4326
            for row in range(dataset.height + 1):
                for column in range(dataset.width + 1):
                    found = corner(dataset.transform, column, row)
                    expected = corner(place, 4 * column, 4 * row)
                    np.testing.assert_allclose(found, expected, rtol=1e-15)

    def test_exactly(self) -> None:
        answer = mapped(make_raster(), make_contract(downscale=16))
        with opened(base64.b64decode(answer.data)) as dataset:
            assert dataset.transform == Affine(160, 0, 600_000, 0, -160, 5_300_000)
            assert tuple(dataset.bounds) == (600_000, 5_299_680, 600_480, 5_300_000)

    @pytest.mark.parametrize("kind", ["Area", "Point"])
    def test_control_points(self, kind: str) -> None:
        points = [GroundControlPoint(r, c, 10 + c, 50 - r) for r in (0, 32) for c in (0, 48)]
        options: dict[str, Any] = {"crs": "EPSG:4326", "gcps": points}
        content = make_raster(**options, tags={"AREA_OR_POINT": kind})
        with open_scene(content) as scene:
            corners = places_of(scene.dataset)
        answer = mapped(content, make_contract(downscale=8))
        with opened(base64.b64decode(answer.data)) as dataset:
            found = places_of(dataset)
        assert found == [(row / 8, column / 8, x, y) for row, column, x, y in corners]

    def test_rational_polynomials(self) -> None:
        content = make_raster(crs=None, rpcs=polynomials())
        answer = mapped(content, make_contract(downscale=8))
        with open_scene(content) as scene, opened(base64.b64decode(answer.data)) as dataset:
            before, after = RPCTransformer(scene.dataset.rpcs), RPCTransformer(dataset.rpcs)
        for row, column in ((0, 0), (1, 2), (4, 6)):
            np.testing.assert_allclose(
                after.xy(row, column, offset="ul"),
                before.xy(8 * row, 8 * column, offset="ul"),
                rtol=1e-12,
            )

    def test_none_is_invented(self) -> None:
        answer = mapped(make_raster(crs=None), make_contract(downscale=4))
        with MemoryFile(base64.b64decode(answer.data)) as memory, memory.open() as dataset:
            assert dataset.transform == Affine.identity()
            assert dataset.crs is None


class TestAnswer:
    def test_scores_count_at_the_maps_resolution(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(plans, "LIMITS", Limits(score_bytes=2 * 3))
        mapped(make_raster(height=17, width=48), make_contract(channels=3, downscale=16))
        with pytest.raises(LimitError, match="9 score bytes, and at most 6"):
            mapped(make_raster(height=33, width=48), make_contract(channels=3, downscale=16))

    def test_classes_are_counted_in_pixels_of_the_map(self) -> None:
        answer = mapped(make_raster(height=33, width=48), make_contract(downscale=16))
        assert sum(one.pixels for one in answer.classes or ()) == 9

    @pytest.mark.parametrize("scale", [{"downscale": 4}, {"upscale": 2}])
    def test_a_preview_lays_it_over_the_scene(self, scale: dict[str, int]) -> None:
        contract = make_contract("values", channels=1, **scale)
        content = make_raster(height=22, width=30)
        answer = mapped(content, contract)
        result = MapResult(base64.b64decode(answer.data), answer)
        assert true_colour(content, result)[0].shape == (22, 30, 3)
        assert value_preview(content, [result]).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("scale", "pixels", "extent"),
    [({}, 7, 7), ({"upscale": 3}, 7, 21), ({"downscale": 4}, 7, 2), ({"downscale": 4}, 8, 2)],
)
def test_extent(scale: dict[str, int], pixels: int, extent: int) -> None:
    bands = [{"name": "a"}]
    output = OutputContract.model_validate({"kind": "values", "bands": bands, **scale})
    assert output.extent(pixels) == extent


def noise(height: int, width: int) -> Array:
    chance = np.random.default_rng([height, width])
    return chance.integers(0, 5_000, (4, height, width)).astype(np.uint16)


def mapped(content: bytes, contract: RasterContract) -> RasterAnswer:
    job = Job(RasterRequest(data=base64.b64encode(content).decode()), contract)
    network = PixelNetwork(contract)
    answer = job.answer([network(item) for item in job.items()], None)
    job.close()
    return answer


def pixels_of(answer: RasterAnswer) -> Array:
    with opened(base64.b64decode(answer.data)) as dataset:
        assert dataset.shape == (answer.height, answer.width)
        return dataset.read()


def corner(place: Affine, column: int, row: int) -> tuple[float, float]:
    a, b, c, d, e, f = place[:6]
    return a * column + b * row + c, d * column + e * row + f


def places_of(dataset: DatasetReader) -> list[tuple[float, float, float, float]]:
    return [(one.row, one.col, one.x, one.y) for one in dataset.gcps[0]]
