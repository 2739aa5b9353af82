"""Maps as pictures, read by another library."""

import io

import numpy as np
import pytest
from PIL import Image

from vllm_raster_io.maps import RasterMap
from vllm_raster_io.pictures import write_picture

COLOURS = ((10, 20, 30), (200, 0, 0), (0, 250, 90))
IDS = np.array([[0, 1, 2], [2, 255, 0]], np.uint8)


def opened(content: bytes) -> Image.Image:
    return Image.open(io.BytesIO(content))


class TestClasses:
    def test_a_png_holds_the_ids(self) -> None:
        content, told = write_picture(RasterMap(IDS[None], 255, colours=COLOURS), "png")
        assert told is None
        image = opened(content)
        assert image.mode == "P"
        np.testing.assert_array_equal(np.asarray(image), IDS)
        shown = np.asarray(image.convert("RGBA"))
        for i, colour in enumerate(COLOURS):
            assert (shown[i == IDS] == (*colour, 255)).all()
        assert (shown[IDS == 255][:, 3] == 0).all()

    def test_a_png_of_many_classes_holds_the_ids(self) -> None:
        ids = np.array([[0, 299, 65_535]], np.uint16)
        raster = RasterMap(ids[None], 65_535, colours=COLOURS * 100)
        content, told = write_picture(raster, "png")
        assert told is None
        np.testing.assert_array_equal(np.asarray(opened(content)), ids)

    @pytest.mark.parametrize("dtype", ["uint8", "uint16"])
    def test_a_webp_shows_them(self, dtype: str) -> None:
        ids = IDS.astype(dtype)
        nodata = np.iinfo(dtype).max
        ids[IDS == 255] = nodata
        raster = RasterMap(ids[None], nodata, colours=COLOURS)
        content, told = write_picture(raster, "webp")
        assert told == "Classes in their colours; nodata is transparent"
        shown = np.asarray(opened(content).convert("RGBA"))
        for i, colour in enumerate(COLOURS):
            assert (shown[i == IDS] == (*colour, 255)).all()
        assert (shown[IDS == 255][:, 3] == 0).all()

    def test_a_jpeg_shows_them_nearly(self) -> None:
        ids = IDS.repeat(16, axis=0).repeat(16, axis=1)
        content, told = write_picture(RasterMap(ids[None], 255, colours=COLOURS), "jpeg", 95)
        assert told == "Classes in their colours; nodata is white"
        shown = np.asarray(opened(content)).astype(int)
        middle = shown[8::16, 8::16]
        palette = np.array([*COLOURS, (255, 255, 255)])
        expected = palette[np.where(IDS == 255, 3, IDS)]
        assert np.abs(middle - expected).max() < 12


class TestNumbers:
    def test_one_band_is_gray(self) -> None:
        values = np.linspace(-50, 150, 10_001, dtype=np.float32).reshape(1, 73, 137)
        values[0, 0, 0] = np.nan
        content, told = write_picture(RasterMap(values, np.nan, ("biomass",)), "png")
        low, high = np.percentile(values[0].ravel()[1:], (2, 98))
        assert told == f"Gray: biomass from {low:.6g} to {high:.6g}; nodata is transparent"
        image = opened(content)
        assert image.mode == "LA"
        gray, alpha = np.moveaxis(np.asarray(image).astype(int), -1, 0)
        np.testing.assert_array_equal(alpha == 0, np.isnan(values[0]))
        expected = np.clip((values[0].astype(float) - low) / (high - low), 0, 1) * 255
        assert np.nanmax(np.abs(gray - expected)[alpha > 0]) <= 0.5001

    @pytest.mark.parametrize("kind", ["png", "webp"])
    def test_three_bands_are_colours(self, kind: str) -> None:
        values = np.random.default_rng(0).random((4, 20, 30)).astype(np.float32)
        content, told = write_picture(RasterMap(values, np.nan, ("r", "g", "b", "n")), kind)
        assert told is not None
        assert told.startswith("Red, green, blue: r from 0.0")
        image = opened(content)
        assert image.mode in ("RGBA", "RGB")
        shown = np.asarray(image.convert("RGB")).astype(int)
        for band in range(3):
            low, high = np.percentile(values[band], (2, 98))
            expected = np.clip((values[band] - low) / (high - low), 0, 1) * 255
            assert np.abs(shown[..., band] - expected).max() <= 0.5001

    def test_probabilities_are_told_as_such(self) -> None:
        counts = np.array([[[0, 127, 254, 255]]], np.uint8)
        content, told = write_picture(RasterMap(counts, 255, ("water",), scale=1 / 254), "png")
        assert told is not None
        assert "water from 0.02 to 0.98" in told
        assert np.asarray(opened(content))[0, :, 1].tolist() == [255, 255, 255, 0]

    @pytest.mark.parametrize("kind", ["png", "webp", "jpeg"])
    @pytest.mark.parametrize("value", [np.nan, 7.0])
    def test_all_alike_or_all_invalid(self, kind: str, value: float) -> None:
        content, _ = write_picture(RasterMap(np.full((1, 4, 5), value, np.float32), np.nan), kind)
        assert opened(content).size == (5, 4)

    def test_quality_makes_a_webp_small(self) -> None:
        values = np.random.default_rng(0).random((3, 64, 64)).astype(np.float32)
        sizes = [
            len(write_picture(RasterMap(values, np.nan), "webp", quality)[0])
            for quality in (5, 90, None)
        ]
        assert sizes == sorted(sizes)
