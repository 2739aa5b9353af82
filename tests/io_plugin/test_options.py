"""What a request asks for, served with a network that is easily worked out, and told again."""

import base64
import io
from typing import Any

import numpy as np
import pytest
from rasterio import Affine
from rasterio.io import MemoryFile

from vllm_raster_io import plans
from vllm_raster_io.contract import RasterContract
from vllm_raster_io.errors import LimitError, RequestError
from vllm_raster_io.jobs import Job
from vllm_raster_io.limits import Limits

from ..factories import make_raster
from .networks import PixelNetwork
from .requesting import mapped, noise, pixels_of, request
from .scenes import Array, make_contract

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

SCENE = noise(150, 130)
CONTENT = make_raster(values=SCENE)
CLASSES, VALUES = make_contract(channels=5), make_contract("values", channels=2)


class TestTiles:
    @pytest.mark.parametrize("blending", ["none", "linear", "cosine", "gaussian"])
    @pytest.mark.parametrize(
        ("fields", "tile", "overlap"),
        [
            ({}, 64, 16),
            ({"tile_size": 32}, 32, 8),
            ({"overlap": 0}, 64, 0),
            ({"tile_size": 16, "overlap": 15}, 16, 15),
            ({"tile_size": 64, "overlap": 40}, 64, 40),
        ],
    )
    def test_any_gives_the_same_map(
        self, blending: str, fields: dict[str, int], tile: int, overlap: int
    ) -> None:
        part = [0, 0, 40, 30] if overlap == 15 else [0, 0, 130, 150]
        answer = mapped(CONTENT, VALUES, blending=blending, window=part, **fields)
        expected = PixelNetwork(VALUES).scores(SCENE[:, : part[3], : part[2]])
        np.testing.assert_array_equal(pixels_of(answer), expected)
        told = answer.effective
        assert (told.tile_size, told.overlap, told.blending) == (tile, overlap, blending)

    @pytest.mark.parametrize(
        ("fields", "told"),
        [
            ({"tile_size": 65}, "`tile_size` must be at most 64, the checkpoint's, got 65"),
            ({"overlap": 64}, "`overlap` must be less than the tile, which is 64 pixels, got 64"),
            ({"tile_size": 8, "overlap": 8}, "which is 8 pixels, got 8"),
            ({"overlap": -1}, "`overlap`: input should be greater than or equal to 0, got int -1"),
            ({"tile_size": 0}, "`tile_size`: input should be greater than or equal to 1"),
            ({"blending": "gauss"}, "input should be 'none', 'linear', 'cosine' or 'gaussian'"),
        ],
    )
    def test_refused(self, fields: dict[str, Any], told: str) -> None:
        assert told in refusal(CONTENT, CLASSES, **fields)

    def test_of_whole_blocks(self) -> None:
        contract = make_contract(downscale=4)
        assert "64, the checkpoint's and a multiple of 4, got 30" in refusal(
            CONTENT, contract, tile_size=30
        )
        assert "32 pixels, by a block of 4, got 29" in refusal(
            CONTENT, contract, tile_size=32, overlap=29
        )
        answer = mapped(CONTENT, contract, tile_size=32)
        np.testing.assert_array_equal(pixels_of(answer)[0], PixelNetwork(contract).ids(SCENE))

    def test_small_ones_count_against_the_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(plans, "LIMITS", Limits(windows=100))
        with pytest.raises(LimitError, match=r"\d+ windows, and at most 100"):
            mapped(CONTENT, CLASSES, tile_size=4)
        Job(request(CONTENT), CLASSES).close()
        monkeypatch.setattr(plans, "LIMITS", Limits(windows=50))
        with pytest.raises(LimitError, match="72 windows, and at most 50"):
            mapped(CONTENT, CLASSES, augment="flips_rotations")


