"""The pixels of a scene, whatever its type and layout."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from rasterio.enums import MaskFlags
from rasterio.io import MemoryFile

from vllm_raster_io.errors import RasterError
from vllm_raster_io.rasters import Scene
from vllm_raster_io.tiling import Window
from vllm_raster_io.uploads import Upload

from ..factories import make_raster
from .scenes import open_scene, read_all

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

INTEGERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
DATA = Path(__file__).parents[1] / "data"


class TestTypes:
    @pytest.mark.parametrize("dtype", INTEGERS)
    def test_integers_from_end_to_end(self, dtype: str) -> None:
        limits = np.iinfo(dtype)
        values = np.array([[limits.min, 0, 1], [7, limits.max - 1, limits.max]], dtype)
        assert_reads(make_raster(values=values, dtype=dtype), values[np.newaxis])

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_floats(self, dtype: str) -> None:
        limits = np.finfo("float32")  # what is beyond them is infinite to the network
        values = np.array([[limits.min, -0.25, 0.1], [1e-30, 70_000, limits.max]], dtype)
        assert_reads(make_raster(values=values, dtype=dtype), values[np.newaxis])

    def test_half_floats(self) -> None:
        values = np.array([[-65_504, 0.25, 65_504]], np.float32)
        assert_reads(make_raster(values=values, dtype="float32", nbits=16), values[np.newaxis])

    @pytest.mark.parametrize("bits", [1, 4, 12])
    def test_few_bits(self, bits: int) -> None:
        dtype = "uint8" if bits <= 8 else "uint16"
        values = np.array([[0, 1, 2**bits - 1]], dtype)
        assert_reads(make_raster(values=values, dtype=dtype, nbits=bits), values[np.newaxis])


class TestLayouts:
    values = np.random.default_rng(1).integers(0, 4_000, (3, 70, 90)).astype("uint16")

    @pytest.mark.parametrize("interleave", ["pixel", "band"])
    @pytest.mark.parametrize("tiled", [True, False])
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"compress": "deflate"},
            {"compress": "deflate", "predictor": 2},
            {"compress": "lzw", "predictor": 2},
            {"compress": "zstd", "predictor": 2},
            {"compress": "lzma"},
            {"compress": "packbits"},
            {"compress": "lerc"},
            {"endianness": "big"},
            {"bigtiff": "yes"},
        ],
        ids=lambda options: "-".join(map(str, options.values())) or "plain",
    )
    def test_tiff(self, interleave: str, tiled: bool, options: dict[str, Any]) -> None:
        if tiled:
            options = {**options, "tiled": True, "blockxsize": 32, "blockysize": 16}
        assert_reads(make_raster(values=self.values, interleave=interleave, **options), self.values)

    @pytest.mark.parametrize("compress", ["deflate", "lzw", "zstd"])
    def test_predictor_of_floats(self, compress: str) -> None:
        values = self.values.astype("float32") / 7
        content = make_raster(values=values, dtype="float32", compress=compress, predictor=3)
        assert_reads(content, values)

    def test_webp_without_loss(self) -> None:
        values = (self.values % 256).astype("uint8")
        content = make_raster(values=values, dtype="uint8", compress="webp", webp_lossless=True)
        assert_reads(content, values)

    @pytest.mark.parametrize("options", [{}, {"photometric": "ycbcr"}])
    def test_jpeg_in_tiff(self, options: dict[str, str]) -> None:
        values = smooth(3, 70, 90)
        content = make_raster(values=values, dtype="uint8", compress="jpeg", **options)
        assert_reads(content, rasterio_reads(content))
        np.testing.assert_allclose(read_all(content)[0].astype(int), values, atol=12)

    def test_cloud_optimised(self) -> None:
        values = np.random.default_rng(2).integers(0, 4_000, (1, 600, 700)).astype("uint16")
        assert_reads(make_raster(values=values, driver="COG", blocksize=128), values)

    @pytest.mark.parametrize("bands", [1, 3])
    @pytest.mark.parametrize("dtype", ["uint8", "uint16"])
    def test_png(self, bands: int, dtype: str) -> None:
        values = np.random.default_rng(3).integers(0, np.iinfo(dtype).max, (bands, 30, 40), dtype)
        assert_reads(make_raster(values=values, dtype=dtype, driver="PNG", crs=None), values)

    @pytest.mark.parametrize("bands", [1, 3])
    def test_jpeg(self, bands: int) -> None:
        values = smooth(bands, 70, 90)
        content = make_raster(values=values, dtype="uint8", driver="JPEG", crs=None)
        assert_reads(content, rasterio_reads(content))
        np.testing.assert_allclose(read_all(content)[0].astype(int), values, atol=12)


class TestWindows:
    values = np.arange(4 * 30 * 50).reshape(4, 30, 50).astype("uint16")

    @pytest.mark.parametrize(
        "window",
        [Window(0, 0, 1, 1), Window(29, 49, 1, 1), Window(3, 0, 20, 50), Window(11, 17, 16, 16)],
    )
    @pytest.mark.parametrize("indices", [[0], [3, 1], [2, 2, 0], [0, 1, 2, 3]])
    def test_bands_in_the_order_asked_for(self, window: Window, indices: list[int]) -> None:
        with open_scene(make_raster(values=self.values)) as scene:
            pixels, valid = scene.read(window, indices)
        np.testing.assert_array_equal(pixels, self.values[indices][:, *window.slices])
        assert valid.shape == (window.height, window.width)
        assert valid.all()

    def test_what_is_known_before_reading(self) -> None:
        content = make_raster(
            values=self.values[:, :, :20], descriptions=["B2", None, "Rot", "naher ÖR"]
        )
        with open_scene(content) as scene:
            assert (scene.count, scene.height, scene.width) == (4, 30, 20)
            assert scene.descriptions == ["B2", None, "Rot", "naher ÖR"]
            assert scene.alpha == [False] * 4
            assert scene.dtype([0, 3]) == np.uint16

    @pytest.mark.parametrize("name", ["forest_fields", "town"])
    def test_real_scenes(self, name: str) -> None:
        path = DATA / f"sentinel2_{name}_4band.tif"
        with rasterio.open(path) as reference:
            expected, valid = reference.read(), reference.dataset_mask() > 0
        pixels, found = read_all(path.read_bytes())
        np.testing.assert_array_equal(pixels, expected)
        np.testing.assert_array_equal(found, valid)

    def test_several_threads_read_one_scene(self) -> None:
        values = np.random.default_rng(4).integers(1, 9_000, (2, 512, 512)).astype("uint16")
        content = make_raster(
            values=values, tiled=True, blockxsize=128, blockysize=128, compress="zstd", nodata=5_000
        )
        windows = [Window(r, c, 200, 300) for r in range(0, 300, 60) for c in range(0, 200, 50)]
        together = threading.Barrier(4)

        def read(part: int) -> None:
            together.wait()
            for window in windows[part:] + windows[:part]:
                pixels, valid = scene.read(window, [1, 0])
                expected = values[::-1, *window.slices]
                np.testing.assert_array_equal(pixels, expected)
                np.testing.assert_array_equal(valid, (expected != 5_000).all(axis=0))

        with open_scene(content) as scene, ThreadPoolExecutor(4) as pool:
            list(pool.map(read, range(4)))


class TestNothingElseIsLookedAt:
    """Files beside the scene, as other requests' files might be."""

    beside = (
        b"<PAMDataset><SRS>EPSG:3035</SRS><GeoTransform>1,2,0,3,0,-2</GeoTransform>"
        b"<Metadata><MDI key='AREA_OR_POINT'>Point</MDI></Metadata>"
        b"<PAMRasterBand band='1'><Description>RED</Description><NoDataValue>7</NoDataValue>"
        b"<ColorInterp>Alpha</ColorInterp></PAMRasterBand></PAMDataset>"
    )
    files = (
        (".tif.aux.xml", beside),
        # The mask must say that it is one of the whole raster.
        (
            ".tif.msk",
            make_raster(
                values=np.zeros((20, 20)),
                dtype="uint8",
                crs=None,
                tags={"INTERNAL_MASK_FLAGS_1": "2", "INTERNAL_MASK_FLAGS_2": "2"},
            ),
        ),
        (".tif.ovr", make_raster(values=np.full((1, 10, 10), 9), crs=None)),
        (".tfw", b"5\n0\n0\n-5\n1000\n2000\n"),
        ("_RPC.TXT", b"LINE_OFF: 1\n"),
    )

    def test_side_cars(self) -> None:
        content = make_raster(values=np.full((2, 20, 20), 7), crs=None)
        upload = Upload.of(content)
        stem = Path(upload.memory.name).stem
        keep = [MemoryFile(data, dirname=stem, filename=stem + end) for end, data in self.files]
        with rasterio.open(upload.memory.name) as believed:
            assert believed.nodata == 7
            assert believed.descriptions[0] == "RED"
            assert believed.crs is not None
            assert MaskFlags.per_dataset in believed.mask_flag_enums[0]
            assert believed.overviews(1)
        with Scene(upload) as scene:
            dataset = scene.dataset
            assert scene.descriptions == [None, None]
            assert scene.alpha == [False, False]
            assert dataset.crs is None
            assert dataset.transform == rasterio.Affine.identity()
            assert dataset.gcps == ([], None)
            assert dataset.rpcs is None
            assert dataset.tags().get("AREA_OR_POINT") != "Point"
            assert dataset.overviews(1) == []
            pixels, valid = scene.read(Window(0, 0, 20, 20), [0, 1])
        assert (pixels == 7).all()
        assert valid.all()
        del keep


