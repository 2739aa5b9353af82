"""Pictures of maps show the right colours in the right places."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from vllm_raster_io import MapResult, RasterError
from vllm_raster_io.answers import ClassSummary, Effective, RasterAnswer
from vllm_raster_io.previews import class_preview, true_colour, value_preview

from ..factories import make_raster

NAMES = ["BLUE", "GREEN", "RED", "NIR"]
MARGIN, SIDE = 16, 480


def result(ids: np.ndarray, bands: list[str], kind: str = "classes") -> MapResult:
    data = make_raster(values=ids, dtype="uint8", nodata=255)
    classes = [
        ClassSummary(id=0, name="land", color="#ff0000", pixels=3),
        ClassSummary(id=1, name="water", color="#0000ff", pixels=1),
    ]
    answer = RasterAnswer(
        data=base64.b64encode(data).decode(),
        kind=kind,
        product=kind,
        width=ids.shape[1],
        height=ids.shape[0],
        dtype="uint8",
        nodata=255,
        invalid_pixels=0,
        crs=None,
        classes=classes if kind == "classes" else None,
        effective=Effective(
            indices=list(range(len(bands))), bands=bands, bands_by="order", tile_size=64,
            overlap=0, blending="linear", windows=1, coordinates=[],
        ),
    )  # fmt: skip
    return MapResult(data, answer)


def scene() -> bytes:
    # Black on the left, white on the right, but for the near infrared.
    values = np.zeros((4, 20, 20), dtype=np.uint16)
    values[:3, :, 10:] = 1000
    return make_raster(values=values)


def test_true_colour_takes_the_named_bands() -> None:
    values = np.zeros((4, 20, 20), dtype=np.uint16)
    values[2, :, 10:] = 1000
    picture, valid = true_colour(make_raster(values=values), result(np.zeros((20, 20)), NAMES))
    assert valid.all()
    assert picture[0, 0].tolist() == [0, 0, 0]
    assert picture[0, 19].tolist() == [255, 0, 0]


@pytest.mark.parametrize(("bands", "shown"), [(["SAR"], 1), (["VV", "VH"], 2)])
def test_true_colour_of_other_bands(bands: list[str], shown: int) -> None:
    content = make_raster(bands=shown)
    height, width = 32, 48
    picture, _ = true_colour(content, result(np.zeros((height, width)), bands))
    assert picture.shape == (height, width, 3)


def test_nothing_valid_is_white() -> None:
    picture, valid = true_colour(make_raster(values=7, nodata=7), result(np.zeros((32, 48)), NAMES))
    assert not valid.any()
    assert (picture == 255).all()


def test_preview_has_scene_map_and_legend() -> None:
    ids = np.zeros((20, 20), dtype=np.uint8)
    ids[:, 10:] = 1
    sheet = np.asarray(Image.open(io.BytesIO(class_preview(scene(), result(ids, NAMES)))))
    assert sheet.shape[0] == SIDE + 2 * MARGIN
    top, second = MARGIN + 5, 2 * MARGIN + SIDE
    assert sheet[top, MARGIN + 5].tolist() == [0, 0, 0]
    assert sheet[top, MARGIN + SIDE - 5].tolist() == [255, 255, 255]
    # Three fifths of the class' colour over black, then over white.
    assert sheet[top, second + 5].tolist() == [153, 0, 0]
    assert sheet[top, second + SIDE - 5].tolist() == [102, 102, 255]
    legend = 3 * MARGIN + 2 * SIDE
    assert sheet[MARGIN + 9, legend + 9].tolist() == [255, 0, 0]
    assert sheet[MARGIN + 45, legend + 9].tolist() == [0, 0, 255]


@pytest.mark.parametrize(("up", "down"), [(1, 3), (2, 1)])
def test_a_map_of_other_pixels_is_laid_over_the_scene(up: int, down: int) -> None:
    height, width = -(-20 * up // down), -(-20 * up // down)
    ids = np.zeros((height, width), dtype=np.uint8)
    ids[0, 0] = 1
    one = result(ids, NAMES)
    one.answer.effective.upscale, one.answer.effective.downscale = up, down
    black = make_raster(values=np.zeros((4, 20, 20), dtype=np.uint16))
    sheet = np.asarray(Image.open(io.BytesIO(class_preview(black, one))))
    zoom, second = SIDE // 20, 2 * MARGIN + SIDE
    over = sheet[MARGIN : MARGIN + SIDE : zoom, second : second + SIDE : zoom]
    blue = np.argwhere(over[..., 2] > over[..., 0])
    side = down if up == 1 else 1
    assert blue.tolist() == [[r, c] for r in range(side) for c in range(side)]


def test_only_classes_have_a_preview() -> None:
    with pytest.raises(RasterError, match="values"):
        class_preview(scene(), result(np.zeros((20, 20)), NAMES, "values"))


def told(values: np.ndarray, words: str) -> MapResult:
    one = result(np.zeros(values.shape), NAMES, "values")
    one.answer.effective.prompt = words
    return MapResult(make_raster(values=values, dtype="float32"), one.answer)


def test_values_are_shown_side_by_side() -> None:
    half = np.zeros((20, 20), dtype=np.float32)
    half[:, :10] = 1
    sheet = np.asarray(
        Image.open(io.BytesIO(value_preview(scene(), [told(half, "trees"), told(1 - half, "x")])))
    )
    assert sheet.shape[1] == 3 * SIDE + 4 * MARGIN
    row, second, third = SIDE, 2 * MARGIN + SIDE, 3 * MARGIN + 2 * SIDE
    # The scene is black on the left and white on the right; three fifths of pink over it.
    assert sheet[row, second + 5].tolist() == [153, 38, 96]
    assert sheet[row, second + SIDE - 5].tolist() == [255, 255, 255]
    assert sheet[row, third + 5].tolist() == [0, 0, 0]
    assert sheet[row, third + SIDE - 5].tolist() == [255, 140, 198]


def test_only_values_are_shown_side_by_side() -> None:
    for results in ([], [result(np.zeros((20, 20)), NAMES)]):
        with pytest.raises(RasterError, match="Only maps of values"):
            value_preview(scene(), results)
