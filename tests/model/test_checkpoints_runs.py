"""Training runs and older layouts: where files are, what arguments mean, how weights are named."""

from pathlib import Path
from typing import Any

import pytest
import torch

from vllm_raster_model.checkpoints import Options, read_checkpoint
from vllm_raster_model.errors import ContractError, RasterModelError, SourceError, WeightsError

from .foreign import (
    BANDS,
    finish,
    floods_data,
    make_run,
    maps,
    model_arguments,
    random_weights,
    run_config,
    save_lightning,
    served_config,
    write,
    write_run,
)

TILE = Options(tile=32)


def window(bands: int = 6, frames: int = 1, size: int = 32) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (1, bands, frames, size, size)
    return {"pixel_values": torch.randint(0, 4000, shape, generator=generator)}


def rename(path: Path, change: Any) -> None:
    stored = torch.load(path, weights_only=True)["state_dict"]
    save_lightning(path, change(stored))


def test_a_run(tmp_path: Path) -> None:
    checkpoint = make_run(tmp_path, class_names=["dry", "water", "cloud"])
    contract = checkpoint.config.contract
    assert checkpoint.facts.source == "TerraTorch training run"
    assert contract.input.bands == tuple(BANDS)
    assert contract.input.scale == 0.0001
    assert contract.tile.size == 32
    assert [one.name for one in contract.output.classes] == ["dry", "water", "cloud"]
    found = maps(checkpoint, window())
    assert found.shape == (1, 3, 32, 32)


@pytest.mark.parametrize("named", ["folder", "ckpt", "yaml"])
def test_each_way_to_name_a_run(named: str, tmp_path: Path) -> None:
    expected = maps(make_run(tmp_path), window())
    place = {
        "folder": tmp_path,
        "ckpt": tmp_path / "epoch=0.ckpt",
        "yaml": tmp_path / "config.yaml",
    }
    torch.testing.assert_close(maps(read_checkpoint(place[named]), window()), expected)


def test_lightnings_own_folders(tmp_path: Path) -> None:
    # version_0/config.yaml, version_0/hparams.yaml, version_0/checkpoints/…
    write_run(tmp_path, run_config())
    write(tmp_path / "hparams.yaml", "model_args: {}\n")
    checkpoint = finish(tmp_path, "checkpoints/best.ckpt")
    assert checkpoint.source.weights == tmp_path / "checkpoints" / "best.ckpt"
    beside = read_checkpoint(tmp_path / "checkpoints" / "best.ckpt")
    assert beside.source.config_path == tmp_path / "config.yaml"


def test_anchors_and_numbers_as_lightning_reads_them(tmp_path: Path) -> None:
    config = run_config()
    del config["data"]["init_args"]["constant_scale"], config["data"]["init_args"]["bands"]
    text = write_run(tmp_path, config).read_text()
    text = "bands: &bands [BLUE, GREEN, RED, NIR_NARROW, SWIR_1, SWIR_2]\n" + text.replace(
        "    no_data_replace: 0.0\n",
        "    no_data_replace: 0.0\n    constant_scale: 1e-4\n    bands: *bands\n",
    )
    write(tmp_path / "config.yaml", text)
    contract = finish(tmp_path, "a.ckpt").config.contract
    assert contract.input.scale == 0.0001
    assert contract.input.bands == tuple(BANDS)


def test_several_checkpoints(tmp_path: Path) -> None:
    checkpoint = make_run(tmp_path)
    save_lightning(tmp_path / "last.ckpt", random_weights(checkpoint.config, seed=1))
    with pytest.raises(SourceError, match=r"several files of weights, choose by --weights: .*last"):
        read_checkpoint(tmp_path)
    chosen = read_checkpoint(tmp_path, Options(weights=tmp_path / "last.ckpt"))
    assert not torch.equal(maps(chosen, window()), maps(checkpoint, window()))


def test_several_configurations(tmp_path: Path) -> None:
    checkpoint = make_run(tmp_path)
    (tmp_path / "config.yaml").rename(tmp_path / "a.yaml")
    write(tmp_path / "b.yaml", (tmp_path / "a.yaml").read_text())
    with pytest.raises(SourceError, match=r"several configurations, choose by --config: a.yaml"):
        read_checkpoint(tmp_path)
    chosen = read_checkpoint(tmp_path, Options(config=tmp_path / "b.yaml"))
    assert chosen.config.contract == checkpoint.config.contract


