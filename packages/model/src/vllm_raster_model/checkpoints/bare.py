"""Bare Prithvi encoders, as they are published: their features, or what they reconstruct."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from vllm_raster_model.checkpoints.backbones import (
    BACKBONES,
    Backbone,
    backbone_name,
    known_shape,
    published_bands,
    read_backbone,
)
from vllm_raster_model.checkpoints.facts import Facts
from vllm_raster_model.checkpoints.names import Named, backbone_names
from vllm_raster_model.checkpoints.options import Options
from vllm_raster_model.checkpoints.settings import Settings
from vllm_raster_model.checkpoints.sources import Source
from vllm_raster_model.errors import ContractError, WeightsError

_ANYTHING = ("time", "location")


def bare_facts(source: Source, options: Options, stored: Mapping[str, torch.Tensor]) -> Facts:
    """What is known of a bare encoder: by its config.json, its file's name, or its shape.

    Args:
        source: Where it is.
        options: May name it.
        stored: Its weights.

    Raises:
        ContractError: It is not known, or not what it is said to be.
        WeightsError: The weights are no Prithvi's.
    """
    named = backbone_names(stored, _ANYTHING, with_decoder=True)
    backbone, name = _backbone(source, options, stored, named)
    if options.frames is not None:
        backbone = replace(backbone, frames=options.frames)
    reconstructs = options.task == "reconstruction"
    bands = published_bands(backbone.bands)
    network = _autoencoder(backbone) if reconstructs else _features(backbone)
    channels = backbone.embed_dim * (backbone.frames // backbone.tubelet_size)
    if reconstructs:
        channels = bands.count * backbone.frames
    image_size = backbone.image_size
    return Facts(
        source=f"Prithvi encoder {name}",
        network=network,
        band_count=bands.count,
        frames=backbone.frames,
        kind="image" if reconstructs else "values",
        channels=channels,
        channel_names=_channel_names(bands.names, backbone.frames, channels, reconstructs),
        patch=backbone.patch_size,
        bands=bands.names,
        coordinates=backbone.coordinates,
        encodings=backbone.coordinates,
        encoder=name,
        mean=backbone.mean,
        std=backbone.std,
        # The published statistics are those of the stored counts, reflectance times 10,000.
        scale=1.0,
        tile=image_size if isinstance(image_size, int) else max(image_size),
        licence=source.licence,
    )


def _backbone(
    source: Source, options: Options, stored: Mapping[str, torch.Tensor], named: Named
) -> tuple[Backbone, str]:
    width, depth, patch, bands = _shape(stored, named)
    told = options.backbone or source.config.get("architecture") or source.config.get("model_name")
    arguments = Settings.of("pretrained_cfg", source.config.get("pretrained_cfg"))
    if told is None and (by_file := _name_of_file(source)) is not None:
        told = by_file
    if told is None:
        told = _only_of_shape(stored, named, width, depth, patch)
    name = backbone_name(str(told))
    backbone = read_backbone(name, arguments)
    backbone = replace(
        backbone,
        mean=_statistics(arguments, "mean") or backbone.mean,
        std=_statistics(arguments, "std") or backbone.std,
    )
    said = (backbone.embed_dim, backbone.depth, backbone.patch_size, backbone.bands.count)
    if said != (width, depth, patch, bands):
        raise ContractError(
            f"{name} has width, depth, patch and bands {said}, but the weights are those of "
            f"{(width, depth, patch, bands)}"
        )
    return backbone, name


def _shape(stored: Mapping[str, torch.Tensor], named: Named) -> tuple[int, int, int, int]:
    """Width, depth, patch and bands of an encoder, from its weights."""
    key = named.weights.get("encoder.patch_embed.proj.weight")
    if key is None or stored[key].ndim != 5:
        raise WeightsError("The weights are no Prithvi's: there is no patch_embed.proj.weight")
    width, bands, _, _, patch = stored[key].shape
    blocks = {n.split(".")[2] for n in named.weights if n.startswith("encoder.blocks.")}
    return width, len(blocks), patch, bands


def _name_of_file(source: Source) -> str | None:
    """The name that a published file says: Prithvi_EO_V2_300M_TL is prithvi_eo_v2_300_tl."""
    plain = source.weights.stem.lower().replace("-", "_").replace("00m", "00")
    plain = plain.replace("v1.0_", "v1_").replace("v2.0_", "v2_")
    plain = "prithvi_eo_v1_100" if plain == "prithvi_100" else plain
    return plain if plain in BACKBONES else None


def _only_of_shape(
    stored: Mapping[str, torch.Tensor], named: Named, width: int, depth: int, patch: int
) -> str:
    told = "encoder.temporal_embed_enc.scale" in named.weights
    newer = any(one.startswith("encoder.") for one in stored)
    known = known_shape(width, depth, patch)
    found = [
        name
        for name, one in known.items()
        if bool(one.coordinates) == told and (name != "prithvi_eo_v1_100") == newer
    ]
    if len(found) != 1:
        raise ContractError(
            f"Which encoder of width {width}, {depth} blocks and patch {patch} it is, neither a "
            "config.json nor the file's name says: give --backbone, one of "
            f"{', '.join(BACKBONES)}"
        )
    return found[0]


def _statistics(arguments: Settings, key: str) -> tuple[float, ...] | None:
    listed = arguments.numbers(key)
    if listed is None:
        return None
    if any(isinstance(one, list) for one in listed):
        raise ContractError(f"{arguments.where}.{key} must be one number a band")
    return tuple(listed)  # type: ignore[arg-type]


def _common(backbone: Backbone) -> dict[str, Any]:
    return {
        "embed_dim": backbone.embed_dim,
        "depth": backbone.depth,
        "num_heads": backbone.num_heads,
        "patch_size": backbone.patch_size,
        "tubelet_size": backbone.tubelet_size,
        "image_size": backbone.image_size,
        "mlp_ratio": backbone.mlp_ratio,
    }


def _features(backbone: Backbone) -> dict[str, Any]:
    """The tokens of the last block, laid out as a map of one value a patch."""
    steps = backbone.frames // backbone.tubelet_size
    return {
        "model_type": "prithvi_dense",
        **_common(backbone),
        "necks": [
            {"name": "SelectIndices", "indices": [-1]},
            {"name": "ReshapeTokensToImage", "effective_time_dim": steps},
        ],
        "decoder": {"name": "IdentityDecoder"},
        "head": None,
        "rescale": False,
        # An encoder by itself pads nothing: windows are whole patches.
        "padding": None,
    }


def _autoencoder(backbone: Backbone) -> dict[str, Any]:
    return {
        "model_type": "prithvi_mae",
        **_common(backbone),
        "decoder_embed_dim": backbone.decoder_embed_dim,
        "decoder_depth": backbone.decoder_depth,
        "decoder_num_heads": backbone.decoder_num_heads,
    }


def _channel_names(
    bands: tuple[str, ...] | None, frames: int, channels: int, reconstructs: bool
) -> tuple[str, ...] | None:
    if not reconstructs:
        return tuple(f"feature {i}" for i in range(channels))
    if bands is None:
        return None
    if frames == 1:
        return bands
    return tuple(f"{band} {frame}" for frame in range(frames) for band in bands)