class TestAugmentation:
    @pytest.mark.parametrize(("augment", "ways"), [("flips", 4), ("flips_rotations", 8)])
    @pytest.mark.parametrize("scale", [{}, {"upscale": 2}, {"downscale": 4}])
    def test_of_a_network_without_directions_the_map_is_the_same(
        self, augment: str, ways: int, scale: dict[str, int]
    ) -> None:
        contract = make_contract("values", channels=2, **scale)
        size = (150, 99)
        plain = mapped(make_raster(values=SCENE[:, :150, :99]), contract, network=Isotropic)
        answer = mapped(
            make_raster(values=SCENE[:, : size[0], : size[1]]),
            contract,
            network=Isotropic,
            augment=augment,
        )
        np.testing.assert_array_equal(pixels_of(answer), pixels_of(plain))
        assert answer.effective.augment == augment
        assert answer.effective.windows == plain.effective.windows * ways

    def test_scores_are_averaged(self) -> None:
        """A network that answers with the number of the row and of the column it sees."""
        contract = make_contract("values", channels=2, size=64)
        content = make_raster(values=noise(20, 30))
        answer = mapped(content, contract, network=Places, augment="flips")
        found = pixels_of(answer)
        assert (found[0] == 9.5).all()
        assert (found[1] == 14.5).all()
        turned = pixels_of(mapped(content, contract, network=Places, augment="flips_rotations"))
        # Of a window on its side, rows are columns.
        assert (turned == (9.5 + 14.5) / 2).all()

    def test_invalid_pixels_are_where_they_are(self) -> None:
        values = SCENE.copy()
        values[1, 3:9, 100:] = 9_999
        content = make_raster(values=values, nodata=9_999)
        plain = mapped(content, CLASSES)
        answer = mapped(content, CLASSES, augment="flips_rotations")
        np.testing.assert_array_equal(pixels_of(answer), pixels_of(plain))


class TestPart:
    @pytest.mark.parametrize("scale", [{}, {"upscale": 2}, {"downscale": 4}])
    def test_is_mapped_as_if_alone(self, scale: dict[str, int]) -> None:
        contract = make_contract(channels=5, **scale)
        answer = mapped(CONTENT, contract, window=[20, 40, 77, 90])
        part = SCENE[:, 40:130, 20:97]
        np.testing.assert_array_equal(pixels_of(answer)[0], PixelNetwork(contract).ids(part))
        side = 10 / scale.get("upscale", 1) * scale.get("downscale", 1)
        assert answer.transform == [side, 0, 600_200, 0, -side, 5_299_600]
        assert answer.effective.window == [20, 40, 77, 90]

    def test_a_box(self) -> None:
        box = [600_200, 5_298_700, 600_970, 5_299_600]
        answer = mapped(CONTENT, CLASSES, bbox=box)
        assert answer.effective.window == [20, 40, 77, 90]
        same = mapped(CONTENT, CLASSES, window=[20, 40, 77, 90])
        assert answer == same

    def test_the_place_that_the_network_is_told(self) -> None:
        contract = make_contract(coordinates=("location",))
        with Job(request(CONTENT, window=[64, 32, 64, 64]), contract) as job:
            (part,) = job.items()
        cut = make_raster(
            values=SCENE[:, 32:96, 64:128],
            transform=Affine(10, 0, 600_640, 0, -10, 5_299_680),
        )
        with Job(request(cut), contract) as job:
            (alone,) = job.items()
        np.testing.assert_allclose(part["location_coords"], alone["location_coords"], rtol=1e-12)

    @pytest.mark.parametrize(
        ("fields", "told"),
        [
            ({"window": [0, 0, 131, 1]}, "`window` must lie within the scene"),
            ({"window": [0, 0, 0, 1]}, "columns and rows above 0, got list [0, 0, 0, 1]"),
            ({"window": [0, 0, 1]}, "`window`: list should have at least 4 items"),
            ({"window": [0.5, 0, 1, 1]}, "`window.0`: input should be a valid integer"),
            ({"bbox": [1, 0, 0, 1]}, "west < east and south < north"),
            ({"bbox": [0, 0, 1, float("inf")]}, "`bbox.3`: input should be a finite number"),
            ({"bbox": [0, 0, 1, 1], "window": [0, 0, 1, 1]}, "`bbox` and `window` both say"),
            ({"bbox_crs": "EPSG:4326"}, "`bbox_crs` says nothing without `bbox`"),
            ({"bands": ["a"], "indices": [0]}, "`bands` and `indices` both say"),
        ],
    )
    def test_refused(self, fields: dict[str, Any], told: str) -> None:
        assert told in refusal(CONTENT, CLASSES, **fields)


