"""The instructed checkpoint through the engine: the words decide what is mapped."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pytest
import rasterio
import torch

from vllm_raster_io import LocalServer, RasterClient, ServiceError
from vllm_raster_model.processor import RasterProcessor
from vllm_raster_model.pytorch import InstructedRasterForImageToImage
from vllm_raster_model.tokenizer import with_words

from ..checkpoints.instructions import MASKS, TARGETS, UNSEEN, WORDINGS
from ..checkpoints.land_cover_labels import HELD_OUT, index_labels
from ..factories import make_raster
from .conftest import SCENES, TESTS
from .scripts import run

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

CHECKPOINT = TESTS / "checkpoints" / "instructed"
Values = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def instructed() -> Iterator[LocalServer]:
    with LocalServer(CHECKPOINT) as running:
        yield running


@pytest.fixture
def client(instructed: LocalServer) -> Iterator[RasterClient]:
    with RasterClient(instructed.url, timeout=300) as one:
        yield one


def answer(client: RasterClient, words: str) -> Values:
    """What is answered on the valid pixels of both scenes that training never saw."""
    parts = []
    for path in SCENES.values():
        with rasterio.open(io.BytesIO(client.map(path, prompt=words).data)) as dataset:
            values = dataset.read(1)[HELD_OUT[path.name]]
        parts.append(values[~np.isnan(values)])
    return np.concatenate(parts)


def wanted(target: str) -> Values:
    parts = []
    for path in SCENES.values():
        with rasterio.open(path) as dataset:
            part = HELD_OUT[path.name]
            valid = (dataset.dataset_mask() > 0)[part]
            pixels = dataset.read()
            parts.append(TARGETS[target](index_labels(pixels), pixels)[part][valid])
    return np.concatenate(parts)


def agreement(target: str, found: Values) -> float:
    """Intersection over union of a mask, correlation of an index."""
    right = wanted(target)
    assert found.shape == right.shape
    if target not in MASKS:
        return float(np.corrcoef(found, right)[0, 1])
    both, either = ((found > 0.5) & (right > 0.5)), ((found > 0.5) | (right > 0.5))
    return np.count_nonzero(both) / np.count_nonzero(either)


def mean_agreements(
    client: RasterClient, wordings: dict[str, tuple[str, ...]]
) -> tuple[float, float, dict[str, float]]:
    """Mean over masks, that of greenness, and each target's, over all of its wordings."""
    each = {
        target: float(np.mean([agreement(target, answer(client, one)) for one in ones]))
        for target, ones in wordings.items()
    }
    return float(np.mean([each[name] for name in MASKS])), each["greenness"], each


def test_offline_gives_the_same_map(client: RasterClient, tmp_path: Path) -> None:
    words, out = "find the trees", tmp_path / "trees.tif"
    told = ["--checkpoint", str(CHECKPOINT), "--prompt", words]
    run(TESTS.parent / "examples" / "offline.py", SCENES["town"], out, *told)
    online = client.map(SCENES["town"], prompt=words).data
    with rasterio.open(out) as dataset, rasterio.open(io.BytesIO(online)) as other:
        np.testing.assert_allclose(dataset.read(), other.read(), rtol=0, atol=1e-5)
        assert dataset.tags()["PROMPT"] == other.tags()["PROMPT"] == words


def test_knows_the_words_of_training(client: RasterClient) -> None:
    masks, greenness, each = mean_agreements(client, WORDINGS)
    assert masks >= 0.80, each
    assert greenness >= 0.95, each


def test_understands_other_wordings(client: RasterClient) -> None:
    known = {one for wordings in WORDINGS.values() for one in wordings}
    assert not known & {one for wordings in UNSEEN.values() for one in wordings}
    masks, greenness, each = mean_agreements(client, UNSEEN)
    assert masks >= 0.70, each
    assert greenness >= 0.70, each


def test_the_words_are_really_used(client: RasterClient) -> None:
    trees, soil = answer(client, "trees"), answer(client, "bare soil")
    assert np.mean((trees > 0.5) != (soil > 0.5)) > 0.2
    assert agreement("bare ground", trees) < 0.2
    # Training left words out: one that is not known changes little.
    assert np.abs(answer(client, "zebra trees") - trees).max() < 0.1


def test_words_that_are_not_known_are_told(client: RasterClient) -> None:
    notes = client.map(SCENES["town"], prompt="find the tall trees").answer.effective.notes
    assert any("has not learnt 'tall' of `prompt`" in one for one in notes)
    assert not client.map(SCENES["town"], prompt="find the trees").answer.effective.notes
    with pytest.raises(ServiceError, match=r"400: `prompt` has no word .* got 'zebra', 'crossing'"):
        client.map(SCENES["town"], prompt="zebra crossing")


def test_a_prompt_beside_data_is_refused(client: RasterClient, instructed: LocalServer) -> None:
    body = {"data": {"data": ""}, "prompt": "find the trees"}
    response = httpx.post(f"{instructed.url}/pooling", json=body, timeout=60)
    assert response.status_code == 400
    assert "`prompt` must stand within the body's `data`" in response.json()["error"]["message"]


