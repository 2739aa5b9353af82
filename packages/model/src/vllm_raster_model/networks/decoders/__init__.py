"""Decoders: from maps to one map.

A decoder is built with the features of the maps that it is given, `features` are those it reads
and `output` is the one it gives.
"""

from torch import nn

from vllm_raster_model.networks.decoders.aspp import ASPPRegressionHead, ASPPSegmentationHead
from vllm_raster_model.networks.decoders.fcn import FCNDecoder
from vllm_raster_model.networks.decoders.pointwise import IdentityDecoder, LinearDecoder, MLPDecoder
from vllm_raster_model.networks.decoders.unet import UNetDecoder
from vllm_raster_model.networks.decoders.upernet import UperNetDecoder

DECODERS: dict[str, type[nn.Module]] = {
    one.__name__: one
    for one in (
        ASPPRegressionHead,
        ASPPSegmentationHead,
        FCNDecoder,
        IdentityDecoder,
        LinearDecoder,
        MLPDecoder,
        UNetDecoder,
        UperNetDecoder,
    )
}
"""The decoders by the names that TerraTorch gives them."""