class TestResolution:
    def test_coarser_pixels_are_means(self) -> None:
        answer = mapped(CONTENT, VALUES, network=Means, resolution=20)
        means = SCENE.reshape(4, 75, 2, 65, 2).mean(axis=(2, 4))
        expected = Means(VALUES).scores(means)
        # The middle of four of the network's pixels: a quarter and three quarters along each axis.
        weights = np.array([[0.75, 0.25], [0.25, 0.75]])
        inner = np.einsum("ya,xb,cab->cyx", weights, weights, expected[:, 10:12, 20:22])
        np.testing.assert_allclose(pixels_of(answer)[:, 21:23, 41:43], inner, rtol=1e-5)
        assert (answer.height, answer.width) == (150, 130)
        assert answer.transform == [10, 0, 600_000, 0, -10, 5_300_000]
        assert answer.effective.resolution == [20, 20]
        assert answer.effective.resampling == "mean, back bilinear"

    @pytest.mark.parametrize("resolution", [20, 35, 10, 4, 2.5, [20, 5], 25])
    @pytest.mark.parametrize("scale", [{}, {"upscale": 2}, {"downscale": 4}])
    def test_a_constant_stays_one(self, resolution: Any, scale: dict[str, int]) -> None:
        contract = make_contract("values", channels=1, **scale)
        content = make_raster(values=np.full((4, 61, 47), 1_234), dtype="uint16")
        answer = mapped(content, contract, network=Means, resolution=resolution)
        found = pixels_of(answer)
        assert np.unique(found).tolist() == [np.float32(1_234)]
        assert found.shape[1:] == tuple(contract.output.extent(side) for side in (61, 47))

    @pytest.mark.parametrize("resolution", [20, 4])
    def test_windows_and_the_whole_give_the_same(self, resolution: float) -> None:
        whole = mapped(CONTENT, make_contract("values", size=512), resolution=resolution)
        cut = mapped(CONTENT, make_contract("values", size=32), resolution=resolution)
        np.testing.assert_allclose(pixels_of(cut), pixels_of(whole), rtol=1e-6)

    @pytest.mark.parametrize("resolution", [20, 35, 4])
    def test_nodata_stays_where_it_is(self, resolution: float) -> None:
        values = SCENE.copy()
        values[2, 30:70, 50:90] = values[0, 5, 5] = 9_999
        content = make_raster(values=values, nodata=9_999)
        plain = pixels_of(mapped(content, CLASSES))
        found = pixels_of(mapped(content, CLASSES, resolution=resolution))
        np.testing.assert_array_equal(found == 255, plain == 255)
        # And what it holds reaches no valid pixel.
        other = values.copy()
        other[:, 30:70, 50:90] = 9_999
        same = mapped(make_raster(values=other, nodata=9_999), CLASSES, resolution=resolution)
        np.testing.assert_array_equal(found, pixels_of(same))

    def test_of_a_part(self) -> None:
        fields: Any = {"window": [20, 40, 80, 90]}
        content = make_raster(
            values=SCENE[:, 40:130, 20:100],
            transform=Affine(10, 0, 600_200, 0, -10, 5_299_600),
        )
        part = mapped(CONTENT, VALUES, resolution=20, **fields)
        alone = mapped(content, VALUES, resolution=20)
        np.testing.assert_array_equal(pixels_of(part), pixels_of(alone))
        assert part.transform == alone.transform

    def test_counts_against_the_limits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(plans, "LIMITS", Limits(score_bytes=2 * 4 * (64 * 260 + 150 * 130)))
        Job(request(CONTENT, resolution=5), VALUES).close()
        with pytest.raises(LimitError, match="score bytes"):
            Job(request(CONTENT, resolution=4.9), VALUES)


class TestNumbers:
    def test_reflectances_give_the_map_of_counts(self) -> None:
        counts = mapped(CONTENT, with_scale(0.0001, 0.0))
        content = make_raster(values=SCENE / np.float32(10_000), dtype="float32")
        answer = mapped(content, with_scale(0.0001, 0.0), scale=1, network=Rounded)
        np.testing.assert_array_equal(pixels_of(answer), pixels_of(counts))
        assert answer.effective.scale == [1] * 4
        assert answer.effective.offset == [0] * 4
        assert counts.effective.scale is None

    def test_nodata_of_the_request_in_place_of_the_files(self) -> None:
        values = SCENE.copy()
        values[0, 0, 0], values[1, 1, 1] = 7_777, 9_999
        content = make_raster(values=values, nodata=9_999)
        invalid = {
            None: [(1, 1)],
            7_777: [(0, 0)],
            "none": [],
            "nan": [],
            7_777.5: [],
            -1: [],
            1e300: [],
        }
        for nodata, places in invalid.items():
            answer = mapped(content, CLASSES, nodata=nodata)
            found = np.argwhere(pixels_of(answer)[0] == 255).tolist()
            assert found == [list(one) for one in places]
            assert answer.effective.nodata == nodata
            assert answer.invalid_pixels == len(places)

    @pytest.mark.parametrize("dtype", ["int64", "uint64", "float64", "int16"])
    def test_nodata_of_any_type(self, dtype: str) -> None:
        values = noise(8, 9).astype(dtype)
        value = 2**53 + 1 if "64" in dtype and dtype != "float64" else 7_777
        values[3, 2, 1] = value
        values[2, 2, 2] = 11
        content = make_raster(values=values, dtype=dtype, nodata=11)
        answer = mapped(content, CLASSES, nodata=value)
        assert np.argwhere(pixels_of(answer)[0] == 255).tolist() == [[2, 1]]

    def test_masks_hold_beside_it(self) -> None:
        mask = np.ones((150, 130), bool)
        mask[4, 5] = False
        content = make_raster(values=SCENE, mask=mask)
        answer = mapped(content, CLASSES, nodata="none")
        assert np.argwhere(pixels_of(answer)[0] == 255).tolist() == [[4, 5]]


