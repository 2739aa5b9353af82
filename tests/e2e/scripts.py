"""Running scripts as a user would."""

import os
import subprocess
import sys
from pathlib import Path


def run(script: Path, *arguments: str | Path) -> str:
    """Runs a script in a process of its own, as a user would; gives back what it printed."""
    done = subprocess.run(
        [sys.executable, script, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
