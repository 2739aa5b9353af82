"""A stand-in for the reader of other people's checkpoints, until it is there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vllm_raster_model.config import RasterConfig
from vllm_raster_model.errors import ContractError


@dataclass(frozen=True)
class Options:
    bands: Any = None
    mean: Any = None
    std: Any = None
    scale: Any = None
    offset: Any = None
    nodata_fill: Any = None
    tile: Any = None
    classes: Any = None


def read_config(stored: Mapping[str, Any], options: Options | None = None) -> RasterConfig:
    options = options or Options()
    args = stored["pretrained_cfg"]["model"]["init_args"]["model_args"]
    if args["decoder"] != "UperNetDecoder":
        raise ContractError(f"decoder {args['decoder']!r} is not supported")
    missing = [n for n in ("mean", "std", "scale", "nodata_fill") if getattr(options, n) is None]
    if "data" in stored["pretrained_cfg"]:
        missing = []
    if missing:
        raise ContractError(
            "The source does not say " + ", ".join(f"--{one.replace('_', '-')}" for one in missing)
        )
    listed = lambda x: list(x) if isinstance(x, (list, tuple)) else [x]  # noqa: E731
    return RasterConfig(
        architectures=["RasterForImageToImage"],
        vision_config={
            "model_type": "prithvi_upernet",
            "embed_dim": args["backbone_embed_dim"],
            "depth": args["backbone_depth"],
            "num_heads": args["backbone_num_heads"],
            "image_size": args["backbone_img_size"],
            "out_indices": args["necks"][0]["indices"],
            "decoder_channels": args["decoder_channels"],
        },
        raster={
            "version": 1,
            "input": {
                "bands": options.bands or args["backbone_bands"],
                "mean": listed(options.mean if options.mean is not None else 0.0),
                "std": listed(options.std if options.std is not None else 1.0),
                "scale": options.scale if options.scale is not None else 0.0001,
                "nodata_fill": options.nodata_fill if options.nodata_fill is not None else 0.0,
                "coordinates": list(args.get("backbone_coords_encoding", [])),
            },
            "tile": {"size": args["backbone_img_size"], "multiple_of": 16, "minimum": 32},
            "output": {
                "kind": "classes",
                "classes": [{"name": f"class {i}"} for i in range(args["num_classes"])],
            },
        },
    )


_OURS = {"model.": "", "neck.2.": "neck.", "head.head.2.": "head."}


def read_weights(file: Path, config: RasterConfig) -> Iterator[tuple[str, torch.Tensor]]:
    for name, weight in torch.load(file, weights_only=True)["state_dict"].items():
        for theirs, ours in _OURS.items():
            name = name.replace(theirs, ours, 1)
        if name != "encoder.pos_embed":
            yield "predictor.network." + name, weight