def test_values_are_shares(client: RasterClient) -> None:
    values = answer(client, "how green is it")
    assert values.dtype == np.float32
    assert values.min() >= 0
    assert values.max() <= 1
    assert len(np.unique(values)) > 1000


def test_answer_repeats_the_prompt(client: RasterClient) -> None:
    result = client.map(SCENES["town"], prompt="find the trees")
    assert result.answer.effective.prompt == "find the trees"
    assert result.answer.kind == "values"


@pytest.mark.parametrize("prompt", [None, "", " "])
def test_a_prompt_is_needed(client: RasterClient, prompt: str | None) -> None:
    with pytest.raises(ServiceError, match=r"400: `prompt` must say what to map.*'trees'"):
        client.map(SCENES["town"], prompt=prompt)


@pytest.mark.parametrize("prompt", ["<image>", "trees <row>", "<image> trees <image>"])
def test_a_prompt_is_only_words(client: RasterClient, prompt: str) -> None:
    with pytest.raises(ServiceError, match="400"):
        client.map(SCENES["town"], prompt=prompt)
    assert client.healthy()


# The longest prompt of the comparison is longer than the smaller budget: it is split.
@pytest.fixture(scope="module", params=["4096", "50"])
def figures(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("instructed") / "differences.json"
    run(TESTS / "e2e" / "engine_instructed.py", CHECKPOINT, out, request.param)
    return json.loads(Path(out).read_text())


def test_engine_and_plain_pytorch_agree(figures: dict[str, Any]) -> None:
    differences = figures["differences"]
    other = differences.pop("another_instruction")
    assert other > 0.1
    assert all(one <= 1e-3 for one in differences.values()), differences


def test_prompts_that_are_put_off_halfway(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    run(TESTS / "e2e" / "engine_short_of_memory.py", CHECKPOINT, out)
    figures = json.loads(out.read_text())
    assert max(figures["put_off"], default=0) > 0
    assert figures["difference"] <= 1e-3


def test_images_that_are_not_there_are_refused(figures: dict[str, Any]) -> None:
    out_of_range, none = figures["refusals"]
    assert "asks for the image 2, but those of the prompt are counted from 0 to 1" in out_of_range
    assert "The prompt has no image to map" in none


def test_two_images_in_a_prompt(tmp_path: Path) -> None:
    """The example, with scenes of two sizes, one of them of no whole cells."""
    scenes = [tmp_path / "before.tif", tmp_path / "after.tif"]
    for i, (scene, size) in enumerate(zip(scenes, [(40, 70), (300, 33)], strict=True)):
        scene.write_bytes(make_raster(height=size[0], width=size[1], seed=i))
    script = TESTS.parent / "examples" / "before_and_after.py"
    printed = run(script, *scenes, tmp_path / "out", "--prompt", "map the forest")
    assert "before: (1, 40, 70), mean 0." in printed
    assert "after: (1, 128, 33), mean 0." in printed
    items = [{"pixel_values": read(one)[:, :128]} for one in scenes]
    model = InstructedRasterForImageToImage.from_pretrained(CHECKPOINT).eval()
    processor = RasterProcessor.from_pretrained(CHECKPOINT)
    with torch.inference_mode():
        expected = model(**processor(images=items, text="map the forest<image>" * 2))
    for scene, item, right in zip(scenes, items, expected, strict=True):
        height, width = item["pixel_values"].shape[1:]
        found = read(tmp_path / "out" / scene.name)
        np.testing.assert_allclose(found, right[:, :height, :width], atol=1e-4)


def read(path: Path) -> Values:
    with rasterio.open(path) as dataset:
        return dataset.read()


def test_a_checkpoint_with_new_words_is_served(tmp_path: Path) -> None:
    model = InstructedRasterForImageToImage.from_pretrained(CHECKPOINT).eval()
    processor = RasterProcessor.from_pretrained(CHECKPOINT)
    torch.manual_seed(0)
    processor.tokenizer = with_words(processor.tokenizer, ["snow and ice, anywhere"])
    model.resize_token_embeddings(len(processor.tokenizer))
    with torch.no_grad():
        model.get_input_embeddings().weight[-4:].normal_(std=0.1)
    model.save_pretrained(tmp_path / "grown")
    processor.save_pretrained(tmp_path / "grown")
    content = make_raster(height=96, width=128, crs=None)
    (tmp_path / "scene.tif").write_bytes(content)
    with LocalServer(tmp_path / "grown") as server, RasterClient(server.url, timeout=300) as client:
        answers = {one: client.map(content, prompt=one) for one in ("snow", "find ice", "trees")}
    item = {"pixel_values": read(tmp_path / "scene.tif")}
    for words, result in answers.items():
        assert not [one for one in result.answer.effective.notes if "does not know" in one]
        with torch.inference_mode():
            (expected,) = model(**processor(images=item, text=f"{words}<image>"))
        with rasterio.open(io.BytesIO(result.data)) as dataset:
            np.testing.assert_allclose(dataset.read(), expected, atol=1e-4)
    first, second = (one.data for one in list(answers.values())[:2])
    assert first != second
