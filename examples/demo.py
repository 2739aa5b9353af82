"""Maps two real scenes with one checkpoint, and one of them as it is told with another.

Run it with `make demo`. What it makes is in the folder `out`.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.status import Status

from vllm_raster_io import LocalServer, RasterClient, ServiceError
from vllm_raster_io.cli import summary
from vllm_raster_io.datasets import accept_missing_reference
from vllm_raster_io.previews import class_preview, value_preview

ROOT = Path(__file__).resolve().parents[1]
CHECKPOINTS = ROOT / "tests" / "checkpoints"
SCENES = {
    "forest_fields": ROOT / "tests" / "data" / "sentinel2_forest_fields_4band.tif",
    "town": ROOT / "tests" / "data" / "sentinel2_town_4band.tif",
}

INSTRUCTIONS = ("find the trees", "where are the roofs", "how green is it")

console = Console()


def map_scenes(server: LocalServer, out: Path) -> list[tuple[str, float]]:
    steps = []
    with RasterClient(server.url, timeout=300) as client:
        for name, scene in SCENES.items():
            begin = time.monotonic()
            with console.status(f"Mapping {name}"):
                result = client.map(scene)
            steps.append((f"map {name}", time.monotonic() - begin))
            result.save(out / f"{name}.tif")
            picture = class_preview(scene.read_bytes(), result)
            (out / f"{name}.png").write_bytes(picture)
            console.print(summary(result))
    return steps


def map_as_told(server: LocalServer, out: Path) -> list[tuple[str, float]]:
    scene = SCENES["town"]
    begin = time.monotonic()
    with RasterClient(server.url, timeout=300) as client, console.status("Mapping as told"):
        results = [client.map(scene, prompt=words) for words in INSTRUCTIONS]
    (out / "town_as_told.png").write_bytes(value_preview(scene.read_bytes(), results))
    for words, result in zip(INSTRUCTIONS, results, strict=True):
        result.save(out / f"town_{words.replace(' ', '_')}.tif")
    return [(f"map {len(results)} instructions", time.monotonic() - begin)]


def serve(
    name: str, out: Path, work: Callable[[LocalServer, Path], list[tuple[str, float]]]
) -> list[tuple[str, float]]:
    """Starts a server for a checkpoint, does the work, stops it; tells how long each took."""
    log = out / f"{name}.log"

    def waiting(seconds: float) -> None:
        status.update(f"vLLM starts with {name}, {seconds:.0f} s (its log: {log})")

    begin = time.monotonic()
    with Status("vLLM starts", console=console) as status:
        server = LocalServer(CHECKPOINTS / name, log=log, waiting=waiting).start()
    steps = [(f"start {name}", time.monotonic() - begin)]
    try:
        steps += work(server, out)
        begin = time.monotonic()
    finally:
        server.close()
    return [*steps, (f"stop {name}", time.monotonic() - begin)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "out", help="folder to write to")
    # Asked to end, it ends the server too; Ctrl-C does so by itself.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    accept_missing_reference()
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    steps = serve("land_cover", out, map_scenes) + serve("instructed", out, map_as_told)
    for step, seconds in steps:
        console.print(f"{step:22} {seconds:6.1f} s")
    for path in sorted(out.glob("*.tif")) + sorted(out.glob("*.png")):
        console.print(str(path), soft_wrap=True)


if __name__ == "__main__":
    try:
        main()
    except ServiceError as error:
        console.print(f"[red]{error}[/red]")
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
