"""The processor and the PyTorch model need no vLLM."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from .checkpoints import make_config, make_processor, save_checkpoint
from .items import EVERYWHERE, mask, window

# Imports of vLLM fail in here. Writes the map of the item that argument 2 holds to argument 3.
PROGRAM = """
import sys

sys.modules["vllm"] = None
import numpy as np
from transformers import AutoConfig, AutoProcessor
from vllm_raster_model.pytorch import RasterForImageToImage
from vllm_raster_model.registration import register_with_transformers

register_with_transformers()
checkpoint, given, wanted = sys.argv[1:]
assert AutoConfig.from_pretrained(checkpoint).contract.version == 1
processor = AutoProcessor.from_pretrained(checkpoint)
model = RasterForImageToImage.from_pretrained(checkpoint)
(found,) = model(**processor(images=dict(np.load(given)), text="<image>"))
np.save(wanted, found.detach())
assert not [name for name in sys.modules if name.startswith("vllm.")]
"""


def test_maps_a_window(tmp_path: Path) -> None:
    model = save_checkpoint(tmp_path / "checkpoint", make_config())
    item = window(9, 17, valid=mask(9, 17)) | EVERYWHERE
    np.savez(tmp_path / "item.npz", **item)
    paths = [tmp_path / name for name in ("checkpoint", "item.npz", "map.npy")]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *paths], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    with torch.inference_mode():
        (expected,) = model(**make_processor(model.config)(images=item))
    np.testing.assert_allclose(np.load(paths[-1]), expected, rtol=1e-5, atol=1e-5)
