"""Prithvi's encoders: what each is by default, and what a configuration says otherwise.

The numbers are those of TerraTorch 1.2.13 (Apache-2.0,
https://github.com/terrastackai/terratorch), `terratorch/models/backbones/prithvi_vit.py`, and of
the config.json files that the networks are published with.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from vllm_raster_model.checkpoints.bands import BandList
from vllm_raster_model.checkpoints.settings import Settings, shown
from vllm_raster_model.errors import ContractError

PRETRAINING_BANDS = ("BLUE", "GREEN", "RED", "NIR_NARROW", "SWIR_1", "SWIR_2")
_PRETRAINING = BandList(6, PRETRAINING_BANDS)
_PUBLISHED_BANDS = ("B02", "B03", "B04", "B05", "B06", "B07")
"""The same six as the published config.json files name them."""
_V1_MEAN = (775.0, 1081.0, 1229.0, 2497.0, 2204.0, 1611.0)
_V1_STD = (1282.0, 1270.0, 1399.0, 1368.0, 1292.0, 1155.0)
_V2_MEAN = (1087.0, 1342.0, 1433.0, 2734.0, 1958.0, 1363.0)
_V2_STD = (2248.0, 2179.0, 2178.0, 1850.0, 1242.0, 1049.0)


@dataclass(frozen=True)
class Backbone:
    """An encoder, with the decoder that it was pretrained with.

    Attributes:
        embed_dim: Width of a token.
        depth: Number of blocks.
        num_heads: Attention heads.
        patch_size: Side of a patch in pixels.
        tubelet_size: Dates in a patch.
        image_size: Side in pixels of the windows that the code of positions is made for, or their
            height and width.
        mlp_ratio: Width of the perceptrons in units of `embed_dim`.
        frames: Dates in one input.
        coordinates: What else it may be told.
        bands: What it reads.
        out_indices: The blocks whose tokens it gives; None for all.
        padding: How windows are filled up to whole patches.
        mean: Of the pretraining data, in counts; one a band.
        std: Like `mean`.
        decoder_embed_dim: Width of the masked autoencoder's decoder.
        decoder_depth: Its number of blocks.
        decoder_num_heads: Its attention heads.
        name: As the table has it.
    """

    embed_dim: int = 768
    depth: int = 12
    num_heads: int = 12
    patch_size: int = 16
    tubelet_size: int = 1
    image_size: int | list[int] = 224
    mlp_ratio: float = 4.0
    frames: int = 4
    coordinates: tuple[str, ...] = ()
    bands: BandList = _PRETRAINING
    out_indices: tuple[int, ...] | None = None
    padding: str = "reflect"
    mean: tuple[float, ...] = _V2_MEAN
    std: tuple[float, ...] = _V2_STD
    decoder_embed_dim: int = 512
    decoder_depth: int = 8
    decoder_num_heads: int = 16
    name: str = ""


def _told(backbone: Backbone) -> Backbone:
    return replace(backbone, coordinates=("time", "location"))


_V2_300 = Backbone(embed_dim=1024, depth=24, num_heads=16)
_V2_600 = Backbone(embed_dim=1280, depth=32, num_heads=16, patch_size=14)
BACKBONES: Mapping[str, Backbone] = {
    "prithvi_eo_tiny": Backbone(
        embed_dim=256,
        depth=4,
        num_heads=4,
        frames=1,
        decoder_embed_dim=128,
        decoder_depth=4,
        decoder_num_heads=4,
    ),
    "prithvi_eo_v1_100": Backbone(frames=3, mean=_V1_MEAN, std=_V1_STD),
    "prithvi_eo_v2_tiny_tl": _told(Backbone(embed_dim=192, num_heads=3, frames=1)),
    "prithvi_eo_v2_100": Backbone(),
    "prithvi_eo_v2_100_tl": _told(Backbone()),
    "prithvi_eo_v2_300": _V2_300,
    "prithvi_eo_v2_300_tl": _told(_V2_300),
    "prithvi_eo_v2_600": _V2_600,
    "prithvi_eo_v2_600_tl": _told(_V2_600),
}
_OLD_NAMES = {
    "prithvi_vit_tiny": "prithvi_eo_tiny",
    "prithvi_vit_100": "prithvi_eo_v1_100",
    "prithvi_vit_300": "prithvi_eo_v2_300",
}

_UNUSED = {
    # What only training looks at.
    "pretrained",
    "ckpt_path",
    "checkpoint_path",
    "pretrained_cfg_overlay",
    "pretrained_bands",
    "drop_path",
    "drop_path_rate",
    "drop_rate",
    "mask_ratio",
    "norm_pix_loss",
    "coords_scale_learn",
    "vpt_n_tokens",
    "vpt_dropout",
    "mean",
    "std",
    "origin_url",
    "paper_ids",
    # What follows from the list of bands.
    "in_chans",
    "in_channels",
    # What was for other kinds of decoders.
    "out_channels",
    "output_stride",
    "features_only",
}
_READ = {
    "embed_dim",
    "depth",
    "num_heads",
    "patch_size",
    "tubelet_size",
    "img_size",
    "pretrain_img_size",
    "mlp_ratio",
    "num_frames",
    "coords_encoding",
    "bands",
    "model_bands",
    "out_indices",
    "padding",
    "decoder_embed_dim",
    "decoder_depth",
    "decoder_num_heads",
    "encoder_only",
    "vpt",
    "vit_adapter",
}


def backbone_name(name: str) -> str:
    """The name that a backbone goes by in the table; older names and registries' are known.

    Raises:
        ContractError: It is none of Prithvi's that can be served.
    """
    plain = name.strip().removeprefix("terratorch_").removeprefix("timm_").removesuffix("_mae")
    plain = _OLD_NAMES.get(plain, plain)
    if plain not in BACKBONES:
        raise ContractError(
            f"The backbone {shown(name)} is not supported; there are {', '.join(BACKBONES)}"
        )
    return plain


def read_backbone(name: str, arguments: Settings, frames: int | None = None) -> Backbone:
    """A backbone by its name and the arguments that change it.

    Args:
        name: As in the configuration.
        arguments: Without their prefix `backbone_`, which messages have.
        frames: Dates where the arguments say nothing; those of the pretraining if None.

    Raises:
        ContractError: There is no such backbone, or an argument is not supported.
    """
    arguments.refuse_unknown(_READ | _UNUSED, "not supported for a Prithvi encoder")
    for key, what in (("vpt", "prompt tuning"), ("vit_adapter", "the ViT adapter")):
        if arguments.flag(key, False):
            raise ContractError(f"{arguments.path(key)}: {what} is not supported")
    known = backbone_name(name)
    base = BACKBONES[known]
    tubelet_size, patch_size = _patch_size(arguments, base)
    return replace(
        base,
        embed_dim=arguments.whole("embed_dim") or base.embed_dim,
        depth=arguments.whole("depth") or base.depth,
        num_heads=arguments.whole("num_heads") or base.num_heads,
        mlp_ratio=arguments.number("mlp_ratio") or base.mlp_ratio,
        patch_size=patch_size,
        tubelet_size=tubelet_size,
        image_size=_image_size(arguments) or base.image_size,
        frames=arguments.whole("num_frames") or frames or base.frames,
        coordinates=_coordinates(arguments, base.coordinates),
        bands=_bands(arguments) or base.bands,
        out_indices=_out_indices(arguments),
        padding=arguments.text("padding") or base.padding,
        decoder_embed_dim=arguments.whole("decoder_embed_dim") or base.decoder_embed_dim,
        decoder_depth=arguments.whole("decoder_depth") or base.decoder_depth,
        decoder_num_heads=arguments.whole("decoder_num_heads") or base.decoder_num_heads,
        name=known,
    )


def published_bands(bands: BandList) -> BandList:
    """Bands with the names of the pretraining data in place of the published files' numbers."""
    return _PRETRAINING if bands.names == _PUBLISHED_BANDS else bands


