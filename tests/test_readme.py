"""What the README says to type works, and what it links to is there."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from vllm_raster_io import LocalServer

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *ROOT.glob("packages/*/*.md")]
DEFAULT = "127.0.0.1:8000"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands(start: str) -> list[str]:
    return [one for one in blocks("bash") if one.removeprefix("mkdir -p out\n").startswith(start)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place from which the README's paths lead where they should, and `out` is fresh."""
    place = tmp_path_factory.mktemp("readme")
    for name in ("tests", "examples", "tools"):
        (place / name).symlink_to(ROOT / name)
    (place / ".venv" / "bin").mkdir(parents=True)
    for program in ("python", "vllm", "vllm-raster"):
        (place / ".venv" / "bin" / program).symlink_to(Path(sys.executable).with_name(program))
    (place / "out").mkdir()
    return place


@pytest.fixture(scope="module")
def servers(folder: Path) -> Iterator[dict[str, LocalServer]]:
    """A server for each `vllm serve` of the README, by the address that it has there."""
    with ExitStack() as stack:
        running = {}
        for command in commands(".venv/bin/vllm serve"):
            _, _, checkpoint, host, address, port, number = command.split()
            assert (host, port) == ("--host", "--port")
            server = stack.enter_context(LocalServer(folder / checkpoint))
            running[f"{address}:{number}"] = server
        yield running


def run(folder: Path, servers: dict[str, LocalServer], command: list[str]) -> str:
    # The command line asks port 8000 unless told otherwise.
    ours = command[-1]
    if "vllm-raster map" in ours and "--url" not in ours:
        ours = f"{ours.rstrip()} --url http://{DEFAULT}"
    for address, server in servers.items():
        ours = ours.replace(address, f"{server.host}:{server.port}")
    done = subprocess.run(
        [*command[:-1], ours],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.engine
def test_commands_give_one_and_the_same_map(folder: Path, servers: dict[str, LocalServer]) -> None:
    for command in commands(".venv/bin/vllm-raster") + commands("base64"):
        run(folder, servers, ["bash", "-e", "-o", "pipefail", "-c", command])
    (program,) = blocks("python")
    printed = run(folder, servers, [sys.executable, "-c", program])
    assert "dense vegetation" in printed
    first, second, third = (
        (folder / "out" / name).read_bytes()
        for name in ("town.tif", "town_from_curl.tif", "town_from_python.tif")
    )
    assert first == second == third
    assert (folder / "out" / "town.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "out" / "trees.tif").read_bytes() != first


@pytest.mark.engine
def test_the_example_that_says_what_to_map(folder: Path, servers: dict[str, LocalServer]) -> None:
    """The one of the page of examples that needs a checkpoint with a language model."""
    page = read(ROOT / "docs" / "examples.md")
    found = re.findall(r"^```bash\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (command,) = [one for one in found if "127.0.0.1:8001" in one]
    if shutil.which("jq") is None:
        pytest.skip("jq is not on this machine")
    run(folder, servers, ["bash", "-e", "-o", "pipefail", "-c", command])
    assert (folder / "out" / "trees_by_curl.tif").read_bytes().startswith(b"II*\0")


def test_make_targets_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    pattern = re.compile(r"(?:^|`)make ([a-z0-9]+)", re.MULTILINE)
    named = {target for page in PAGES for target in pattern.findall(read(page))}
    assert {"demo", "test", "help"} <= named
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in named)


def test_checkpoints_page_writes_a_checkpoint(tmp_path: Path) -> None:
    page = read(ROOT / "docs" / "checkpoints.md")
    (program,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=120)
    files = {one.name for one in (tmp_path / "checkpoint").iterdir()}
    rows = " ".join(one for one in page.splitlines() if one.startswith("|"))
    assert files == set(re.findall(r"`([a-z_]+\.(?:json|safetensors))`", rows))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", read(page)):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("package", ["model/src/vllm_raster_model", "io_plugin/src/vllm_raster_io"])
def test_file_maps_name_every_file(package: str) -> None:
    source = ROOT / "packages" / package
    readme = read(source.parents[1] / "README.md")
    for file in source.glob("*.py"):
        assert file.name == "__init__.py" or f"`{file.name}`" in readme, file.name


def read(page: Path) -> str:
    return page.read_text()
