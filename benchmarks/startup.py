"""Seconds from `vllm serve` to ready, of a raster checkpoint over a minimal text model of vLLM's.

The other one is a BERT of two small layers with random weights, served to embed text. Both are
started in turn, and the median of each counts. Neither is compiled. The parts are the times
between lines of the log, looked at five times a second.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import httpx
from measured import processor_seconds
from transformers import BertConfig, BertModel, BertTokenizerFast

from vllm_raster_io import LocalServer, RasterClient

ROOT = Path(__file__).resolve().parents[1]
CHECKPOINT = ROOT / "tests" / "checkpoints" / "land_cover"
SCENE = ROOT / "tests" / "data" / "sentinel2_town_4band.tif"
PARTS = {
    "imports": "Resolved architecture",
    "configuration": "Enforce eager set",
    "engine_process": "Initializing a V1 LLM engine",
    "worker": "Starting to load model",
    "weights": "Loading weights took",
    "engine": "init engine (profile",
}
"""Name of a part, and what stands in the log when it has ended."""
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "water", "land")


def minimal_model(folder: Path) -> None:
    """Writes the BERT."""
    folder.mkdir()
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(WORDS) + "\n")
    BertTokenizerFast(vocab=str(vocabulary)).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=512,
        architectures=["BertModel"],
    )
    BertModel(config).save_pretrained(folder)


def map_scene(url: str) -> None:
    with RasterClient(url) as client:
        client.map(SCENE)


def embed_text(url: str) -> None:
    httpx.post(f"{url}/v1/embeddings", json={"input": "water"}, timeout=60).raise_for_status()


def start(
    checkpoint: Path, arguments: tuple[str, ...], ask: Callable[[str], None]
) -> dict[str, float]:
    """Starts a server, asks it once and ends it.

    Returns:
        Seconds until it was ready and until it had answered, those of each part, and the
        processors' seconds until it was ready.
    """
    ends: dict[str, float] = {}

    def look(passed: float) -> None:
        text = server.log.read_text(errors="replace")
        for part, line in PARTS.items():
            if part not in ends and line in text:
                ends[part] = passed

    server = LocalServer(checkpoint, arguments=arguments, waiting=look)
    begin = time.perf_counter()
    with server:
        ready = time.perf_counter() - begin
        used = sum(processor_seconds(server.group).values())
        ask(server.url)
        answered = time.perf_counter() - begin
    server.log.unlink()
    return {"ready_s": ready, "answered_s": answered, "cpu_s": used, **_parts(ends, ready)}


def _parts(ends: dict[str, float], ready: float) -> dict[str, float]:
    parts, before = {}, 0.0
    for part, end in sorted(ends.items(), key=lambda one: one[1]):
        parts[f"part_{part}_s"] = end - before
        before = end
    return {**parts, "part_api_s": ready - before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=2, help="starts of each")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text_model = Path(folder) / "bert"
        minimal_model(text_model)
        # The size of its cache is given, or vLLM would refuse a machine that others use too.
        text_arguments = (
            *("--runner", "pooling", "--enforce-eager"),
            *("--kv-cache-memory-bytes", str(1 << 20)),
        )
        runs: dict[str, list[dict[str, float]]] = {"raster": [], "text": []}
        for _ in range(options.times):
            runs["text"].append(start(text_model, text_arguments, embed_text))
            runs["raster"].append(start(CHECKPOINT, (), map_scene))
            print({name: one[-1] for name, one in runs.items()}, file=sys.stderr, flush=True)
    medians = {
        f"{name}_{key}": median(one.get(key, 0.0) for one in several)
        for name, several in runs.items()
        for key in several[0]
    }
    ratios = {
        "startup_ratio": medians["raster_ready_s"] / medians["text_ready_s"],
        "startup_answered_ratio": medians["raster_answered_s"] / medians["text_answered_s"],
        "startup_cpu_ratio": medians["raster_cpu_s"] / medians["text_cpu_s"],
    }
    print(json.dumps({key: round(one, 3) for key, one in (ratios | medians).items()}))


if __name__ == "__main__":
    main()
