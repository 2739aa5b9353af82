"""The hooks that vLLM calls, for networks that are told when and where, and that see dates."""

import asyncio
import base64
import json
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rasterio import Affine

from vllm_raster_io import plugin
from vllm_raster_io.answers import RasterAnswer
from vllm_raster_io.bodies import BodyReader
from vllm_raster_io.errors import RequestError
from vllm_raster_io.maps import opened
from vllm_raster_io.plugin import RasterIOProcessor
from vllm_raster_io.uploads import Upload

from ..factories import make_raster
from .networks import PixelNetwork
from .processors import Engine, make_processor, pixels_of
from .test_coordinates import from_utm

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

DAYS = ["2023-03-01", "2023-06-15", "2023-09-30"]


@pytest.fixture(autouse=True)
def _server_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # It changes how the whole process reads requests.
    monkeypatch.setattr(plugin, "keep_event_loop_free", lambda: None)


class TellingEngine:
    """Answers with what it was told: year, day, latitude, longitude, on the whole window."""

    def __call__(self, prompt: Any) -> Any:
        item = prompt["multi_modal_data"]["image"]
        # Read as a served network reads it, for its mask.
        height, width = np.asarray(item["pixel_values"]).shape[-2:]
        told = [*item["temporal_coords"][0], *item["location_coords"]]
        scores = torch.tensor(told, dtype=torch.float32)[:, None, None].expand(4, height, width)
        return SimpleNamespace(
            prompt_token_ids=prompt["prompt_token_ids"], outputs=SimpleNamespace(data=scores)
        )


class TestToldApart:
    def test_16_at_once_each_by_its_own_place_and_date(self) -> None:
        processor = make_processor(
            "values", bands=("A",), channels=4, overlap=0, coordinates=("time", "location")
        )
        wanted = [(400_000 + 20_000 * k, 5_000_000 + 10_000 * k, 1 + k) for k in range(16)]

        async def serve(k: int) -> RasterAnswer:
            east, north, day = wanted[k]
            content = make_raster(
                bands=1, height=64, width=128, crs="EPSG:32632",
                transform=Affine(10, 0, east, 0, -10, north),
                tags={"TIFFTAG_DATETIME": f"2024:01:{day:02} 12:00:00"},
            )  # fmt: skip
            prompts = await processor.pre_process_async(parsed(processor, content))
            outputs = list(enumerate(map(TellingEngine(), prompts)))
            await asyncio.sleep(chance.random() / 100)
            return await processor.post_process_async(each(outputs))

        async def serve_all() -> list[RasterAnswer]:
            return await asyncio.gather(*(serve(k) for k in range(16)))

        chance = random.Random(0)
        for (east, north, day), answer in zip(wanted, asyncio.run(serve_all()), strict=True):
            found = pixels_of(answer)
            for left, centre in ((0, 320), (64, 960)):
                place = from_utm(east + centre, north - 320, 9)
                expected = np.float32([2024, day, *place])
                window = found[:, :, left : left + 64]
                np.testing.assert_allclose(window, expected[:, None, None] + 0 * window, rtol=1e-7)
            assert answer.effective.coordinates == ["time", "location"]

    def test_of_other_scenes_nothing_stays(self) -> None:
        processor = make_processor(bands=("A",), coordinates=("time", "location"))
        told = make_raster(bands=1, tags={"datetime": "2024-01-01"})
        untold = make_raster(bands=1, crs=None)
        for content, names in ((told, 2), (untold, 0), (told, 2)):
            (prompt,) = processor.pre_process(parsed(processor, content))
            item = prompt["multi_modal_data"]["image"]
            assert len({"temporal_coords", "location_coords"} & set(item)) == names


class TestDates:
    @pytest.mark.parametrize("downscale", [1, 8])
    @pytest.mark.parametrize("stacked", [False, True])
    def test_from_the_body_to_the_map(self, stacked: bool, downscale: int) -> None:
        """As the server does it: the body arrives in pieces, the files in a list."""
        processor = make_processor(
            bands=("RED", "NIR"), frames=3, channels=5, coordinates=("time",), downscale=downscale
        )
        pixels = np.random.default_rng(0).integers(0, 5_000, (3, 2, 150, 200)).astype("uint16")
        whole = [np.concatenate(pixels)] if stacked else list(pixels)
        files = [make_raster(values=one) for one in whole]
        body = json.dumps({"data": {"data": [encoded(one) for one in files], "dates": DAYS}})
        reader = BodyReader()
        for start in range(0, len(body), 50_000):
            reader.feed(body[start : start + 50_000].encode())
        request = processor.parse_data(reader.parse()["data"])
        assert all(isinstance(one, Upload) for one in request.data)
        prompts = processor.pre_process(request)
        answer = processor.post_process(list(map(Engine(processor), prompts)))
        expected = PixelNetwork(processor.contract).ids(pixels.swapaxes(0, 1))
        np.testing.assert_array_equal(pixels_of(answer)[0], expected)
        assert answer.effective.dates == DAYS
        with opened(base64.b64decode(answer.data)) as dataset:
            assert dataset.transform.a == 10 * downscale

    def test_offline(self) -> None:
        processor = make_processor(bands=("A",), frames=2, channels=5)
        pixels = np.random.default_rng(0).integers(0, 5_000, (2, 1, 70, 40)).astype("uint16")
        data = {"data": [encoded(make_raster(values=one)) for one in pixels]}
        prompts = processor.pre_process(processor.parse_data(data))
        answer = processor.post_process(list(map(Engine(processor), prompts)))
        expected = PixelNetwork(processor.contract).ids(pixels.swapaxes(0, 1))
        np.testing.assert_array_equal(pixels_of(answer)[0], expected)

    def test_refused_and_nothing_left_behind(self) -> None:
        processor = make_processor(bands=("A",), frames=2)
        sent = [Upload.of(make_raster(bands=1)) for _ in range(2)]
        request = processor.parse_data({"data": sent, "dates": DAYS[:2]})
        with pytest.raises(RequestError, match="`dates` is refused"):
            processor.pre_process(request)
        assert not any(one.memory.exists() for one in sent)


def parsed(processor: RasterIOProcessor, content: bytes, **fields: Any) -> Any:
    return processor.parse_data({"data": encoded(content), **fields})


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


async def each(outputs: list[tuple[int, Any]]) -> Any:
    for one in outputs:
        await asyncio.sleep(0)
        yield one
