"""Starting and ending a server, with a small program in vLLM's place."""

import os
import sys
import textwrap
import time
from pathlib import Path

import pytest

from vllm_raster_io import LocalServer, ServiceError, launcher

# Leaves a child of its own, as vLLM does, and says who it is.
SERVER = """
import http.server, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("child", child.pid, *sys.argv[1:], flush=True)
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Health).serve_forever()
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    script = tmp_path / "vllm"
    script.write_text(f"#!{sys.executable}\n{SERVER}")
    script.chmod(0o755)
    monkeypatch.setattr(launcher, "_vllm", lambda: str(script))
    return script


def replace(program: Path, body: str) -> None:
    program.write_text(f"#!{sys.executable}\n{textwrap.dedent(body)}")


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    # Nobody may be there to take note of its end: a zombie is not alive.
    return "Z" not in Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]


def gone(group: int) -> bool:
    """Waits for a group to be no more; what was killed may wait for someone to take note."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_ends_with_its_children(program: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with LocalServer("folder", log=log, arguments=["--more"]) as server:
        words = log.read_text().splitlines()[0].split()
        assert words[2:] == [
            "serve", "folder", "--host", "127.0.0.1", "--port", str(server.port), "--more"
        ]  # fmt: skip
        child = int(words[1])
        assert alive(child)
    deadline = time.monotonic() + 5
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(child)
    server.close()


def test_starts_the_command_it_is_told(program: Path, tmp_path: Path) -> None:
    other, log = tmp_path / "other", tmp_path / "log"
    other.write_text(program.read_text().replace('"child"', '"other"'))
    other.chmod(0o755)
    with LocalServer("folder", vllm=other, log=log):
        assert log.read_text().startswith("other")


def test_ends_what_does_not_listen(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "_PATIENCE", 0.5)
    replace(program, "import signal\nsignal.signal(15, signal.SIG_IGN)" + SERVER)
    with LocalServer("folder") as server:
        group = server.group
    assert gone(group)


def test_is_started_once(program: Path) -> None:
    server = LocalServer("folder").start()
    group = server.group
    with server.start():
        assert server.group == group
    assert gone(group)


def test_tells_why_it_did_not_start(program: Path) -> None:
    replace(program, "import sys\nsys.exit('the checkpoint is broken')")
    with pytest.raises(ServiceError, match="the checkpoint is broken"):
        LocalServer("folder").start()


def test_tells_what_went_wrong_first(program: Path) -> None:
    error = "(Worker pid=7) ERROR 11-30 [executor.py:953] package.WeightsError: a is missing"
    replace(program, f"print({error!r}, *range(200), sep='\\n')\nraise SystemExit('See above')")
    with pytest.raises(ServiceError) as caught:
        LocalServer("folder").start()
    lines = str(caught.value).splitlines()
    assert lines[1] == "package.WeightsError: a is missing"
    assert lines[-1] == "See above"
    assert len(lines) == 32


def test_gives_up_in_time(program: Path) -> None:
    replace(program, "import time\nprint('loading', flush=True)\ntime.sleep(600)")
    seen: list[float] = []
    server = LocalServer("folder", startup=0.6, waiting=seen.append)
    with pytest.raises(ServiceError, match=r"not ready after 1 s:\nloading"):
        server.start()
    assert seen == sorted(seen)
    assert seen
    with pytest.raises(ServiceError, match="not started"):
        _ = server.group


def test_an_interrupt_leaves_nothing(program: Path) -> None:
    replace(program, "import time\ntime.sleep(600)")
    groups: list[int] = []

    def interrupt(_: float) -> None:
        groups.append(server.group)
        raise KeyboardInterrupt

    server = LocalServer("folder", waiting=interrupt)
    with pytest.raises(KeyboardInterrupt):
        server.start()
    assert gone(groups[0])
