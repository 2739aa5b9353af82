"""Runs the benchmarks: `make bench`. Prints a table, and writes it and all figures as json.

Each script answers one question; the last line that it prints is a json object of numbers.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
QUESTIONS = (
    "serving_efficiency",
    "overhead",
    "out_of_the_box",
    "bytes",
    "memory",
    "precision",
    "batching",
    "startup",
    "responsiveness",
    "growth",
)
HEADLINES = {
    "serving_efficiency_heavy": "tiles a second, served over bare, 800 ms a tile; 0.95 or more",
    "serving_efficiency_light": "the same, 20 ms a tile; 0.80 or more",
    "overhead_cpu_ms_per_tile": "ms of CPU a 512 × 512 × 6 tile, all processes; 8 or less",
    "out_of_the_box_ratio": "speed without any setting over the best found; 0.95 or more",
    "input_bytes_per_pixel_band": "bytes that cross to the engine; 2 is what uint16 has",
    "memory_over_formula": "peak for 10980 × 10980 × 6 over what is allowed; 1 or less",
    "bf16_agreement": "pixels whose class is the same in bfloat16; 0.999 or more",
    "startup_ratio": "time to ready over a minimal vLLM pooling model's; 1.2 or less",
}


def answer(question: str) -> dict[str, float] | None:
    """Runs a script; None where it failed."""
    print(f"# {question}", file=sys.stderr, flush=True)
    begin = time.monotonic()
    command = [sys.executable, str(HERE / f"{question}.py")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    took = time.monotonic() - begin
    print(f"# {question} took {took:.0f} s", file=sys.stderr, flush=True)
    if done.returncode:
        return None
    return {**json.loads(done.stdout.splitlines()[-1]), "took_s": round(took, 1)}


def table(figures: dict[str, dict[str, float]]) -> Table:
    """All figures, those that are promised first."""
    made = Table("question", "figure", "value", "what it is", title="Benchmarks")
    flat = {
        name: (question, value) for question, one in figures.items() for name, value in one.items()
    }
    for name, meaning in HEADLINES.items():
        if name in flat:
            made.add_row(flat[name][0], name, f"{flat[name][1]:g}", meaning)
    made.add_section()
    for question, one in figures.items():
        for name, value in one.items():
            if name not in HEADLINES:
                made.add_row(question, name, f"{value:g}", "")
    return made


def earlier() -> dict[str, dict[str, float]]:
    """What earlier runs found, so that one question can be asked again alone."""
    file = RESULTS / "latest.json"
    return dict(json.loads(file.read_text())["questions"]) if file.exists() else {}


def write(figures: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Writes all figures as json, those that are promised first."""
    flat = {name: value for one in figures.values() for name, value in one.items()}
    written = {
        **{name: flat[name] for name in HEADLINES if name in flat},
        "machine": {"processor": platform.machine(), "cores": os.cpu_count()},
        "questions": figures,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "latest.json").write_text(json.dumps(written, indent=1) + "\n")
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("questions", nargs="*", choices=[[], *QUESTIONS], default=[])
    asked = parser.parse_args().questions or QUESTIONS
    answers = {question: answer(question) for question in asked}
    new = {question: one for question, one in answers.items() if one is not None}
    figures = write({**({} if len(asked) == len(QUESTIONS) else earlier()), **new})
    made = table(figures)
    Console().print(made)
    with (RESULTS / "latest.txt").open("w") as file:
        Console(file=file, width=120).print(made)
    failed = sorted(set(answers) - set(new))
    if failed:
        print(f"These gave no answer: {', '.join(failed)}", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
