"""Maps two rasters of one place, both in each prompt, in this process.

    python examples/before_and_after.py BEFORE AFTER OUT --prompt "find the trees"

The IO processor sends one image a prompt. Who writes the prompts can send as many as the
checkpoint's `max_images`, and says whose map is wanted; each is of one window at most.
"""

import argparse
import math
from pathlib import Path
from typing import Any

import rasterio
import torch
from vllm import LLM, PoolingParams

CHECKPOINT = Path(__file__).resolve().parents[1] / "tests" / "checkpoints" / "instructed"
TASK = "token_classify"


def read(path: Path, size: int) -> dict[str, Any]:
    """The upper left corner of a raster, as the checkpoint's processor takes it."""
    with rasterio.open(path) as dataset:
        window = ((0, min(size, dataset.height)), (0, min(size, dataset.width)))
        return {
            "pixel_values": dataset.read(window=window),
            "valid": dataset.dataset_mask(window=window) > 0,
        }


def write(path: Path, values: torch.Tensor, like: Path) -> None:
    with rasterio.open(like) as dataset:
        profile = {"crs": dataset.crs, "transform": dataset.transform, "nodata": math.nan}
    profile |= dict(zip(("count", "height", "width"), values.shape, strict=True))
    with rasterio.open(path, "w", driver="GTiff", dtype="float32", **profile) as written:
        written.write(values.numpy())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("out", type=Path, help="folder to write before.tif and after.tif to")
    parser.add_argument("--prompt", default="find the trees", help="what to map")
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT)
    options = parser.parse_args()
    llm = LLM(str(options.checkpoint))
    contract = llm.llm_engine.model_config.hf_config.contract
    files = [options.before, options.after]
    images = [read(one, contract.tile.size) for one in files]
    told = contract.instructions.template.replace("{instruction}", options.prompt)
    prompt = {"prompt": told * len(images), "multi_modal_data": {"image": images}}
    # The same prompt for each image, whose map is asked for by its number in the prompt.
    asked = [PoolingParams(task=TASK, extra_kwargs={"image": i}) for i in range(len(images))]
    outputs = llm.encode([prompt] * len(images), asked, pooling_task=TASK, use_tqdm=False)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, file, image, output in zip(("before", "after"), files, images, outputs, strict=True):
        # (bands of the map, height, width), the last two padded to whole cells.
        height, width = image["pixel_values"].shape[-2:]
        values = output.outputs.data[:, :height, :width].clone()
        values[:, ~torch.from_numpy(image["valid"])] = math.nan
        write(options.out / f"{name}.tif", values, like=file)
        print(f"{name}: {tuple(values.shape)}, mean {values.nanmean():.3f}")


# vLLM starts its engine as a new process, which imports this file again.
if __name__ == "__main__":
    main()
