"""Starting `vllm serve` on this machine, and ending it with all that it started."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from vllm_raster_io.client import RasterClient
from vllm_raster_io.closing import Closing
from vllm_raster_io.errors import ServiceError

_POLL = 0.2
_PATIENCE = 5.0
_LOG_LINES = 30
_RAISED = re.compile(r"(?:^|\] )([\w.]+(?:Error|Exception): .*)")
_MOST_RAISED = 5


class LocalServer(Closing):
    """A vLLM server of this machine, for as long as a `with` block lasts.

    It is a process group of its own, for vLLM leaves children; the group is ended by its id.

    Args:
        checkpoint: Folder to serve.
        port: To listen on; a free one without it.
        vllm: The `vllm` command; the one of this environment without it.
        arguments: More arguments for `vllm serve`.
        environment: More environment variables.
        log: File for what the server prints; a temporary one without it.
        startup: Seconds that it may take to be ready.
        waiting: Called again and again while it starts, with the seconds that have passed.
    """

    host = "127.0.0.1"

    def __init__(
        self,
        checkpoint: str | Path,
        *,
        port: int | None = None,
        vllm: str | Path | None = None,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        log: str | Path | None = None,
        startup: float = 300.0,
        waiting: Callable[[float], None] | None = None,
    ) -> None:
        self.port = port or _free_port()
        self.log = Path(log) if log else Path(tempfile.mkstemp(prefix="vllm-", suffix=".log")[1])
        self._command = [
            str(vllm or _vllm()), "serve", str(checkpoint),
            "--host", self.host, "--port", str(self.port), *arguments,
        ]  # fmt: skip
        self._environment = {**os.environ, **(environment or {})}
        self._startup, self._waiting = startup, waiting
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{self.host}:{self.port}"

    @property
    def group(self) -> int:
        """Id of its process group."""
        if self._process is None:
            raise ServiceError("The server was not started")
        return self._process.pid

    def start(self) -> Self:
        """Starts the server, unless it was started, and waits until it answers.

        Raises:
            ServiceError: It ended or was not ready in time; the message has the end of its log.
        """
        if self._process is not None:
            return self  # a second process would take the place of the first, which none would end
        self._output = self.log.open("wb")
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Ends the whole process group, gently at first; may be called twice."""
        process, self._process = self._process, None
        if process is not None:
            for sign in (signal.SIGTERM, signal.SIGKILL):
                if _end_group(process, sign):
                    break
        if self._output is not None:
            self._output.close()

    def __enter__(self) -> Self:
        return self.start()

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        begin = time.monotonic()
        with RasterClient(self.url, timeout=5.0) as client:
            while not client.healthy():
                passed = time.monotonic() - begin
                if self._process.poll() is not None:
                    raise ServiceError(f"vLLM ended before it was ready:\n{self._end_of_log()}")
                if passed > self._startup:
                    raise ServiceError(
                        f"vLLM was not ready after {passed:.0f} s:\n{self._end_of_log()}"
                    )
                if self._waiting is not None:
                    self._waiting(passed)
                time.sleep(_POLL)

    def _end_of_log(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        # What went wrong in vLLM's engine stands far above what then went wrong in its server.
        raised = [found[1] for one in lines[:-_LOG_LINES] if (found := _RAISED.search(one))]
        return "\n".join([*dict.fromkeys(raised[-_MOST_RAISED:]), *lines[-_LOG_LINES:]])


def _end_group(process: subprocess.Popen[bytes], sign: signal.Signals) -> bool:
    """Signals a group and waits; tells whether all of it is gone."""
    deadline = time.monotonic() + _PATIENCE
    try:
        os.killpg(process.pid, sign)
        while time.monotonic() < deadline:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(_POLL / 4)
    except ProcessLookupError:
        process.wait()
        return True
    return False


def _vllm() -> str:
    # Beside this Python first: an environment need not be activated to be used.
    beside = Path(sys.executable).with_name("vllm")
    found = str(beside) if beside.exists() else shutil.which("vllm")
    if found is None:
        raise ServiceError('There is no `vllm` command: pip install "vllm>=0.32,<0.34"')
    return found


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
