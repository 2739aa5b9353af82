"""A process that serves cases one after the other; those that it does not bear end only a fork.

It is told numbers of cases, a line each, and tells what became of each, a line of json.
"""

import argparse
import faulthandler
import json
import os
import resource
import sys
import time
import traceback
from pathlib import Path
from typing import TextIO

from .bombs import bombs, heavy_requests
from .cases import Case, case
from .serving import outcome, prepare, processors

MEMORY = 2**30
"""Bytes that the serving of cases may take."""
SECONDS = 60
"""How long a case may take on a busy machine."""
_LATE, _BROKEN = 1, 2  # the former is how faulthandler ends it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    seed = parser.parse_args().seed
    # What libraries print is no answer.
    answers, sys.stdout = os.fdopen(os.dup(1), "w"), sys.stderr
    os.dup2(2, 1)
    prepare()
    served = processors()
    made = bombs(), heavy_requests(), case(seed, 0)
    assert all(made)
    _limit_memory()
    while (child := os.fork()) and (status := os.waitpid(child, 0)[1]):
        # Importing all anew would take a quarter of a minute.
        code = os.waitstatus_to_exitcode(status)
        late = f"not done after {SECONDS} s" if code == _LATE else f"the process ended with {code}"
        _tell(answers, "?", f"fault: {late}")
    if child:
        return
    try:
        while line := sys.stdin.readline():
            number = int(line)
            one = case(seed, number)
            _tell(answers, one.kind, _became(one, served[one.checkpoint]))
    except BaseException:
        traceback.print_exc()
        os._exit(_BROKEN)
    os._exit(0)


def _became(one: Case, processor: object) -> str:
    # A thread of its own ends the process, whatever holds Python up.
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    started = time.monotonic()
    try:
        told = outcome(processor, one.request)
    except Exception as error:
        trace = "".join(traceback.format_exception(error)[-6:])
        return f"fault: {type(error).__name__}: {error}\n{trace}"[:4000]
    finally:
        faulthandler.cancel_dump_traceback_later()
    seconds = time.monotonic() - started
    return f"{told} {seconds:.3f}"


def _tell(answers: TextIO, kind: str, told: str) -> None:
    print(json.dumps([kind, told]), file=answers, flush=True)


def _limit_memory() -> None:
    """Lets the process have 1 GiB of addresses more than vLLM's import took.

    That takes 20 GiB of them, of which most are never used.
    """
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    main()
