"""The served models in plain PyTorch: to train, to compare with, to use without vLLM."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoModel, PreTrainedModel

from vllm_raster_model.config import InstructedRasterConfig, RasterConfig
from vllm_raster_model.errors import ContractError
from vllm_raster_model.head import CellProjector, DenseHead
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


class InstructedRasterForImageToImage(PreTrainedModel):
    """A vision encoder, a projector, a language model and a dense head.

    `save_pretrained` writes what vLLM serves under this class' name.
    """

    config_class = InstructedRasterConfig
    base_model_prefix = "predictor"
    main_input_name = "pixel_values"

    def __init__(self, config: InstructedRasterConfig) -> None:
        super().__init__(config)
        if config.text_config is None:
            raise ContractError("config.json has no `text_config`")
        width = config.text_config.hidden_size
        self.predictor = WindowPredictor(config, TorchLayers(), prefix="predictor")
        self.projector = CellProjector(config.feature_channels, width)
        # PyTorch's own attention leaves out the soft cap, where the language model has one.
        capped = getattr(config.text_config, "attn_logit_softcapping", None) is not None
        self.language_model = AutoModel.from_config(
            config.text_config, **({"attn_implementation": "eager"} if capped else {})
        )
        self.head = DenseHead(
            width, config.feature_channels, config.head_units, config.contract.output.channels
        )
        self.post_init()

    def _init_weights(self, module: torch.nn.Module) -> None:
        # Each layer keeps what PyTorch gave it.
        return

    def get_input_embeddings(self) -> torch.nn.Module:
        """The language model's table of words."""
        return self.language_model.get_input_embeddings()

    def set_input_embeddings(self, value: torch.nn.Module) -> None:
        """Gives the language model another table of words."""
        self.language_model.set_input_embeddings(value)

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> torch.nn.Module:
        """Gives the language model's table of words more rows, or fewer, as transformers does."""
        table = super().resize_token_embeddings(*args, **kwargs)
        self.config.text_config.vocab_size = self.config.vocab_size = table.num_embeddings
        return table

    def forward(
        self,
        input_ids: Sequence[Sequence[int]],
        pixel_values: Sequence[torch.Tensor],
        valid: Sequence[torch.Tensor],
        temporal_coords: Sequence[torch.Tensor],
        location_coords: Sequence[torch.Tensor],
        **_: object,
    ) -> list[torch.Tensor]:
        """Maps each image as the text in front of it says.

        Args:
            input_ids: One prompt or several, as `RasterProcessor` expands them.
            pixel_values: The images in the order in which the prompts name them.
            valid: As `WindowPredictor.forward` takes them, and so the next two.
            temporal_coords: One an image.
            location_coords: One an image.

        Returns:
            One (channels, padded height, padded width) an image, in the order of the images:
            values from 0 to 1.
        """
        logits = self.logits(input_ids, pixel_values, valid, temporal_coords, location_coords)
        return [one.sigmoid() for one in logits]

    def logits(
        self,
        input_ids: Sequence[Sequence[int]],
        pixel_values: Sequence[torch.Tensor],
        valid: Sequence[torch.Tensor],
        temporal_coords: Sequence[torch.Tensor],
        location_coords: Sequence[torch.Tensor],
    ) -> list[torch.Tensor]:
        """As `forward`, before the sigmoid: what a loss is computed from."""
        config = self.config
        maps = self.predictor(pixel_values, valid, temporal_coords, location_coords)
        grids = [config.grid(*window.shape[-2:]) for window in pixel_values]
        features = [grid.cells_of(one) for grid, one in zip(grids, maps, strict=True)]
        states = self._states(input_ids, features)
        channels = config.contract.output.channels
        return [
            grid.map_of(self.head.logits(state, feature), channels)
            for grid, state, feature in zip(grids, states, features, strict=True)
        ]

    def _states(
        self, input_ids: Sequence[Sequence[int]], features: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """The hidden states of each image's cells, (cells, width)."""
        device = features[0].device
        longest = max(map(len, input_ids))
        # Padded behind: what comes later, a causal model does not see.
        ids = torch.zeros((len(input_ids), longest), dtype=torch.long, device=device)
        for row, prompt in zip(ids, input_ids, strict=True):
            row[: len(prompt)] = torch.as_tensor(prompt, device=device)
        is_cell = ids == self.config.image_token_id
        embeddings = self.language_model.get_input_embeddings()(ids.masked_fill(is_cell, 0))
        cells = self.projector(torch.cat(list(features)))
        embeddings = embeddings.masked_scatter(is_cell[..., None], cells.to(embeddings.dtype))
        hidden = self.language_model(inputs_embeds=embeddings, use_cache=False).last_hidden_state
        return list(hidden[is_cell].split([len(one) for one in features]))
