"""The served model in plain PyTorch: to train, to compare with, to use without vLLM."""

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from vllm_raster_model.config import RasterConfig
from vllm_raster_model.networks import TorchLayers
from vllm_raster_model.predictor import WindowPredictor


class RasterForImageToImage(PreTrainedModel):
    """The network of a checkpoint, in the form that transformers saves and loads.

    `save_pretrained` writes what vLLM serves under this class' name.
    """

    config_class = RasterConfig
    base_model_prefix = "predictor"
    main_input_name = "pixel_values"

    def __init__(self, config: RasterConfig) -> None:
        super().__init__(config)
        self.predictor = WindowPredictor(config, TorchLayers(), prefix="predictor")
        self.post_init()

    def _init_weights(self, module: torch.nn.Module) -> None:
        # Each layer keeps what PyTorch gave it.
        return

    def forward(
        self,
        pixel_values: Sequence[torch.Tensor],
        valid: Sequence[torch.Tensor],
        temporal_coords: Sequence[torch.Tensor],
        location_coords: Sequence[torch.Tensor],
        **_: object,
    ) -> list[torch.Tensor]:
        """Maps windows, as `RasterProcessor` prepares them; see `WindowPredictor.forward`."""
        return self.predictor(pixel_values, valid, temporal_coords, location_coords)