def _bands(arguments: Settings) -> BandList | None:
    for key in ("bands", "model_bands"):
        if listed := arguments.items(key):
            return BandList.of(arguments.path(key), listed)
    return None


def _patch_size(arguments: Settings, base: Backbone) -> tuple[int, int]:
    """Dates in a patch and its side; they stand as one number or as dates, height and width."""
    dates = arguments.whole("tubelet_size") or base.tubelet_size
    value = arguments.get("patch_size")
    if not isinstance(value, (list, tuple)):
        return dates, arguments.whole("patch_size") or base.patch_size
    first, *sides = _sides(arguments, "patch_size", 3)
    if sides[0] != sides[1]:
        raise ContractError(f"{arguments.path('patch_size')} must be square, got {shown(value)}")
    return first, sides[0]


def _image_size(arguments: Settings) -> int | list[int] | None:
    # The older name is that of networks whose code of positions was made for another size.
    for key in ("img_size", "pretrain_img_size"):
        if isinstance(arguments.get(key), (list, tuple)):
            height, width = _sides(arguments, key, 2)
            return height if height == width else [height, width]
        if size := arguments.whole(key):
            return size
    return None


def _sides(arguments: Settings, key: str, count: int) -> list[int]:
    listed = arguments.items(key) or []
    if len(listed) != count:
        raise ContractError(f"{arguments.path(key)} must be {count} numbers, got {shown(listed)}")
    return [replace(arguments, values={key: one}).whole(key) or 1 for one in listed]


def _coordinates(arguments: Settings, default: tuple[str, ...]) -> tuple[str, ...]:
    listed = arguments.items("coords_encoding")
    if listed is None:
        return default
    if unknown := [one for one in listed if one not in ("time", "location")]:
        raise ContractError(
            f"{arguments.path('coords_encoding')} may have time and location, got {shown(unknown)}"
        )
    return tuple(one for one in ("time", "location") if one in listed)


def _out_indices(arguments: Settings) -> tuple[int, ...] | None:
    listed = arguments.items("out_indices")
    if listed is None:
        return None
    if not listed or not all(isinstance(i, int) and not isinstance(i, bool) for i in listed):
        raise ContractError(
            f"{arguments.path('out_indices')} must be whole numbers, got {shown(listed)}"
        )
    return tuple(listed)


def known_shape(width: int, depth: int, patch: int) -> dict[str, Any]:
    """The names of the backbones of a shape, with what they are."""
    return {
        name: one
        for name, one in BACKBONES.items()
        if (one.embed_dim, one.depth, one.patch_size) == (width, depth, patch)
    }
