"""Runs end-to-end tests on the wheels in dist, as a user would have them.

They are those marked `wheels`: what is left to others is the same for wheels as for the source,
on which `make test` runs all of them.

The wheels go into a fresh environment, the tests into a temporary folder: neither sees the
source tree, so a file missing from a wheel is found out.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = ROOT / ".venv-e2e"
PYTHON = ENVIRONMENT / "bin" / "python"
PACKAGES = ("vllm-raster-model[vllm,io]", "vllm-raster-io[vllm,model]")

FROM_WHEELS = """
import sysconfig, vllm_raster_io, vllm_raster_model
for package in (vllm_raster_io, vllm_raster_model):
    assert package.__file__.startswith(sysconfig.get_path("purelib")), package.__file__
"""


def install() -> None:
    venv.create(ENVIRONMENT, clear=True, with_pip=True)
    run(PYTHON, ROOT / "tools" / "install_engine.py")
    version = (ROOT / "VERSION").read_text().strip()
    ours = [f"{package}=={version}" for package in PACKAGES]
    hatch = tomllib.loads((ROOT / "hatch.toml").read_text())
    test_tools = hatch["envs"]["default"]["dependencies"]
    pip_install = (PYTHON, "-m", "pip", "install", "--quiet", "--find-links", ROOT / "dist")
    run(*pip_install, *ours, *test_tools)


def run_tests(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="vllm-raster-e2e-") as folder:
        for name in ("tests", "examples", "docs"):
            shutil.copytree(ROOT / name, Path(folder) / name)
        shutil.copy(ROOT / "pytest.toml", folder)
        run(PYTHON, "-c", FROM_WHEELS, cwd=folder)
        pytest = (PYTHON, "-m", "pytest", "-n", "2", "--dist", "loadfile", "-m", "wheels")
        return run(*pytest, "tests/e2e", *arguments, cwd=folder, check=False)


def run(*command: str | Path, cwd: str | Path = ROOT, check: bool = True) -> int:
    # As in an activated environment: the tests find `vllm` and `vllm-raster` on the path.
    environment = os.environ | {
        "PATH": f"{ENVIRONMENT / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "VIRTUAL_ENV": str(ENVIRONMENT),
    }
    environment.pop("PYTHONPATH", None)
    return subprocess.run(command, cwd=cwd, env=environment, check=check).returncode


if __name__ == "__main__":
    install()
    sys.exit(run_tests(sys.argv[1:]))
