"""Bare Prithvi encoders: features a patch, and what the masked autoencoder makes of an image."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from vllm_raster_model.checkpoints import ForeignCheckpoint, Options, read_checkpoint
from vllm_raster_model.checkpoints.writing import write_checkpoint
from vllm_raster_model.errors import ContractError, SourceError, WeightsError
from vllm_raster_model.networks import TorchLayers, build_network
from vllm_raster_model.pytorch import RasterForImageToImage

from .foreign import maps, random_weights, run_model, write

FILL = Options(nodata_fill=0.0)
MEAN, STD = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2.0, 2.0, 2.0, 2.0, 2.0, 4.0]


def published(**changes: Any) -> dict[str, Any]:
    """The config.json that Prithvi is published with, of a small one."""
    inner = {
        "img_size": 64,
        "num_frames": 2,
        "patch_size": [1, 16, 16],
        "in_chans": 6,
        "embed_dim": 32,
        "depth": 2,
        "num_heads": 2,
        "decoder_embed_dim": 16,
        "decoder_depth": 1,
        "decoder_num_heads": 2,
        "mlp_ratio": 4,
        "coords_encoding": ["time", "location"],
        "coords_scale_learn": True,
        "mask_ratio": 0.75,
        "norm_pix_loss": False,
        "bands": ["B02", "B03", "B04", "B05", "B06", "B07"],
        "mean": MEAN,
        "std": STD,
        "origin_url": "https://example.org",
        "paper_ids": "arXiv:0",
        **changes,
    }
    return {"architecture": "prithvi_eo_v2_300_tl", "num_features": 32, "pretrained_cfg": inner}


def save(folder: Path, file: str = "Prithvi_small.pt", *, version: int = 2, **changes: Any) -> Path:
    """Writes a small Prithvi as it is published; version 1 has no `encoder.` in front."""
    config = published(**changes)
    write(folder / "config.json", json.dumps(config))
    frames = config["pretrained_cfg"]["num_frames"]
    whole = _autoencoder(folder, Options(nodata_fill=0.0, task="reconstruction"))
    whole["encoder.pos_embed"] = torch.zeros(1, 1 + frames * 16, 32)
    whole["decoder.decoder_pos_embed"] = torch.zeros(1, 1 + frames * 16, 16)
    whole["decoder.mask_token"] = torch.zeros(1, 1, 16)
    if version == 1:
        whole = {name.partition(".")[2]: one for name, one in whole.items()}
    torch.save(whole, folder / file)
    (folder / "start.pt").unlink()
    return folder


def _autoencoder(folder: Path, options: Options) -> dict[str, torch.Tensor]:
    inner = json.loads((folder / "config.json").read_text())["pretrained_cfg"]
    bands = len(inner["bands"])
    start = {"encoder.patch_embed.proj.weight": torch.zeros(32, bands, 1, 16, 16)}
    start |= {f"encoder.blocks.{i}.norm1.bias": torch.zeros(32) for i in range(2)}
    torch.save(start, folder / "start.pt")
    config = read_checkpoint(folder / "start.pt", options).config
    return {name.removeprefix("model."): one for name, one in random_weights(config).items()}


def window(frames: int = 2) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return {"pixel_values": 10 * torch.rand((1, 6, frames, 64, 64), generator=generator)}


def encoder_of(checkpoint: ForeignCheckpoint) -> torch.nn.Module:
    """The encoder by itself, to compare with."""
    network = build_network(
        checkpoint.config.vision_config, checkpoint.config.contract, TorchLayers()
    ).eval()
    begin = "predictor.network."
    network.load_state_dict({n.removeprefix(begin): w for n, w in checkpoint.weights()})
    encoder: torch.nn.Module = network.encoder
    return encoder


def test_features_a_patch(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(save(tmp_path), FILL)
    contract = checkpoint.config.contract
    assert contract.input.bands == ("BLUE", "GREEN", "RED", "NIR_NARROW", "SWIR_1", "SWIR_2")
    assert (list(contract.input.mean), list(contract.input.std)) == (MEAN, STD)
    assert (contract.input.scale, contract.input.frames) == (1.0, 2)
    assert contract.input.coordinates == ("time", "location")
    assert (contract.output.kind, contract.output.channels) == ("values", 64)
    assert (contract.output.downscale, contract.tile.multiple_of) == (16, 16)
    assert checkpoint.config.contract.cell_width == 64
    case = window()
    found = maps(checkpoint, case)
    assert found.shape == (1, 64, 4, 4)
    mean, std = (torch.tensor(one).view(1, 6, 1, 1, 1) for one in (MEAN, STD))
    with torch.inference_mode():
        *_, tokens = encoder_of(checkpoint)((case["pixel_values"] - mean) / std, None, None)
    # Tokens behind the class token: dates, rows, columns; the dates go into the channels.
    patches = tokens[:, 1:].unflatten(1, (2, 4, 4))
    expected = patches.permute(0, 1, 4, 2, 3).flatten(1, 2)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_without_the_prefix_it_is_the_same(tmp_path: Path) -> None:
    newer = read_checkpoint(save(tmp_path / "2"), FILL)
    older = read_checkpoint(save(tmp_path / "1", version=1), FILL)
    assert dict(older.weights()).keys() == dict(newer.weights()).keys()
    torch.testing.assert_close(maps(older, window()), maps(newer, window()))


@pytest.mark.parametrize("version", [1, 2])
def test_reconstruction(version: int, tmp_path: Path) -> None:
    options = Options(nodata_fill=0.0, task="reconstruction")
    checkpoint = read_checkpoint(save(tmp_path / "source", version=version), options)
    output = checkpoint.config.contract.output
    assert (output.kind, output.channels) == ("image", 12)
    assert [one.name for one in output.bands][:7] == [
        *("BLUE 0", "GREEN 0", "RED 0", "NIR_NARROW 0", "SWIR_1 0", "SWIR_2 0"),
        "BLUE 1",
    ]
    found = maps(checkpoint, window())
    assert found.shape == (1, 12, 64, 64)
    write_checkpoint(checkpoint, tmp_path / "out")
    again = RasterForImageToImage.from_pretrained(tmp_path / "out").eval()
    torch.testing.assert_close(run_model(again, window()), found)


def test_one_date(tmp_path: Path) -> None:
    options = Options(nodata_fill=0.0, frames=1)
    checkpoint = read_checkpoint(save(tmp_path), options)
    assert maps(checkpoint, window(frames=1)).shape == (1, 32, 4, 4)
    assert checkpoint.said == [
        "The file was trained with 2 dates; converted for 1 (--frames 2 for 2): its code of "
        "positions is for 32 patches, 16 a date"
    ]


def test_what_is_left_out(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(save(tmp_path), FILL)
    names = [name for name, _ in checkpoint.weights()]
    assert all(one.startswith("predictor.network.encoder.") for one in names)
    notes = " ".join(checkpoint.notes)
    assert "the masked autoencoder's decoder" in notes
    assert "the code of positions, which is computed" in notes


def test_other_bands_than_the_published_ones_keep_their_names(tmp_path: Path) -> None:
    folder = save(tmp_path, bands=["VV", "VH"], mean=[0, 0], std=[1, 1])
    assert read_checkpoint(folder, FILL).config.contract.input.bands == ("VV", "VH")


def shaped(width: int, depth: int, patch: int, *, told: bool = False) -> dict[str, torch.Tensor]:
    """Names and shapes that tell an encoder; without numbers of their own, so as large as any."""
    zero = torch.zeros(1)
    weights = {"encoder.patch_embed.proj.weight": zero.expand(width, 6, 1, patch, patch)}
    weights |= {f"encoder.blocks.{i}.norm1.bias": zero.expand(width) for i in range(depth)}
    if told:
        weights["encoder.temporal_embed_enc.scale"] = zero
    return weights


@pytest.mark.parametrize(
    ("file", "shape", "told", "name", "heads", "frames", "mean"),
    [
        ("Prithvi_EO_V1_100M", (768, 12, 16), False, "prithvi_eo_v1_100", 12, 3, 775.0),
        ("Prithvi_EO_V2_tiny_TL", (192, 12, 16), True, "prithvi_eo_v2_tiny_tl", 3, 1, 1087.0),
        ("Prithvi_EO_V2_100M_TL", (768, 12, 16), True, "prithvi_eo_v2_100_tl", 12, 4, 1087.0),
        ("Prithvi_EO_V2_300M", (1024, 24, 16), False, "prithvi_eo_v2_300", 16, 4, 1087.0),
        ("Prithvi_EO_V2_300M_TL", (1024, 24, 16), True, "prithvi_eo_v2_300_tl", 16, 4, 1087.0),
        ("Prithvi_EO_V2_600M", (1280, 32, 14), False, "prithvi_eo_v2_600", 16, 4, 1087.0),
        ("Prithvi_EO_V2_600M_TL", (1280, 32, 14), True, "prithvi_eo_v2_600_tl", 16, 4, 1087.0),
        # By their shape alone.
        ("renamed", (1280, 32, 14), True, "prithvi_eo_v2_600_tl", 16, 4, 1087.0),
        ("renamed", (256, 4, 16), False, "prithvi_eo_tiny", 4, 1, 1087.0),
    ],
)
def test_published_files_by_themselves(
    file: str,
    shape: tuple[int, int, int],
    told: bool,
    name: str,
    heads: int,
    frames: int,
    mean: float,
    tmp_path: Path,
) -> None:
    torch.save(shaped(*shape, told=told), tmp_path / f"{file}.pt")
    checkpoint = read_checkpoint(tmp_path / f"{file}.pt", FILL)
    network, contract = checkpoint.facts.network, checkpoint.config.contract
    assert checkpoint.facts.source == f"Prithvi encoder {name}"
    assert (network["embed_dim"], network["depth"], network["patch_size"]) == shape
    assert network["num_heads"] == heads
    assert contract.input.frames == frames
    assert contract.input.mean[0] == mean
    assert contract.tile.size == 224
    assert bool(contract.input.coordinates) == told


def test_a_shape_of_two_encoders(tmp_path: Path) -> None:
    torch.save(shaped(768, 12, 16), tmp_path / "a.pt")
    assert read_checkpoint(tmp_path / "a.pt", FILL).facts.source.endswith("prithvi_eo_v2_100")
    older = {name.removeprefix("encoder."): one for name, one in shaped(768, 12, 16).items()}
    torch.save(older, tmp_path / "b.pt")
    assert read_checkpoint(tmp_path / "b.pt", FILL).facts.source.endswith("prithvi_eo_v1_100")


def test_a_shape_of_none(tmp_path: Path) -> None:
    torch.save(shaped(48, 3, 8), tmp_path / "a.pt")
    with pytest.raises(ContractError, match="give --backbone, one of prithvi_eo_tiny"):
        read_checkpoint(tmp_path / "a.pt", FILL)
    with pytest.raises(ContractError, match=r"has width, depth, patch and bands \(1024, 24"):
        read_checkpoint(tmp_path / "a.pt", Options(backbone="prithvi_eo_v2_300"))


def test_the_fill_has_to_be_given(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=r"give --nodata-fill$"):
        read_checkpoint(save(tmp_path))


def test_what_is_no_prithvi(tmp_path: Path) -> None:
    torch.save({"conv.weight": torch.zeros(3)}, tmp_path / "a.pt")
    with pytest.raises(WeightsError, match="no Prithvi's"):
        read_checkpoint(tmp_path / "a.pt", FILL)


def test_a_fine_tune_alone(tmp_path: Path) -> None:
    weights = {f"model.{name}": one for name, one in shaped(32, 2, 16).items()}
    torch.save(
        {"state_dict": weights | {"model.head.head.2.bias": torch.zeros(2)}}, tmp_path / "a.ckpt"
    )
    with pytest.raises(SourceError, match="nothing beside it says which: give --config"):
        read_checkpoint(tmp_path / "a.ckpt", FILL)
