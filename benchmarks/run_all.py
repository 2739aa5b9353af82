"""Runs the benchmarks and prints what each found: `make bench`."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
QUESTIONS = ("responsiveness", "serving_efficiency")


def main() -> int:
    failed = 0
    for question in QUESTIONS:
        print(f"# {question}", flush=True)
        command = [sys.executable, HERE / f"{question}.py"]
        failed += subprocess.run(command, check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
