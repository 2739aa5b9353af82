"""A Prithvi encoder with any neck, decoder and head for maps, as TerraTorch puts them together.

Arithmetic, arguments and parameter names are those of TerraTorch's `EncoderDecoderFactory`.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedConfig

from vllm_raster_model.contract import RasterContract
from vllm_raster_model.errors import ContractError
from vllm_raster_model.networks.decoders import DECODERS
from vllm_raster_model.networks.geometry import Geometry
from vllm_raster_model.networks.heads import HEADS
from vllm_raster_model.networks.layers import Layers
from vllm_raster_model.networks.necks import SelectIndices, build_necks
from vllm_raster_model.networks.padding import PADDINGS, Padding
from vllm_raster_model.networks.parts import Feature, build_part
from vllm_raster_model.networks.prithvi import PrithviEncoder, check_width, steps_of


class PrithviDenseConfig(PreTrainedConfig):
    """The shape of the network.

    Bands, frames, coordinates and output channels are the `raster` block's to say. Necks, decoder
    and head are described by `{"name": …}` and the arguments that TerraTorch's class of that name
    takes.

    Attributes:
        embed_dim: Width of a token; a multiple of 16 and of `num_heads`.
        depth: Number of transformer blocks.
        num_heads: Attention heads.
        patch_size: Side of a patch in pixels.
        tubelet_size: Dates in a patch.
        image_size: Side, in pixels, of the windows that the position code was made for, or their
            height and width; the code is stretched to windows of other sizes.
        mlp_ratio: Width of the perceptrons in units of `embed_dim`.
        out_indices: The blocks whose tokens the necks are given; None for all.
        necks: What is between encoder and decoder; where there is nothing, tokens become maps.
        decoder: What makes one map of them.
        head: What makes channels of that map; None for the map itself.
        rescale: Whether the output is stretched to the window's size.
        padding: How a window is padded to an even number of patches, half on each side: a mode of
            `torch.nn.functional.pad`; None for not at all, then windows are whole patches.
    """

    model_type = "prithvi_dense"

    def __init__(
        self,
        embed_dim: int = 1024,
        depth: int = 24,
        num_heads: int = 16,
        patch_size: int = 16,
        tubelet_size: int = 1,
        image_size: int | Sequence[int] = 224,
        mlp_ratio: float = 4.0,
        out_indices: Sequence[int] | None = None,
        necks: Sequence[dict[str, Any]] = (
            {"name": "SelectIndices", "indices": [5, 11, 17, 23]},
            {"name": "ReshapeTokensToImage"},
            {"name": "LearnedInterpolateToPyramidal"},
        ),
        decoder: dict[str, Any] | None = None,
        head: dict[str, Any] | None = None,
        rescale: bool = True,
        padding: str | None = "reflect",
        **kwargs: Any,
    ) -> None:
        self.embed_dim = embed_dim
        self.depth = depth
        self.num_heads = num_heads
        self.patch_size = patch_size
        self.tubelet_size = tubelet_size
        self.image_size = image_size if isinstance(image_size, int) else list(image_size)
        self.mlp_ratio = mlp_ratio
        self.out_indices = None if out_indices is None else list(out_indices)
        self.necks = list(necks)
        self.decoder = {"name": "UperNetDecoder"} if decoder is None else decoder
        self.head = head
        self.rescale = rescale
        self.padding = padding
        super().__init__(**kwargs)
        self._check()

    def _check(self) -> None:
        check_width("embed_dim", self.embed_dim, "num_heads", self.num_heads)
        indices = self.out_indices
        if indices is not None and not all(-self.depth <= i < self.depth for i in indices):
            raise ContractError(
                f"vision_config.out_indices must name some of {self.depth} blocks, got {indices}"
            )
        if self.padding not in (None, *PADDINGS):
            raise ContractError(
                f"vision_config.padding must be null or one of {list(PADDINGS)}, "
                f"got {self.padding!r}"
            )


class _Parts:
    """Necks, decoder and head, and what is known of the features between them."""

    def __init__(
        self, config: PrithviDenseConfig, frames: int, channels: int, tile: int | None
    ) -> None:
        steps = steps_of(frames, config.tubelet_size)
        count = config.depth if config.out_indices is None else len(config.out_indices)
        tokens = [Feature(config.embed_dim, None)] * count
        rows = None
        if tile is not None:
            rows = _padding(config).padded(tile) // config.patch_size
        self.necks, stages = build_necks(config.necks, tokens, steps, rows)
        self.decoder = build_part("decoder", DECODERS, config.decoder, stages[-1])
        self.head = None
        self.output: Feature = self.decoder.output
        if config.head is not None:
            self.head = build_part("head", HEADS, config.head, self.output, channels)
            self.output = self.head.output
        between = [one for stage in stages[1:] for one in stage] + self.decoder.features
        self.scales = [one.scale for one in between if one.scale is not None]

    def geometry(self, config: PrithviDenseConfig) -> Geometry:
        """See `Geometry`."""
        return Geometry.of(
            self.output,
            self.scales,
            config.patch_size,
            rescale=config.rescale,
            padded=config.padding is not None,
        )


class PrithviDense(nn.Module):
    """Windows of bands and dates in, a score for each channel and output pixel out."""

    config_class = PrithviDenseConfig
    thread_safe = True
    short_parts = ("encoder.blocks", "decoder")
    """Nearly all of the work. What is first and last computed, where rounding shows most, and the
    necks, which pass it on to every pixel, stay in float32, and so does the sum of the blocks."""

    def __init__(
        self,
        config: PrithviDenseConfig,
        contract: RasterContract,
        layers: Layers,
        prefix: str = "network",
        channels: int | None = None,
    ) -> None:
        super().__init__()
        wanted = channels or contract.output.channels
        self.padding = _padding(config)
        parts = _Parts(config, contract.input.frames, wanted, contract.tile.size)
        self.geometry = parts.geometry(config)
        if parts.output.channels != wanted:
            raise ContractError(
                f"Without a head the network gives the decoder's {parts.output.channels} channels, "
                f"but {wanted} are wanted"
            )
        self.geometry.check(contract)
        self.patch_size = config.patch_size
        self.out_indices = _numbers(config.out_indices, config.depth)
        self.rescale = config.rescale
        self.encoder = PrithviEncoder(
            bands=len(contract.input.bands),
            width=config.embed_dim,
            depth=config.depth,
            heads=config.num_heads,
            patch=config.patch_size,
            tubelet=config.tubelet_size,
            trained_size=config.image_size,
            mlp_ratio=config.mlp_ratio,
            coordinates=contract.input.coordinates,
            layers=layers,
            prefix=f"{prefix}.encoder",
        )
        self.neck, self.decoder, self.head = parts.necks, parts.decoder, parts.head
        self.wanted = set(self.out_indices)
        if isinstance(self.neck[0], SelectIndices):
            self.wanted = {self.out_indices[i] for i in self.neck[0].indices}

    @classmethod
    def describe(
        cls, config: PrithviDenseConfig, frames: int = 1, tile: int | None = None
    ) -> Geometry:
        """Which windows the network of a configuration takes, and how fine its output is.

        Args:
            config: Of the network.
            frames: Dates in one input.
            tile: Side of the largest window, against which a ReshapeTokensToImage that is told
                its rows is checked; None for no check.

        Raises:
            ContractError: A part is not supported or does not fit the others.
        """
        with torch.device("meta"):
            return _Parts(config, frames, 1, tile).geometry(config)

    @property
    def minimum_side(self) -> int:
        """Smallest side of a window in pixels."""
        return self.geometry.minimum

    @property
    def takes_any_size(self) -> bool:
        """Whether the network pads windows by itself, so that they need not be whole cells."""
        return self.geometry.multiple == 1

    def forward(
        self,
        pixels: torch.Tensor,
        temporal_coords: torch.Tensor | None = None,
        location_coords: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Maps windows of one shape; arguments as `PrithviEncoder.forward` takes them.

        Returns:
            (batch, channels, height * scale, width * scale), scores before any softmax.
        """
        height, width = pixels.shape[-2:]
        pixels = self.padding(pixels)
        padded = pixels.shape[-2:]
        stages = self.encoder(pixels, temporal_coords, location_coords, self.wanted)
        features = [stages[i] for i in self.out_indices]
        grid = (padded[0] // self.patch_size, padded[1] // self.patch_size)
        for neck in self.neck:
            features = neck(features, grid)
        scores = self.decoder(features).float()
        if self.head is not None:
            scores = self.head(scores)
        if self.rescale and scores.shape[-2:] != padded:
            scores = F.interpolate(scores, size=padded, mode="bilinear")
        return self.padding.cropped(scores, height, width, self.geometry.scale)


def _padding(config: PrithviDenseConfig) -> Padding:
    # An even number of patches, which pyramids can halve.
    return Padding(config.padding, 2 * config.patch_size)


def _numbers(indices: Sequence[int] | None, depth: int) -> list[int]:
    return list(range(depth)) if indices is None else [i % depth for i in indices]
