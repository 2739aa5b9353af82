"""Reading other people's checkpoints: TerraTorch's fine-tunes, and bare Prithvi encoders."""

from vllm_raster_model.checkpoints.foreign import ForeignCheckpoint, read_checkpoint
from vllm_raster_model.checkpoints.options import Options

__all__ = ["ForeignCheckpoint", "Options", "read_checkpoint"]
