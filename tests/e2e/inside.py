"""What the server's process holds, told by the server itself: for `--middleware`."""

import ctypes
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import rasterio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from vllm_raster_io import LocalServer

TESTS = Path(__file__).resolve().parents[1]
SERVED = {
    "arguments": ("--middleware", "tests.e2e.inside.tell"),
    "environment": {
        "PYTHONPATH": os.pathsep.join(
            [str(TESTS.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
    },
}
"""Arguments of `LocalServer` for a server that tells."""


async def tell(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """Answers GET /inside."""
    if request.url.path != "/inside":
        return await call_next(request)
    processor = request.app.state.serving_pooling.io_processors["plugin"].io_processor
    return JSONResponse({"jobs": len(processor._pending), "files_in_memory": files_in_memory()})


def files_in_memory() -> int:
    """Files that GDAL keeps in memory."""
    [library] = Path(rasterio.__file__).parents[1].glob("rasterio.libs/libgdal*")
    gdal = ctypes.CDLL(str(library))
    gdal.VSIReadDirRecursive.restype = ctypes.c_void_p
    names = gdal.VSIReadDirRecursive(b"/vsimem/")
    count: int = gdal.CSLCount(ctypes.c_void_p(names))
    gdal.CSLDestroy(ctypes.c_void_p(names))
    return count


def queued(server: LocalServer) -> float:
    """Windows that wait for the engine or are in it."""
    lines = httpx.get(f"{server.url}/metrics", timeout=60).text.splitlines()
    names = ("vllm:num_requests_waiting{", "vllm:num_requests_running{")
    return sum(float(line.split()[-1]) for line in lines if line.startswith(names))


def finished(server: LocalServer) -> float:
    """Windows that the engine has answered since its start."""
    lines = httpx.get(f"{server.url}/metrics", timeout=60).text.splitlines()
    name = "vllm:request_success_total{"
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def held(server: LocalServer, told: dict[str, Any]) -> dict[str, Any]:
    """What all processes of a server hold together.

    Args:
        server: A running one.
        told: What it tells of itself.
    """
    processes = sorted(one for one in Path("/proc").iterdir() if _is_of(one, server.group))
    memory = [_resident_mb(one) for one in processes]
    return {
        "memory_mb": sum(memory),
        "of_each": memory,
        "descriptors": sum(len(os.listdir(one / "fd")) for one in processes),
        "processes": len(processes),
        **told,
    }


def _is_of(process: Path, group: int) -> bool:
    try:
        # After the name, which may hold anything: state, parent, group.
        return int((process / "stat").read_text().rpartition(")")[2].split()[2]) == group
    except (OSError, IndexError):
        return False


def _resident_mb(process: Path) -> int:
    pages = int((process / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20
