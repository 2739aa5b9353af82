"""Runs every benchmark of this folder and prints what each found: `make bench`."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve()


def main() -> int:
    failed = 0
    for script in sorted(HERE.parent.glob("*.py")):
        if script != HERE:
            print(f"# {script.stem}", flush=True)
            failed += subprocess.run([sys.executable, script], check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
