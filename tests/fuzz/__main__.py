"""Fuzzes the IO processor and, if asked to, a running server. Exits with 1 where anything fails.

python -m tests.fuzz --cases 20000 --served 1000
"""

import argparse
import base64
import json
import sys
import time
from pathlib import Path

from vllm_raster_io import LocalServer, RasterClient

from .cases import case
from .running import run
from .server import send_cases

TESTS = Path(__file__).resolve().parents[1]
CHECKPOINT = TESTS / "checkpoints" / "land_cover"
SCENE = TESTS / "data" / "sentinel2_town_4band.tif"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="what all cases are made from")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--cases", type=int, default=20_000, help="cases for the IO processor")
    parser.add_argument("--served", type=int, default=1000, help="cases for a server")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--keep", type=Path, help="folder for the cases that fail")
    options = parser.parse_args()
    faults = fuzz_processor(options)
    if options.served:
        faults += fuzz_server(options)
    sys.exit(1 if faults else 0)


def fuzz_processor(options: argparse.Namespace) -> int:
    started = time.monotonic()
    result = run(options.seed, options.cases, options.workers, options.first)
    seconds = time.monotonic() - started
    told = ", ".join(f"{many} {name}" for name, many in result.outcomes.most_common())
    print(f"{options.cases} cases in {seconds:.0f} s: {told}; {len(result.faults)} faults")
    slowest = ", ".join(f"{one:.1f} s {kind}" for one, _, kind in result.slowest[:-4:-1])
    print(f"slowest: {slowest}")
    _tell(result.faults)
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        for number, _, _ in result.faults:
            _keep(options.keep, options.seed, number)
    return len(result.faults)


def fuzz_server(options: argparse.Namespace) -> int:
    # All that a server with 1 GiB would refuse, this one refuses too.
    environment = {"VLLM_RASTER_MAX_PIXELS": str(3200 * 3200)}
    with (
        LocalServer(CHECKPOINT, environment=environment) as server,
        RasterClient(server.url, timeout=300) as client,
    ):
        before = client.map(SCENE).data
        started = time.monotonic()
        answers = send_cases(server.url, options.seed, options.served)
        seconds = time.monotonic() - started
        same = client.map(SCENE).data == before
    told = ", ".join(f"{many} × {status}" for status, many in answers.statuses.most_common())
    print(
        f"{options.served} cases to a server in {seconds:.0f} s: {told}; the slowest "
        f"{answers.seconds:.1f} s; {len(answers.faults)} faults; a good request after them is "
        f"answered {'as before' if same else 'otherwise than before'}"
    )
    _tell(answers.faults)
    return len(answers.faults) + (not same)


def _tell(faults: list[tuple[int, str, str]]) -> None:
    for number, kind, told in faults:
        print(f"case {number}, {kind}: {told}")


def _keep(folder: Path, seed: int, number: int) -> None:
    """Writes the request of a case and, if it is one, its file."""
    request = case(seed, number).request
    (folder / f"{seed}-{number}.json").write_text(json.dumps(request))
    if isinstance(request, dict) and isinstance(request.get("data"), str):
        try:
            content = base64.b64decode(request["data"])
        except ValueError:
            return
        (folder / f"{seed}-{number}.bin").write_bytes(content)


if __name__ == "__main__":
    main()
