"""What the plugin reads of a checkpoint's `raster` block."""

from types import SimpleNamespace
from typing import Any

import pytest

from vllm_raster_io.contract import RasterContract
from vllm_raster_io.errors import ContractError
from vllm_raster_model.contract import RasterContract as ModelContract

from .scenes import raster_block

SMALLEST = {
    "version": 1,
    "input": {"bands": ["RED"]},
    "output": {"kind": "values", "bands": [{"name": "height"}]},
}
LAND_COVER = {
    "version": 1,
    "input": {
        "bands": ["BLUE", "GREEN", "RED", "NIR"],
        "scale": 0.0001,
        "offset": -0.1,
        "mean": [0.1, 0.2, 0.3, 0.4],
        "std": [0.05],
        "nodata_fill": 0,
        "frames": 1,
        "coordinates": ["time", "location"],
        "first_day": 0,
    },
    "tile": {"size": 512, "multiple_of": 16, "minimum": 64, "overlap": 64},
    "output": {
        "kind": "classes",
        "upscale": 2,
        "classes": [{"name": "water", "color": "#2060c0"}, {"name": "land"}],
    },
}
SUPER_RESOLUTION = {
    "version": 1,
    "input": {"bands": ["RED", "GREEN", "BLUE"], "frames": 1},
    "tile": {"size": 96, "multiple_of": 8},
    "output": {
        "kind": "image",
        "upscale": 4,
        "bands": [{"name": name, "unit": "1"} for name in ("RED", "GREEN", "BLUE")],
    },
}
CROPS = {
    "version": 1,
    "input": {
        "bands": ["RED", "NIR"],
        "frames": 3,
        "mean": [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]],
        "std": [[1, 2, 3], [4, 5, 6]],
        "coordinates": ["time"],
    },
    "tile": {"size": 224, "multiple_of": 16, "overlap": 32},
    "output": {"kind": "classes", "downscale": 8, "classes": [{"name": "corn"}, {"name": "none"}]},
}


class TestRead:
    def test_all_of_it(self) -> None:
        contract = read(LAND_COVER)
        assert contract.input.bands == ("BLUE", "GREEN", "RED", "NIR")
        assert contract.input.coordinates == ("time", "location")
        assert (contract.tile.size, contract.tile.overlap) == (512, 64)
        assert contract.input.first_day == 0
        assert contract.output.upscale == 2
        assert [one.name for one in contract.output.classes] == ["water", "land"]
        assert [one.color for one in contract.output.classes] == ["#2060c0", None]
        assert contract.output.channels == 2

    def test_what_may_be_left_out(self) -> None:
        contract = read(SMALLEST)
        assert contract.input.frames == 1
        assert contract.input.coordinates == ()
        assert contract.input.first_day == 1
        assert contract.output.downscale == 1
        assert (contract.tile.size, contract.tile.overlap) == (512, 0)
        assert contract.output.upscale == 1
        assert contract.output.channels == 1
        assert contract.output.bands[0].unit is None

    def test_what_is_for_others_is_left_alone(self) -> None:
        assert read({**SMALLEST, "network": {"name": "unet"}}) == read(SMALLEST)

    @pytest.mark.parametrize(
        "block",
        [
            SMALLEST,
            LAND_COVER,
            SUPER_RESOLUTION,
            CROPS,
            raster_block("classes", channels=300),
            raster_block("values", channels=2, size=16, overlap=15),
            raster_block(frames=2, downscale=16, first_day=0, coordinates=("time",)),
        ],
    )
    def test_the_model_package_reads_the_same(self, block: dict[str, Any]) -> None:
        ours, models = read(block), ModelContract.parse(block)
        assert ours.input.bands == models.input.bands
        assert ours.input.frames == models.input.frames
        assert ours.input.coordinates == models.input.coordinates
        assert ours.input.first_day == models.input.first_day
        assert (ours.tile.size, ours.tile.overlap) == (models.tile.size, models.tile.overlap)
        assert ours.output.kind == models.output.kind
        assert ours.output.upscale == models.output.upscale
        assert ours.output.channels == models.output.channels
        assert ours.output.model_dump() == models.output.model_dump()


class TestRefused:
    def test_no_block(self) -> None:
        for config in (SimpleNamespace(), SimpleNamespace(raster=None)):
            with pytest.raises(ContractError, match=r"needs a `raster` block .* there is none"):
                RasterContract.of(config)

    @pytest.mark.parametrize("block", [[], "raster", 1])
    def test_no_object(self, block: object) -> None:
        assert "raster: Input should be a valid dictionary" in refusal(block)

    @pytest.mark.parametrize("key", ["version", "input", "output"])
    def test_a_missing_part(self, key: str) -> None:
        assert f"{key}: Field required" in refusal({k: v for k, v in SMALLEST.items() if k != key})

    @pytest.mark.parametrize(
        ("part", "told"),
        [
            ({"version": 2}, "version: Input should be 1"),
            ({"version": "1"}, "version: Input should be 1"),
            ({"input": {"bands": []}}, "input.bands: Tuple should have at least 1 item"),
            ({"input": {"bands": "RED"}}, "input.bands"),
            ({"input": {"bands": ["RED"], "frames": 0}}, "input.frames"),
            ({"input": {"bands": ["RED"], "first_day": 2}}, "input.first_day"),
            ({"input": {"bands": ["RED"], "coordinates": ["height"]}}, "input.coordinates.0"),
            ({"tile": {"size": 0}}, "tile.size"),
            ({"tile": {"overlap": -1}}, "tile.overlap"),
            ({"tile": {"size": 64, "overlap": 64}}, "overlap must be less than size=64, got 64"),
            ({"output": {"kind": "mask", "classes": [{"name": "a"}]}}, "output.kind"),
            ({"output": {"kind": "classes"}}, "kind='classes' needs 'classes'"),
            ({"output": {"kind": "classes", "classes": []}}, "kind='classes' needs 'classes'"),
            ({"output": {"kind": "classes", "bands": [{"name": "a"}]}}, "needs 'classes'"),
            ({"output": {"kind": "values", "classes": [{"name": "a"}]}}, "needs 'bands'"),
            ({"output": {"kind": "image"}}, "kind='image' needs 'bands'"),
            ({"output": {"kind": "values", "bands": [{}]}}, "output.bands.0.name: Field required"),
            ({"output": {**SMALLEST["output"], "upscale": 0}}, "output.upscale"),
            ({"output": {**SMALLEST["output"], "downscale": 0}}, "output.downscale"),
            (
                {"output": {**SMALLEST["output"], "downscale": 2, "upscale": 4}},
                "one of upscale and downscale is 1, got 4 and 2",
            ),
            (
                {"output": {**SMALLEST["output"], "downscale": 7}},
                "tile.size must be a multiple of output.downscale=7, got 512",
            ),
        ],
    )
    def test_what_cannot_be(self, part: dict[str, Any], told: str) -> None:
        message = refusal({**SMALLEST, **part})
        assert message.startswith("The raster block of config.json is not usable: ")
        assert told in message

    @pytest.mark.parametrize("color", ["red", "#fff", "#12345g", "2060c0", "#2060c0ff", ""])
    def test_colours_that_are_none(self, color: str) -> None:
        output = {"kind": "classes", "classes": [{"name": "a"}, {"name": "b", "color": color}]}
        assert "output.classes.1.color" in refusal({**SMALLEST, "output": output})


def read(block: object) -> RasterContract:
    return RasterContract.of(SimpleNamespace(raster=block))


def refusal(block: object) -> str:
    with pytest.raises(ContractError) as caught:
        read(block)
    return str(caught.value)