class TestProducts:
    def test_probabilities_of_blended_scores(self) -> None:
        answer = mapped(CONTENT, CLASSES, product="probabilities")
        scores = PixelNetwork(CLASSES).scores(SCENE)
        expected = np.exp(scores) / np.exp(scores).sum(axis=0)
        np.testing.assert_allclose(pixels_of(answer), expected, rtol=1e-6)
        assert (answer.kind, answer.product, answer.nodata) == ("classes", "probabilities", "nan")
        assert answer.classes is None

    def test_probabilities_in_bytes(self) -> None:
        answer = mapped(CONTENT, CLASSES, product="probabilities", dtype="uint8")
        scores = PixelNetwork(CLASSES).scores(SCENE)
        expected = np.exp(scores) / np.exp(scores).sum(axis=0)
        assert (answer.dtype, answer.nodata, answer.scale) == ("uint8", 255, 1 / 254)
        np.testing.assert_array_equal(pixels_of(answer), np.rint(expected * 254))

    def test_logits(self) -> None:
        answer = mapped(CONTENT, CLASSES, product="logits")
        np.testing.assert_array_equal(pixels_of(answer), PixelNetwork(CLASSES).scores(SCENE))

    @pytest.mark.parametrize("dtype", [None, "uint8"])
    @pytest.mark.parametrize("kind", ["geotiff", "cog"])
    def test_confidence_beside_classes(self, dtype: str | None, kind: str) -> None:
        values = SCENE.copy()
        values[0, 7, 9] = 9_999
        content = make_raster(values=values, nodata=9_999)
        fields = {} if dtype is None else {"dtype": dtype}
        answer = mapped(content, CLASSES, confidence=True, format=kind, **fields)
        plain = mapped(content, CLASSES, format=kind)
        assert answer.data == plain.data
        assert plain.confidence is None
        told = answer.confidence
        assert told is not None
        with MemoryFile(base64.b64decode(told.data)) as file, file.open() as dataset:
            found = dataset.read(1, masked=True) * (told.scale or 1)
            assert dataset.transform == Affine(*answer.transform)
            assert dataset.dtypes == (told.dtype,)
        assert np.argwhere(found.mask).tolist() == [[7, 9]]
        expected = np.e / (np.e + 4)  # one class scores 1, the others 0
        np.testing.assert_allclose(found.compressed(), expected, atol=0.5 / 254 if dtype else 1e-6)

    @pytest.mark.parametrize(
        ("contract", "fields", "told"),
        [
            (CLASSES, {"product": "values"}, "there is 'classes', 'probabilities', 'logits'"),
            (VALUES, {"product": "classes"}, "this checkpoint maps values, so there is 'values'"),
            (VALUES, {"dtype": "uint8"}, "values are float32, as no integer holds them"),
            (CLASSES, {"dtype": "float32"}, "class ids have the smallest integer type"),
            (CLASSES, {"product": "logits", "dtype": "uint8"}, "logits are float32"),
            (VALUES, {"confidence": True}, "`confidence` goes beside class ids, but the map holds"),
            (CLASSES, {"confidence": True, "format": "png"}, "`confidence` is refused for"),
            (CLASSES, {"compression": "lzw", "format": "npy"}, "`compression` is for 'geotiff'"),
            (CLASSES, {"quality": 50}, "`quality` is for 'jpeg' and 'webp'"),
            (CLASSES, {"quality": 0, "format": "jpeg"}, "greater than or equal to 1"),
            (CLASSES, {"format": "tiff"}, "input should be 'geotiff', 'cog', 'png', 'webp'"),
        ],
    )
    def test_refused(self, contract: RasterContract, fields: dict[str, Any], told: str) -> None:
        assert told in refusal(CONTENT, contract, **fields)


