"""Starts a server, maps two real scenes, and shows what came back.

Run it with `make demo`. What it makes is in the folder `out`.
"""

import argparse
import signal
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.status import Status

from vllm_raster_io import LocalServer, RasterClient, ServiceError
from vllm_raster_io.cli import summary
from vllm_raster_io.previews import class_preview
from vllm_raster_io.rasters import accept_missing_reference

ROOT = Path(__file__).resolve().parents[1]
CHECKPOINT = ROOT / "tests" / "checkpoints" / "land_cover"
SCENES = {
    "forest_fields": ROOT / "tests" / "data" / "sentinel2_forest_fields_4band.tif",
    "town": ROOT / "tests" / "data" / "sentinel2_town_4band.tif",
}

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


def start(log: Path) -> LocalServer:
    def waiting(seconds: float) -> None:
        status.update(f"vLLM starts, {seconds:.0f} s (its log: {log})")

    with Status("vLLM starts", console=console) as status:
        return LocalServer(CHECKPOINT, log=log, waiting=waiting).start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "out", help="folder to write to")
    # Asked to end, it ends the server too; Ctrl-C does so by itself.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    accept_missing_reference()
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    server = start(out / "server.log")
    steps = [("start vLLM", time.monotonic() - begin)]
    try:
        steps += map_scenes(server, out)
        begin = time.monotonic()
    finally:
        server.close()
    steps.append(("stop vLLM", time.monotonic() - begin))
    for step, seconds in steps:
        console.print(f"{step:20} {seconds:6.1f} s")
    for name in SCENES:
        console.print(f"{out / name}.tif  {out / name}.png", soft_wrap=True)


if __name__ == "__main__":
    try:
        main()
    except ServiceError as error:
        console.print(f"[red]{error}[/red]")
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
