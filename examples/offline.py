"""Maps a raster without a server, in this process: `python examples/offline.py SCENE OUT`."""

import argparse
import base64
from pathlib import Path

from vllm import LLM

CHECKPOINT = Path(__file__).resolve().parents[1] / "tests" / "checkpoints" / "land_cover"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scene", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT)
    parser.add_argument("--prompt", help="what to map, for a checkpoint that is told")
    options = parser.parse_args()
    llm = LLM(str(options.checkpoint))
    request = {"data": base64.b64encode(options.scene.read_bytes()).decode()}
    if options.prompt is not None:
        request["prompt"] = options.prompt
    (output,) = llm.encode({"data": request}, pooling_task="plugin", use_tqdm=False)
    answer = output.outputs
    options.out.write_bytes(base64.b64decode(answer.data))
    print(answer.model_dump_json(exclude={"data"}, indent=2))


# vLLM starts its engine as a new process, which imports this file again.
if __name__ == "__main__":
    main()