class TestFormats:
    @pytest.mark.parametrize("compression", ["none", "deflate", "lzw", "zstd"])
    @pytest.mark.parametrize("kind", ["geotiff", "cog"])
    def test_geotiffs(self, kind: str, compression: str) -> None:
        answer = mapped(CONTENT, VALUES, format=kind, compression=compression)
        np.testing.assert_array_equal(pixels_of(answer), PixelNetwork(VALUES).scores(SCENE))
        assert answer.format == kind
        assert answer.media_type.startswith("image/tiff; application=geotiff")
        assert answer.effective.compression == compression

    @pytest.mark.parametrize("contract", [CLASSES, VALUES])
    def test_numpy(self, contract: RasterContract) -> None:
        answer = mapped(CONTENT, contract, format="npy")
        found = np.load(io.BytesIO(base64.b64decode(answer.data)), allow_pickle=False)
        np.testing.assert_array_equal(found, pixels_of(mapped(CONTENT, contract)))
        assert answer.dtype == str(found.dtype)
        assert (answer.media_type, answer.picture) == ("application/x-npy", None)

    @pytest.mark.parametrize(
        ("kind", "begins", "quality"),
        [("png", b"\x89PNG", None), ("webp", b"RIFF", None), ("jpeg", b"\xff\xd8\xff", 90)],
    )
    def test_pictures(self, kind: str, begins: bytes, quality: int | None) -> None:
        answer = mapped(CONTENT, VALUES, format=kind)
        assert base64.b64decode(answer.data).startswith(begins)
        assert answer.media_type == f"image/{kind}"
        assert answer.picture is not None
        assert answer.effective.quality == quality
        assert answer.effective.compression is None
        assert answer.transform == [10, 0, 600_000, 0, -10, 5_300_000]

    def test_a_png_of_classes_is_no_mere_picture(self) -> None:
        assert mapped(CONTENT, CLASSES, format="png").picture is None

    def test_what_a_format_cannot_hold(self) -> None:
        content = make_raster(values=np.ones((4, 1, 9_000)), dtype="uint16")
        contract = make_contract(upscale=2)
        with pytest.raises(LimitError, match="webp holds at most 16383 pixels a side"):
            Job(request(content, format="webp"), contract)


class Means(PixelNetwork):
    """The mean of a pixel's bands, or of a block's."""

    def scores(self, pixels: Array) -> Array:
        up, down = self._output.upscale, self._output.downscale
        mean = pixels.reshape(-1, *pixels.shape[-2:]).mean(axis=0, dtype=np.float64)
        rows, columns = (-(-side // down) * down for side in mean.shape)
        mean = np.pad(mean, [(0, rows - mean.shape[0]), (0, columns - mean.shape[1])], mode="edge")
        mean = mean.reshape(rows // down, down, columns // down, down).mean(axis=(1, 3))
        mean = mean.repeat(up, axis=0).repeat(up, axis=1)
        return np.stack([mean + i for i in range(self._output.channels)]).astype(np.float32)


class Isotropic(PixelNetwork):
    """The sum of a pixel's bands, or the greatest of a block: alike in all directions."""

    def scores(self, pixels: Array) -> Array:
        up, down = self._output.upscale, self._output.downscale
        total = pixels.astype(np.int64).sum(axis=0)
        total = np.pad(total, [(0, -side % down) for side in total.shape], mode="reflect")
        rows, columns = (side // down for side in total.shape)
        total = total.reshape(rows, down, columns, down).max(axis=(1, 3))
        total = total.repeat(up, axis=0).repeat(up, axis=1)
        return np.stack([total / 7 + i for i in range(self._output.channels)]).astype(np.float32)


class Places(PixelNetwork):
    """The number of each pixel's row and column in the window."""

    def scores(self, pixels: Array) -> Array:
        return np.indices(pixels.shape[-2:]).astype(np.float32)


class Rounded(PixelNetwork):
    """Sees whole counts."""

    def scores(self, pixels: Array) -> Array:
        return super().scores(np.rint(pixels))


def with_scale(scale: float, offset: float) -> RasterContract:
    part = CLASSES.input.model_copy(update={"scale": scale, "offset": offset})
    return CLASSES.model_copy(update={"input": part})


def refusal(content: bytes, contract: RasterContract, **fields: Any) -> str:
    with pytest.raises(RequestError) as caught:
        Job(request(content, **fields), contract)
    return str(caught.value)