class TestMemory:
    def test_a_scene_may_be_closed_twice(self) -> None:
        scene = open_scene(make_raster())
        scene.close()
        scene.close()

    def test_a_closed_scene_is_not_read(self) -> None:
        scene = open_scene(make_raster())
        scene.close()
        with pytest.raises(RasterError):
            scene.read(Window(0, 0, 1, 1), [0])

    def test_a_scene_may_be_closed_while_it_is_read(self) -> None:
        content = make_raster(height=512, width=512, compress="zstd")

        def read(scene: Scene) -> None:
            reading.set()
            for _ in range(100):
                scene.read(Window(0, 0, 512, 512), [0, 1, 2, 3])

        for _ in range(5):
            reading = threading.Event()
            with ThreadPoolExecutor(1) as pool, open_scene(content) as scene:
                done = pool.submit(read, scene)
                reading.wait()
                scene.close()
                with pytest.raises(RasterError):
                    done.result()

    def test_files_are_given_back(self) -> None:
        content = make_raster(height=8, width=8, tags={"some": "tag"})
        uploads = [Upload.of(content) for _ in range(200)]
        for upload in uploads:
            assert upload.memory.exists()
            with Scene(upload) as scene:
                scene.read(Window(0, 0, 8, 8), [0])
        assert not any(upload.memory.exists() for upload in uploads)

    @pytest.mark.parametrize("length", [0, 5, 100, None])
    def test_refused_files_are_given_back(self, length: int | None) -> None:
        content = make_raster(height=8, width=8, bands=1025)
        uploads = [Upload.of(content[:length]) for _ in range(50)]
        for upload in uploads:
            with pytest.raises(ValueError, match=r"cannot be opened|at most 1024|begins with"):
                Scene(upload)
        assert not any(upload.memory.exists() for upload in uploads)


def assert_reads(content: bytes, expected: np.ndarray) -> None:
    pixels, valid = read_all(content)
    assert pixels.dtype == expected.dtype
    np.testing.assert_array_equal(pixels, expected)
    assert valid.all()
    with open_scene(content) as scene:
        assert scene.dtype(range(scene.count)) == expected.dtype


def rasterio_reads(content: bytes) -> np.ndarray:
    with MemoryFile(content) as memory, memory.open() as dataset:
        return dataset.read()


def smooth(bands: int, height: int, width: int) -> np.ndarray:
    """What JPEG keeps nearly as it is."""
    band, row, column = np.indices((bands, height, width))
    return (40 * band + row + column).astype("uint8")
