"""A folder as TerraTorch publishes it, as vLLM sees it where this package stands in."""

import copy
import json
import logging
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoConfig, PreTrainedConfig
from vllm import ModelRegistry
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.model_loader import default_loader, get_model_loader
from vllm.model_executor.models.config import MODELS_CONFIG_MAP
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.transformers_utils.config import get_config

from vllm_raster_model import unconverted
from vllm_raster_model.config import RasterConfig
from vllm_raster_model.plain import RasterForImageToImage
from vllm_raster_model.registration import register
from vllm_raster_model.unconverted_config import UnconvertedConfig

from .serving import engine_config, make_ready
from .terratorch import STORED, TerraTorchCase

BANDS = ["BLUE", "GREEN", "RED", "NIR_NARROW", "SWIR_1", "SWIR_2"]
DATA = {
    "class_path": "terratorch.datamodules.Sen1Floods11NonGeoDataModule",
    "init_args": {"constant_scale": 0.0001, "no_data_replace": 0.0, "bands": BANDS},
}
AS_IT_IS = {"input": {"mean": [0.0], "std": [1.0], "scale": 1.0, "nodata_fill": 0.0}}
"""Windows come normalised, as those do that TerraTorch's outputs are stored with."""
BLUE_MEAN = 0.1412956


def published(folder: Path, *, data: dict[str, Any] | None = None, **changes: Any) -> Path:
    """A folder as TerraTorch publishes it; arguments change the model's in config.json."""
    for file in (STORED / "floods_upernet").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    if data is not None:
        config["pretrained_cfg"]["data"] = data
    config["pretrained_cfg"]["model"]["init_args"]["model_args"].update(changes)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def serve(folder: Path, block: dict[str, Any] | None = None, **arguments: Any) -> VllmConfig:
    """What vLLM makes of the folder, started as TerraTorch's documentation says."""
    arguments = {"skip_tokenizer_init": True, "io_processor_plugin": "raster", **arguments}
    if block is not None:
        arguments["hf_overrides"] = {"raster": block, **arguments.get("hf_overrides", {})}
    return engine_config(folder, **arguments)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One that does not say how its network's input is normalised."""
    return published(tmp_path)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """One that says all."""
    return published(tmp_path, data=DATA)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    logger = logging.getLogger("vllm.raster.model")
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)


@pytest.fixture
def terratorch_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unconverted, "find_spec", lambda name: name == "terratorch")


