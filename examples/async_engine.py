"""Maps rasters with vLLM's asynchronous engine: `python examples/async_engine.py OUT SCENE…`.

vLLM's own server calls the IO processor's synchronous hooks. Who drives `AsyncLLM` calls the
asynchronous ones: `pre_process_async` opens the file in a thread, `post_process_async` takes
the maps of the windows as they come.
"""

import argparse
import asyncio
import base64
from collections.abc import AsyncGenerator
from pathlib import Path
from uuid import uuid4

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.outputs import PoolingRequestOutput
from vllm.plugins.io_processors import get_io_processor
from vllm.utils.async_utils import merge_async_iterators
from vllm.v1.engine.async_llm import AsyncLLM

from vllm_raster_io import RasterAnswer, RasterIOProcessor

CHECKPOINT = Path(__file__).resolve().parents[1] / "tests" / "checkpoints" / "land_cover"


async def map_scene(
    engine: AsyncLLM, processor: RasterIOProcessor, scene: Path, prompt: str | None = None
) -> RasterAnswer:
    content = await asyncio.to_thread(scene.read_bytes)
    asked = {"data": base64.b64encode(content).decode(), "prompt": prompt}
    request = processor.parse_data({name: one for name, one in asked.items() if one is not None})
    prompts = await processor.pre_process_async(request)
    params = processor.merge_pooling_params()
    name = uuid4().hex
    outputs: AsyncGenerator[tuple[int, PoolingRequestOutput]] = merge_async_iterators(
        *(engine.encode(one, params, f"{name}-{i}") for i, one in enumerate(prompts))
    )
    return await processor.post_process_async(outputs, request_id=scene.stem)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="folder to write to")
    parser.add_argument("scenes", type=Path, nargs="+")
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT)
    parser.add_argument("--prompt", help="what to map, for a checkpoint that is told")
    options = parser.parse_args()
    engine = AsyncLLM.from_engine_args(
        AsyncEngineArgs(str(options.checkpoint), io_processor_plugin="raster")
    )
    try:
        processor = get_io_processor(engine.vllm_config, engine.renderer, "raster")
        assert isinstance(processor, RasterIOProcessor)
        answers = await asyncio.gather(
            *(map_scene(engine, processor, scene, options.prompt) for scene in options.scenes)
        )
    finally:
        engine.shutdown()
    options.out.mkdir(parents=True, exist_ok=True)
    for answer in answers:
        (options.out / f"{answer.request_id}.tif").write_bytes(base64.b64decode(answer.data))
        print(answer.model_dump_json(exclude={"data"}))


if __name__ == "__main__":
    asyncio.run(main())
