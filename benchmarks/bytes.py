"""How many bytes a window costs on its way to the network and back.

Measured at the messages as they are serialised, on each way that there is: from the server to the
engine and from the engine to its worker, and back. A window is 512 × 512 pixels of uint16 in six
bands; two classes come back: as ids, where each pixel comes from one window; as scores in half
precision, where they are blended; and as float32, as values and logits always do.
"""

import base64
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import networks
from counting import FOLDER, counted
from measured import large_scene, mapped

from vllm_raster_io import LocalServer

TILE, BANDS, TILES = 512, 6, 4
PLUGIN = "[vllm.general_plugins]\nbenchmark_counting = counting:install\n"
KINDS: dict[str, dict[str, Any]] = {
    "ids": {"blending": "none"},
    # One window that is seen from four sides needs scores as overlapping ones do.
    "scores": {"augment": "flips"},
    "values": {"product": "logits"},
}


def bytes_per_tile(server: LocalServer, folder: Path, **fields: Any) -> dict[str, float]:
    """Of one request, by their way."""
    content = base64.b64encode(large_scene(TILES * TILE)).decode()
    before = counted(folder)
    windows = mapped(server, {"data": content, **fields})
    return {way: (total - before[way]) / windows for way, total in counted(folder).items()}


def main() -> None:
    with tempfile.TemporaryDirectory() as name, networks.installed(PLUGIN):
        checkpoint, folder = Path(name) / "nothing", Path(name) / "bytes"
        folder.mkdir()
        networks.make(checkpoint, "benchmark_nothing", tile=TILE)
        figures: dict[str, float] = {}
        with LocalServer(checkpoint, environment={FOLDER: str(folder)}) as server:
            for kind, fields in KINDS.items():
                found = bytes_per_tile(server, folder, **fields)
                print(kind, found, file=sys.stderr)
                figures |= {f"bytes_{way}_{kind}": value for way, value in found.items()}
    pixel_bands = TILE * TILE * BANDS
    figures["input_bytes_per_pixel_band"] = figures["bytes_to_engine_ids"] / pixel_bands
    print(json.dumps({key: round(value, 4) for key, value in figures.items()}))


if __name__ == "__main__":
    main()
