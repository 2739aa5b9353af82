"""Has the engine map the windows whose maps TerraTorch stored; writes the difference as json.

A script of its own, run by test_unconverted.py: an engine ends with its process.
"""

import json
import sys
from pathlib import Path

from safetensors.torch import load_file
from vllm import LLM

# The stored windows are normalised already.
AS_IT_IS = {"input": {"mean": [0.0], "std": [1.0], "scale": 1.0, "nodata_fill": 0.0}}


def main(folder: str, out: str) -> None:
    case = {name: one.numpy() for name, one in load_file(Path(folder) / "case.safetensors").items()}
    expected = case.pop("expected")
    items = [{name: one[i] for name, one in case.items()} for i in range(len(expected))]
    llm = LLM(folder, skip_tokenizer_init=True, hf_overrides={"raster": AS_IT_IS})
    image_id = llm.llm_engine.model_config.hf_config.image_token_id
    outputs = llm.encode(
        [{"prompt_token_ids": [image_id], "multi_modal_data": {"image": item}} for item in items],
        pooling_task="token_classify",
        use_tqdm=False,
    )
    maps = [one.outputs.data.numpy().reshape(expected.shape[1:]) for one in outputs]
    largest = max(abs(one - wanted).max() for one, wanted in zip(maps, expected, strict=True))
    Path(out).write_text(json.dumps({"maps": len(maps), "largest_difference": float(largest)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
