"""Where a server's processes use the processors: by stages, of which all add up to the whole.

A thread of each process looks two hundred times a second at what every other one does, and adds
the time that it was running since (from the kernel, in nanoseconds) to the stage of the innermost
function that one of `STAGES` names. It starts with the process, as a plugin of vLLM's.
"""

import json
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType

FOLDER = "VLLM_RASTER_BENCHMARK_STAGES"
_PERIOD, _WRITE = 0.005, 0.25
STAGES: tuple[tuple[str, str, str], ...] = (
    ("multimodal/hasher.py", "", "hash"),
    ("v1/serial_utils.py", "", "copy"),
    ("shm_broadcast.py", "", "copy"),
    ("zmq/", "", "copy"),
    ("vllm_raster_model/normalisation.py", "", "normalise"),
    ("vllm_raster_model/pooler.py", "", "cells"),
    ("vllm_raster_model/grid.py", "", "cells"),
    ("vllm_raster_model/processor.py", "", "prepare"),
    ("vllm_raster_model/multimodal.py", "", "prepare"),
    ("vllm_raster_model/", "", "network"),
    *(
        (f"vllm_raster_io/{name}.py", "", stage)
        for stage, names in {
            "receive": ("bodies", "chunks", "uploads"),
            "read": ("datasets", "stored", "rasters", "windows", "views", "stacks", "paths"),
            "blend": ("blending", "strips", "mosaics"),
            "encode": ("products", "maps", "encodings", "answers", "reports", "targets"),
        }.items()
        for name in names
    ),
)
"""Part of a file's path, beginning of a function's name, stage; the first that fits counts."""


def start() -> None:
    """Begins to look, where `FOLDER` says where to write."""
    if FOLDER in os.environ:
        threading.Thread(target=_watch, args=(Path(os.environ[FOLDER]),), daemon=True).start()


def seconds(folder: Path) -> Counter[str]:
    """What all processes have used so far, by stage."""
    total: Counter[str] = Counter()
    for file in folder.glob("*.json"):
        total.update(json.loads(file.read_text()))
    return total


def _watch(folder: Path) -> None:
    spent: Counter[str] = Counter()
    before = _running()
    written = 0.0
    while True:
        time.sleep(_PERIOD)
        now, frames = _running(), _frames()
        for thread, nanoseconds in now.items():
            used = nanoseconds - before.get(thread, 0)
            if used:
                spent[_stage(frames.get(thread), thread)] += used / 1e9
        before = now
        if time.monotonic() - written > _WRITE:
            written = time.monotonic()
            part = folder / f"{os.getpid()}.part"
            part.write_text(json.dumps(spent))
            part.rename(part.with_suffix(".json"))


def _running() -> dict[int, int]:
    """For how many nanoseconds each thread of this process has been running."""
    running = {}
    for thread in os.listdir("/proc/self/task"):
        try:
            told = Path(f"/proc/self/task/{thread}/schedstat").read_text()
        except OSError:
            continue  # it has just ended
        running[int(thread)] = int(told.split()[0])
    return running


def _frames() -> dict[int | None, FrameType]:
    frames = sys._current_frames()
    return {
        one.native_id: frames[one.ident] for one in threading.enumerate() if one.ident in frames
    }


def _stage(frame: FrameType | None, thread: int) -> str:
    if thread == threading.get_native_id():
        return "looking"
    if frame is None:
        # Of those that are not Python's: ZeroMQ's send and take messages, OpenMP's compute.
        name = Path(f"/proc/self/task/{thread}/comm")
        return "copy" if name.exists() and name.read_text().startswith("ZMQ") else "native"
    while frame is not None:
        path, function = frame.f_code.co_filename, frame.f_code.co_name
        for part, name, stage in STAGES:
            if part in path and function.startswith(name):
                return stage
        frame = frame.f_back
    return "queue"