@pytest.fixture
def wrapper(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class that can be loaded stands for the wrapper, which without TerraTorch cannot."""
    register()
    ours = ModelRegistry.models["RasterForImageToImage"]
    monkeypatch.setitem(ModelRegistry.models, "Terratorch", ours)


class TestConfiguration:
    def test_is_what_it_would_be_converted_to(self, whole: Path) -> None:
        model = serve(whole).model_config
        assert model.architecture == "Terratorch"
        assert model.supports_multimodal_inputs
        assert model.dtype == torch.float32
        config = model.hf_config
        assert isinstance(config, UnconvertedConfig)
        assert config.contract.input.bands == tuple(BANDS)
        assert config.contract.input.mean[0] == pytest.approx(BLUE_MEAN, abs=0.01)
        assert config.contract.input.scale == 0.0001
        assert config.contract.tile.size == 64
        assert [one.name for one in config.contract.output.classes] == ["class 0", "class 1"]
        assert model.max_model_len >= config.largest_grid.tokens

    def test_said_as_the_page_says(self, folder: Path) -> None:
        page = (STORED.parents[2] / "docs" / "checkpoints.md").read_text()
        (said,) = re.findall(r"--hf-overrides \\\n  '(\{\"raster.*)'", page)
        block = json.loads(said)["raster"]
        contract = serve(folder, block).model_config.hf_config.contract
        assert (contract.input.scale, contract.input.nodata_fill) == (0.0001, 0)

    def test_can_be_saved_as_one_of_ours(self, whole: Path) -> None:
        config = serve(whole).model_config.hf_config
        plain = RasterConfig(**config.to_dict())
        assert plain.contract == config.contract
        assert not config.to_dict().keys() & {"stored", "said", "reason", "problem", "notes"}

    def test_travels_to_other_processes(self, whole: Path) -> None:
        config = serve(whole, {"tile": {"overlap": 8}}).model_config.hf_config
        for copied in (pickle.loads(pickle.dumps(config)), copy.deepcopy(config)):
            assert copied.raster == config.raster
            assert copied.contract == config.contract
            assert copied.hidden_size == config.hidden_size

    def test_says_that_it_stands_in(self, whole: Path, log: pytest.LogCaptureFixture) -> None:
        serve(whole)
        assert "stands in for vLLM's wrapper around TerraTorch: TerraTorch is not inst" in log.text

    def test_without_the_flags(self, whole: Path, log: pytest.LogCaptureFixture) -> None:
        model = serve(whole, skip_tokenizer_init=False, io_processor_plugin=None).model_config
        assert model.supports_multimodal_inputs
        assert model.skip_tokenizer_init
        assert model.hf_config.to_dict()["io_processor_plugin"] == "raster"
        assert "needs no tokenizer" in log.text

    def test_other_configurations_are_left_alone(self, tmp_path: Path) -> None:
        register()
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
        assert type(get_config(str(tmp_path), False)) is type(AutoConfig.for_model("llama"))
        (tmp_path / "config.json").write_text(json.dumps({"pretrained_cfg": {}}))
        parser = unconverted.UnconvertedConfigParser()
        with pytest.raises(ImportError, match="timm"):
            parser.parse(str(tmp_path), False)

    def test_an_id_of_the_hub(self, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its configuration is what vLLM downloads, here without a network."""
        stored = json.loads((whole / "config.json").read_text())
        asked = []

        class Timm:
            def parse(self, *_: object, **__: object) -> None:
                raise ImportError("timm")

        def download(name: str, **places: object) -> tuple[dict[str, Any], dict[str, Any]]:
            asked.append((name, places))
            return stored, {}

        monkeypatch.setattr(unconverted.UnconvertedConfigParser, "inner", Timm)
        monkeypatch.setattr(PreTrainedConfig, "get_config_dict", download)
        parser = unconverted.UnconvertedConfigParser()
        found, config = parser.parse("acme/floods", False, "v1", token="a token")
        assert asked == [("acme/floods", {"revision": "v1", "token": "a token"})]
        assert found is stored
        assert (config.name_or_path, config.problem) == ("acme/floods", None)

    def test_where_transformers_can_read_it_too(
        self, whole: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As with timm, which TerraTorch brings along."""
        stored = json.loads((whole / "config.json").read_text())

        class Timm:
            def parse(self, *_: object, **__: object) -> tuple[dict[str, Any], PreTrainedConfig]:
                return stored, PreTrainedConfig()

        monkeypatch.setattr(unconverted.UnconvertedConfigParser, "inner", Timm)
        parser = unconverted.UnconvertedConfigParser()
        assert type(parser.parse(str(whole), False)[1]) is UnconvertedConfig
        monkeypatch.setattr(unconverted, "find_spec", lambda name: name == "terratorch")
        assert type(parser.parse(str(whole), False)[1]) is PreTrainedConfig


class TestSayingMore:
    def test_what_is_missing_is_named_both_ways(self, folder: Path) -> None:
        with pytest.raises(ValueError, match="does not say all that is needed") as refused:
            serve(folder)
        said = str(refused.value)
        for key in ("mean", "std", "scale", "nodata_fill"):
            assert f"raster.input.{key}" in said
            assert f"--{key.replace('_', '-')} …" in said
        assert """--hf-overrides '{"raster": {"input": {"mean": …""" in said
        assert "raster.input.bands" not in said

    def test_part_of_what_is_missing(self, folder: Path) -> None:
        with pytest.raises(ValueError, match=r"raster\.input\.std, raster\.input\.scale\."):
            serve(folder, {"input": {"mean": 0.5, "nodata_fill": 0.0}})

    def test_is_laid_over_what_the_folder_says(self, whole: Path) -> None:
        classes = [{"name": "dry"}, {"name": "water", "color": "#0000ff"}]
        block = {
            "input": {"mean": 0.5},
            "tile": {"size": 100, "overlap": 4},
            "output": {"classes": classes},
        }
        contract = serve(whole, block).model_config.hf_config.contract
        assert contract.input.mean == (0.5,)
        assert contract.input.scale == 0.0001
        assert (contract.tile.size, contract.tile.overlap) == (112, 4)
        assert contract.output.classes[1].color == "#0000ff"

    def test_is_the_same_by_a_function(self, whole: Path) -> None:
        def scale(config: Any) -> Any:
            config.raster = {"input": {"scale": 0.5}}
            return config

        assert serve(whole, hf_overrides=scale).model_config.hf_config.contract.input.scale == 0.5

    @pytest.mark.parametrize(
        ("block", "message"),
        [
            ({"input": {"mean": [0.1, 0.2]}}, "mean needs 1 number or one for each of the 6 bands"),
            ({"input": {"means": [0.1]}}, "input.means: Extra inputs are not permitted"),
            ({"input": {"bands": ["RED"]}}, "bands must be the network's 6"),
            ({"output": {"classes": [{"name": "one"}]}}, "classes must be the network's 2"),
            ({"input": 3}, "raster.input must hold keys and values, got 3"),
            ({"input": {"std": [0.0]}}, "std"),
        ],
    )
    def test_must_fit(self, whole: Path, block: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            serve(whole, block)

    def test_nothing_helps_what_is_not_supported(self, tmp_path: Path) -> None:
        folder = published(tmp_path, data=DATA, decoder="SegFormerDecoder")
        with pytest.raises(ValueError, match="SegFormerDecoder"):
            serve(folder)


class TestChoice:
    @pytest.mark.usefixtures("terratorch_installed")
    def test_terratorch_serves_where_it_is(self, whole: Path) -> None:
        assert unconverted.stands_in() is None
        # vLLM's own way, which here ends for want of what comes with TerraTorch.
        with pytest.raises(ImportError, match="timm"):
            serve(whole)

    def test_by_the_environment(self, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("VLLM_RASTER_TERRATORCH", "wrapper")
        register()  # breaks no other model's start
        monkeypatch.setattr("time.sleep", lambda seconds: None)  # vLLM tries again
        with pytest.raises(ValueError, match="wrapper, which needs TerraTorch, and it is not"):
            serve(whole)

    @pytest.mark.usefixtures("terratorch_installed")
    def test_by_the_environment_where_terratorch_is(
        self, whole: Path, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("VLLM_RASTER_TERRATORCH", "native")
        serve(whole, fail_on_environ_validation=True)
        assert "VLLM_RASTER_TERRATORCH=native asks for it" in log.text

    def test_by_a_word_that_means_nothing(
        self, whole: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("VLLM_RASTER_TERRATORCH", "ours")
        register()  # breaks no other model's start
        monkeypatch.setattr("time.sleep", lambda seconds: None)  # vLLM tries again
        with pytest.raises(ValueError, match="must be `native` or `wrapper`, got 'ours'"):
            serve(whole)

    @pytest.mark.usefixtures("terratorch_installed")
    def test_by_the_command_line(self, whole: Path, log: pytest.LogCaptureFixture) -> None:
        overrides = {"architectures": ["RasterForImageToImage"]}
        model = serve(whole, {"tile": {"overlap": 8}}, hf_overrides=overrides).model_config
        assert model.architecture == "RasterForImageToImage"
        assert model.hf_config.contract.tile.overlap == 8
        assert "--hf-overrides asks for it" in log.text

    @pytest.mark.usefixtures("terratorch_installed")
    def test_the_wrapper_keeps_its_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        wrapper = object()
        monkeypatch.setitem(ModelRegistry.models, "Terratorch", wrapper)
        register()
        assert ModelRegistry.models["Terratorch"] is wrapper

    @pytest.mark.usefixtures("terratorch_installed")
    def test_keeps_the_name_where_it_serves(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """TerraTorch's plugin registers a class too, before this package's or after it."""
        monkeypatch.setenv("VLLM_RASTER_TERRATORCH", "native")
        for name in ("Terratorch", "Another"):
            monkeypatch.setitem(ModelRegistry.models, name, None)
        for _ in range(2):
            register()
            for name in ("Terratorch", "Another"):
                ModelRegistry.register_model(name, "elsewhere:Wrapper")
            served = ModelRegistry.models["Terratorch"]
            assert (served.module_name, served.class_name) == (
                "vllm_raster_model.plain", "RasterForImageToImage"
            )  # fmt: skip
            assert ModelRegistry.models["Another"].module_name == "elsewhere"

    @pytest.mark.usefixtures("terratorch_installed", "wrapper")
    def test_by_two_flags_that_disagree(self, whole: Path) -> None:
        overrides = {"architectures": ["RasterForImageToImage"]}
        with pytest.raises(ValueError, match="Leave out one of the two"):
            serve(whole, model_impl="terratorch", hf_overrides=overrides)

    @pytest.mark.usefixtures("terratorch_installed")
    @pytest.mark.parametrize(
        ("said", "reason"),
        [("", "TerraTorch is installed"), ("wrapper", "TERRATORCH=wrapper asks for it")],
    )
    def test_the_wrapper_is_named_too(
        self,
        said: str,
        reason: str,
        monkeypatch: pytest.MonkeyPatch,
        log: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setenv("VLLM_RASTER_TERRATORCH", said)
        register()
        # Where TerraTorch is not, vLLM comes no further with its wrapper.
        log.set_level(logging.INFO)
        model = SimpleNamespace(hf_config=PreTrainedConfig())
        MODELS_CONFIG_MAP["Terratorch"].verify_and_update_model_config(model)
        assert "vLLM's wrapper around TerraTorch serves this folder" in log.text
        assert reason in log.text

    def test_their_plugin_is_refused(self, whole: Path) -> None:
        with pytest.raises(ValueError, match="Say --io-processor-plugin raster, or leave"):
            serve(whole, io_processor_plugin="terratorch_segmentation")

    def test_by_the_name_of_the_implementation(self, whole: Path) -> None:
        # The flag of older documentation.
        model = serve(whole, model_impl="terratorch", enable_mm_embeds=True).model_config
        assert model.supports_multimodal_inputs


@pytest.mark.usefixtures("one_process")
class TestWeights:
    def load(
        self, folder: Path, model_id: str | None = None
    ) -> tuple[RasterForImageToImage, VllmConfig]:
        config = serve(folder, AS_IT_IS)
        config.model_config.model = model_id or str(folder)
        with set_current_vllm_config(config):
            model = RasterForImageToImage(vllm_config=config).eval()
            get_model_loader(config.load_config).load_weights(model, config.model_config)
        make_ready(model, config)
        return model, config

    @torch.inference_mode()
    def test_give_what_terratorch_gives(self, folder: Path) -> None:
        case = TerraTorchCase.stored("floods_upernet")
        model, config = self.load(folder)
        processor = MULTIMODAL_REGISTRY.create_processor(config.model_config)
        items = [
            {
                "pixel_values": case.pixels[i, :, 0].numpy(),
                "temporal_coords": case.dates[i].numpy(),
                "location_coords": case.places[i].numpy(),
            }
            for i in range(len(case.pixels))
        ]
        fields = processor.info.get_hf_processor()(images=items)
        maps = torch.stack(model.predictor(**fields))
        torch.testing.assert_close(maps, case.expected, rtol=0, atol=1e-4)

    def test_are_read_where_vllm_downloaded_them(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def download(
            name: str, cache: object, patterns: list[str], *_: object, **__: object
        ) -> str:
            assert (name, patterns[0]) == ("acme/floods", "*.pt")
            return str(folder)

        monkeypatch.setattr(default_loader, "download_weights_from_hf", download)
        self.load(folder, "acme/floods")

    def test_one_is_missing(self, folder: Path) -> None:
        whole = torch.load(folder / "weights.pt", weights_only=True)
        name = next(one for one in whole["state_dict"] if "decoder" in one)
        del whole["state_dict"][name]
        torch.save(whole, folder / "weights.pt")
        with pytest.raises(ValueError, match=f"Missing: {name.removeprefix('model.')}"):
            self.load(folder)

    def test_there_are_two_files(self, folder: Path) -> None:
        (folder / "last.ckpt").write_bytes((folder / "weights.pt").read_bytes())
        with pytest.raises(ValueError, match=r"several files of weights.*last\.ckpt, weights\.pt"):
            self.load(folder)

    def test_there_are_none(self, folder: Path) -> None:
        (folder / "weights.pt").unlink()
        (folder / "case.safetensors").unlink()
        with pytest.raises(RuntimeError, match="Cannot find any model weights"):
            self.load(folder)

    def test_other_formats_are_left_to_vllm(self, folder: Path) -> None:
        assert serve(folder, AS_IT_IS, load_format="dummy").load_config.load_format == "dummy"


def test_dummy_inputs_without_a_tokenizer(whole: Path) -> None:
    config = serve(whole)
    processor = MULTIMODAL_REGISTRY.create_processor(config.model_config)
    inputs = processor.get_dummy_mm_inputs({"image": 1})
    (place,) = inputs["mm_placeholders"]["image"]
    assert place.length == config.model_config.hf_config.largest_grid.tokens
