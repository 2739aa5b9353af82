"""What the two distributions say of themselves, and what importing them costs."""

import subprocess
import sys
import tomllib
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "vllm_raster_model": ROOT / "packages/model",
    "vllm_raster_io": ROOT / "packages/io_plugin",
}
SIBLING_EXTRAS = {"vllm_raster_model": "io", "vllm_raster_io": "model"}
HEAVY = {"torch", "vllm", "transformers"}

# Prints how long the import took, then those of the heavy packages it brought along.
TIMED_IMPORT = """
import sys, time
start = time.perf_counter()
import {name}
print(time.perf_counter() - start, *({heavy} & set(sys.modules)))
"""

each_package = pytest.mark.parametrize("name", PACKAGES)


def project(name: str) -> dict[str, Any]:
    return tomllib.loads((PACKAGES[name] / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def released() -> str:
    return (ROOT / "VERSION").read_text().strip()


@each_package
def test_sibling_is_pinned_to_the_same_version(name: str, released: str) -> None:
    (sibling,) = set(PACKAGES) - {name}
    pin = f"{project(sibling)['name']}=={released}"
    assert project(name)["optional-dependencies"][SIBLING_EXTRAS[name]] == [pin]


@each_package
def test_installed_version(name: str, released: str) -> None:
    assert version(project(name)["name"]) == released, "stale metadata: make setup renews it"


def test_both_accept_the_same_vllm_and_python() -> None:
    model, io = map(project, PACKAGES)
    assert model["optional-dependencies"]["vllm"] == io["optional-dependencies"]["vllm"]
    assert model["requires-python"] == io["requires-python"]


@each_package
def test_license_is_the_same_text(name: str) -> None:
    assert (PACKAGES[name] / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@each_package
def test_typed(name: str) -> None:
    assert (PACKAGES[name] / "src" / name / "py.typed").is_file()


@each_package
def test_import_is_light(name: str) -> None:
    command = [sys.executable, "-c", TIMED_IMPORT.format(name=name, heavy=HEAVY)]
    runs = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        for _ in range(3)
    ]
    assert not any(heavy for _, *heavy in runs), runs
    assert min(float(seconds) for seconds, *_ in runs) < 0.5


@pytest.mark.parametrize(
    ("group", "name"),
    [
        ("vllm.general_plugins", "raster"),
        ("vllm.io_processor_plugins", "raster"),
        ("console_scripts", "vllm-raster"),
        ("console_scripts", "vllm-raster-model"),
    ],
)
def test_entry_point_resolves(group: str, name: str) -> None:
    (entry,) = entry_points(group=group, name=name)
    assert callable(entry.load())