def old_names(stored: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {one.replace("encoder.", "encoder._timm_module."): w for one, w in stored.items()}


def compiled(stored: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {one.replace("model.", "model._orig_mod.", 1): w for one, w in stored.items()}


def in_parallel(stored: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"module.{one}": w for one, w in stored.items()}


def bare(stored: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {one.removeprefix("model."): w for one, w in stored.items()}


@pytest.mark.parametrize("change", [old_names, compiled, in_parallel, bare])
def test_other_names_of_weights(change: Any, tmp_path: Path) -> None:
    expected = maps(make_run(tmp_path), window())
    rename(tmp_path / "epoch=0.ckpt", change)
    torch.testing.assert_close(maps(read_checkpoint(tmp_path), window()), expected)


def test_a_bare_state_dict_and_safetensors(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    expected = maps(make_run(tmp_path), window())
    stored = torch.load(tmp_path / "epoch=0.ckpt", weights_only=True)["state_dict"]
    (tmp_path / "epoch=0.ckpt").unlink()
    torch.save(stored, tmp_path / "weights.pth")
    torch.testing.assert_close(maps(read_checkpoint(tmp_path), window()), expected)
    (tmp_path / "weights.pth").unlink()
    save_file(stored, tmp_path / "weights.safetensors")
    torch.testing.assert_close(maps(read_checkpoint(tmp_path), window()), expected)


def test_what_is_beside_the_network_is_left_out_by_name(tmp_path: Path) -> None:
    checkpoint = make_run(tmp_path)
    expected = maps(checkpoint, window())
    beside = {
        "criterion.weight": torch.ones(3),
        "model.aux_heads.aux_head.0.convs.0.0.weight": torch.ones(3, 3),
        "model.aux_heads.aux_head.1.head.2.bias": torch.ones(3),
        "val_metrics.Accuracy.tp": torch.ones(3),
        "model.encoder.pos_embed": torch.zeros(1, 5, 32),
    }
    rename(tmp_path / "epoch=0.ckpt", lambda stored: {**stored, **beside})
    found = read_checkpoint(tmp_path)
    torch.testing.assert_close(maps(found, window()), expected)
    notes = "\n".join(found.notes)
    assert "Left out 2: the auxiliary head 'aux_head', which only training uses" in notes
    assert "Left out 2: losses and metrics of the training" in notes
    assert "Left out 1: the code of positions, which is computed" in notes


def test_a_stored_code_of_positions_of_another_size_is_told(tmp_path: Path) -> None:
    make_run(tmp_path)
    more = {"model.encoder.pos_embed": torch.zeros(1, 197, 32)}
    rename(tmp_path / "epoch=0.ckpt", lambda stored: {**stored, **more})
    found = read_checkpoint(tmp_path)
    list(found.weights())
    assert any("is for 196 patches" in one and "makes it for 4" in one for one in found.notes)


def test_pyramids_in_the_decoder(tmp_path: Path) -> None:
    necks = [{"name": "SelectIndices", "indices": [0, 0, 1, 1]}, {"name": "ReshapeTokensToImage"}]
    arguments = model_arguments(necks=necks, decoder_scale_modules=True)
    checkpoint = make_run(tmp_path, arguments=arguments)
    names = [name for name, _ in checkpoint.weights()]
    assert "predictor.network.decoder.fpn1.0.weight" in names
    assert maps(checkpoint, window()).shape == (1, 3, 32, 32)


OLD_ARGUMENTS: dict[str, Any] = {
    "backbone": "prithvi_vit_100",
    "pretrained": True,
    "in_channels": 6,
    "bands": BANDS,
    "num_frames": 3,
    "num_classes": 3,
    "decoder": "FCNDecoder",
    "decoder_channels": 16,
    "decoder_num_convs": 2,
    "head_dropout": 0.1,
    "head_channel_list": [8],
    "backbone_embed_dim": 32,
    "backbone_depth": 2,
    "backbone_num_heads": 2,
    "backbone_pretrain_img_size": 32,
    "backbone_mlp_ratio": 4,
    "backbone_patch_size": 16,
    "backbone_in_chans": 6,
}


def test_the_old_factorys_arguments(tmp_path: Path) -> None:
    checkpoint = make_run(tmp_path, arguments=OLD_ARGUMENTS, factory="PrithviModelFactory")
    assert checkpoint.config.contract.input.frames == 3
    network = checkpoint.facts.network
    assert (network["embed_dim"], network["image_size"], network["necks"]) == (32, 32, [])
    # All dates of a place stand in the channels of its map.
    weights = dict(checkpoint.weights())
    assert weights["predictor.network.decoder.convs.0.0.weight"].shape[0] == 3 * 32
    assert maps(checkpoint, window(frames=3)).shape == (1, 3, 32, 32)


def test_the_same_network_by_either_factory(tmp_path: Path) -> None:
    old = make_run(tmp_path / "old", arguments=OLD_ARGUMENTS, factory="PrithviModelFactory")
    renamed = {"bands": "backbone_bands", "num_frames": "backbone_num_frames"}
    new = {renamed.get(key, key): value for key, value in OLD_ARGUMENTS.items()}
    del new["in_channels"], new["pretrained"]
    new["necks"] = [{"name": "ReshapeTokensToImage", "effective_time_dim": 3}]
    newer = make_run(tmp_path / "new", arguments=new)
    torch.testing.assert_close(maps(old, window(frames=3)), maps(newer, window(frames=3)))


def test_the_oldest_layout_for_vllm(tmp_path: Path) -> None:
    task = {"task": "SemanticSegmentationTask", "model_factory": "EncoderDecoderFactory"}
    whole = {"task_args": {**task, "loss": "ce"}, "model_args": model_arguments()}
    served_config(tmp_path, {**whole, "data": floods_data()}, [6, 32, 32])
    checkpoint = finish(tmp_path, "weights.pt")
    assert checkpoint.config.contract.output.channels == 3


def test_unscaled_output(tmp_path: Path) -> None:
    arguments = model_arguments(decoder="IdentityDecoder", decoder_channels=None, rescale=False)
    arguments["necks"] = arguments["necks"][:2]
    checkpoint = make_run(tmp_path, arguments=arguments)
    output = checkpoint.config.contract.output
    assert (output.upscale, output.downscale) == (1, 16)
    assert maps(checkpoint, window(size=64)).shape == (1, 3, 4, 4)


@pytest.mark.parametrize("bands", [["RED", "NIR_NARROW"], ["SWIR_2", "BLUE", "GREEN"]])
def test_some_of_the_bands_in_any_order(bands: list[str], tmp_path: Path) -> None:
    arguments = model_arguments(backbone_bands=bands)
    checkpoint = make_run(tmp_path, arguments=arguments, data=floods_data(bands=bands))
    assert checkpoint.config.contract.input.bands == tuple(bands)
    found = maps(checkpoint, window(bands=len(bands)))
    assert found.isfinite().all()


def test_weights_for_other_bands(tmp_path: Path) -> None:
    make_run(tmp_path)
    arguments = model_arguments(backbone_bands=BANDS[:4])
    write_run(tmp_path, run_config(arguments, floods_data(bands=BANDS[:4])))
    with pytest.raises(WeightsError, match="are for 6 bands, the configuration names 4"):
        list(read_checkpoint(tmp_path).weights())


def test_missing_unknown_and_misshapen_weights(tmp_path: Path) -> None:
    make_run(tmp_path)
    path = tmp_path / "epoch=0.ckpt"

    def spoilt(stored: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        kept = {one: w for one, w in stored.items() if not one.startswith("model.head.")}
        return {**kept, "model.encoder.extra": torch.ones(1)}

    rename(path, spoilt)
    with pytest.raises(WeightsError, match=r"Missing: head\.head.*Unknown: encoder\.extra$"):
        list(read_checkpoint(tmp_path).weights())


def test_a_weight_of_another_shape(tmp_path: Path) -> None:
    make_run(tmp_path)
    wrong = {"model.encoder.norm.bias": torch.ones(7)}
    rename(tmp_path / "epoch=0.ckpt", lambda stored: {**stored, **wrong})
    with pytest.raises(WeightsError, match=r"encoder\.norm\.bias \(7,\) instead of \(32,\)"):
        list(read_checkpoint(tmp_path).weights())


def test_half_precision_becomes_float32(tmp_path: Path) -> None:
    make_run(tmp_path)
    rename(
        tmp_path / "epoch=0.ckpt",
        lambda stored: {n: w.half() if w.is_floating_point() else w for n, w in stored.items()},
    )
    types = {one.dtype for _, one in read_checkpoint(tmp_path).weights()}
    assert types == {torch.float32, torch.int64}


@pytest.mark.parametrize(
    ("tiling", "size", "overlap"),
    [
        ({"h_crop": 64, "w_crop": 64, "h_stride": 48, "w_stride": 48, "delta": 4}, 64, 16),
        ({"crop": 96, "stride": 80, "average_patches": True}, 96, 16),
        ({"h_crop": 64, "w_crop": 64}, 64, 8),
    ],
)
def test_windows_of_tiled_inference(
    tiling: dict[str, Any], size: int, overlap: int, tmp_path: Path
) -> None:
    tile = make_run(tmp_path, tiled_inference_parameters=tiling).config.contract.tile
    assert (tile.size, tile.overlap) == (size, overlap)


@pytest.mark.parametrize(
    ("use_metadata", "told"), [(True, ("time", "location")), (False, ()), (None, ())]
)
def test_coordinates_of_a_run(
    use_metadata: bool | None, told: tuple[str, ...], tmp_path: Path
) -> None:
    arguments = model_arguments(backbone="prithvi_eo_v2_300_tl")
    data = floods_data(use_metadata=use_metadata)
    checkpoint = make_run(tmp_path, arguments=arguments, data=data)
    assert checkpoint.config.contract.input.coordinates == told


@pytest.mark.parametrize("asked", [("time", "location"), ("location",), ()])
def test_coordinates_that_were_asked_for_are_not_said_to_be_left_out(
    asked: tuple[str, ...], tmp_path: Path
) -> None:
    arguments = model_arguments(backbone="prithvi_eo_v2_300_tl")
    by_default = make_run(tmp_path / "1", arguments=arguments)
    (note,) = by_default.facts.notes
    assert "has encodings of time and location, but was not told in training" in note
    assert "--coordinates time,location keeps them" in note
    told = make_run(tmp_path / "2", Options(coordinates=asked), arguments=arguments)
    assert told.config.contract.input.coordinates == asked
    assert told.facts.notes == []


def test_coordinates_that_the_encoder_has_no_encoding_of(tmp_path: Path) -> None:
    options = Options(coordinates=("time",))
    with pytest.raises(ContractError, match="prithvi_eo_v1_100 has no encoding of time"):
        make_run(tmp_path, options, arguments=model_arguments(backbone="prithvi_eo_v1_100"))


def test_a_tile_that_is_made_to_fit_is_told(tmp_path: Path) -> None:
    checkpoint = make_run(tmp_path, Options(tile=50))
    assert checkpoint.config.contract.tile.size == 64
    assert checkpoint.facts.notes == [
        "The tile of 50 pixels became 64: whole cells of 16, 16 or more"
    ]


def test_a_segmentation_has_no_unit(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="--unit is for a regression's values"):
        make_run(tmp_path, Options(unit="m"))


def test_names_of_a_regressions_values(tmp_path: Path) -> None:
    arguments = model_arguments(num_classes=None)
    options = Options(classes=("height",), unit="m")
    checkpoint = make_run(tmp_path, options, arguments=arguments, task="PixelwiseRegressionTask")
    (band,) = checkpoint.config.contract.output.bands
    assert (band.name, band.unit) == ("height", "m")


def test_regression(tmp_path: Path) -> None:
    arguments = model_arguments(num_classes=None, head_channel_list=[8])
    options = Options(unit="Mg/ha")
    checkpoint = make_run(tmp_path, options, arguments=arguments, task="PixelwiseRegressionTask")
    (band,) = checkpoint.config.contract.output.bands
    assert (band.name, band.unit) == ("value", "Mg/ha")
    assert maps(checkpoint, window()).shape == (1, 1, 32, 32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "ClassificationTask"}, "The task 'terratorch.tasks.ClassificationTask' is not"),
        ({"factory": "SMPModelFactory"}, "The model factory 'SMPModelFactory' is not supported"),
        ({"unheard_of": 1}, "has unheard_of: not known of a SemanticSegmentationTask"),
        ({"class_names": ["one"]}, "class_names has 1 names for 3 classes"),
        ({"tiled_inference_parameters": {"h_crup": 1}}, "has h_crup: not known of tiled"),
    ],
)
def test_refused_tasks(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=message):
        make_run(tmp_path, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backbone": "prithvi_swin_B"}, "backbone 'prithvi_swin_B' is not supported; there are"),
        ({"backbone": "terramind_v1_base"}, "backbone 'terramind_v1_base' is not supported"),
        ({"backbone": None}, "must name a backbone and a decoder"),
        ({"decoder": "ASegFormerDecoder"}, "ASegFormerDecoder is not supported"),
        ({"necks": [{"name": "AggregateTokens"}]}, "AggregateTokens is not supported"),
        ({"necks": [{"indices": [1]}]}, "must each have a name"),
        ({"backbone_vpt": True, "backbone_vpt_n_tokens": 4}, "prompt tuning is not supported"),
        ({"backbone_vit_adapter": True}, "the ViT adapter is not supported"),
        ({"backbone_mystery": 1}, "model_args has backbone_mystery: not supported"),
        ({"mystery": 1}, "model_args has mystery: not supported"),
        ({"decoder_mystery": 1}, r"UperNetDecoder does not take \['mystery'\]"),
        ({"head_mystery": 1}, r"SegmentationHead does not take \['mystery'\]"),
        ({"peft_config": {"method": "LORA"}}, "model_args.peft_config: adapters are not"),
        ({"backbone_peft_config": {"method": "LORA"}}, "backbone_peft_config: adapters are not"),
        ({"num_classes": None}, "must say num_classes"),
        ({"num_classes": "two"}, "num_classes must be a whole number from 1 to 65536, got 'two'"),
        ({"backbone_depth": 10**9}, "backbone_depth is out of all range: 1000000000"),
        ({"head_learned_upscale_layers": 1e99}, r"upscale_layers is out of all range: 1e\+99"),
        ({"backbone_depth": 0}, "model_args.backbone_depth must be a whole number from 1"),
        ({"backbone_embed_dim": 36}, "embed_dim must be a multiple of 16"),
        ({"backbone_coords_encoding": ["space"]}, "coords_encoding may have time and location"),
        ({"backbone_bands": ["RED", "RED"]}, "names a band twice"),
        ({"backbone_bands": [{"a": 1}]}, "must name bands"),
        ({"backbone_patch_size": [1, 16, 8]}, "patch_size must be square"),
        ({"rescale": "yes"}, "rescale must be true or false, got 'yes'"),
    ],
)
def test_refused_models(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(RasterModelError, match=message):
        make_run(tmp_path, TILE, arguments=model_arguments(**changes), data=floods_data(bands=None))


@pytest.mark.parametrize("shape", [[6, 64, 96], [6, 1, 64, 96], [1, 6, 64, 96]])
def test_shape_of_the_input_is_the_tile(shape: list[int], tmp_path: Path) -> None:
    served_config(tmp_path, run_config(), shape)
    assert finish(tmp_path, "weights.pt").config.contract.tile.size == 96


def test_shape_of_the_input_against_the_model(tmp_path: Path) -> None:
    served_config(tmp_path, run_config(), [3, 32, 32])
    with pytest.raises(ContractError, match=r"shape must be \[6, 1, height, width\]"):
        finish(tmp_path, "weights.pt")


def test_options_for_bare_encoders_are_refused(tmp_path: Path) -> None:
    make_run(tmp_path)
    with pytest.raises(ContractError, match="--task is for bare encoders"):
        read_checkpoint(tmp_path, Options(task="features"))
