"""What happens when a server starts, or cannot, and when it ends."""

import os
import signal
import time
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file

from vllm_raster_io import LocalServer, RasterClient, ServiceError

from ..factories import make_raster

pytestmark = pytest.mark.wheels


def test_unknown_plugin_is_a_clear_error(checkpoint_without_plugin: Path) -> None:
    # The flag wins over the configuration, here over none.
    server = LocalServer(checkpoint_without_plugin, arguments=["--io-processor-plugin", "rooster"])
    with pytest.raises(ServiceError, match="'rooster' IO Processor plugin but it is not installed"):
        server.start()


def test_a_missing_weight_is_named(checkpoint_without_plugin: Path, tmp_path: Path) -> None:
    weights = load_file(checkpoint_without_plugin / "model.safetensors")
    name = min(weights)
    del weights[name]
    folder = copied(checkpoint_without_plugin, tmp_path)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ServiceError, match=f"WeightsError: .* Missing: {name}"):
        LocalServer(folder).start()


def test_pickled_weights_are_not_read(checkpoint_without_plugin: Path, tmp_path: Path) -> None:
    folder = copied(checkpoint_without_plugin, tmp_path)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ServiceError, match="Cannot find any model weights"):
        LocalServer(folder).start()


def test_nothing_is_left_behind(checkpoint_without_plugin: Path) -> None:
    server = LocalServer(checkpoint_without_plugin, arguments=["--io-processor-plugin", "raster"])
    with server:
        group = server.group
        with RasterClient(server.url) as client:
            assert client.map(make_raster(height=20, width=30)).answer.width == 30
        assert "Serving in float32" in server.log.read_text()
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)


def test_one_process_computes_and_an_interrupt_ends_all(checkpoint_without_plugin: Path) -> None:
    server = LocalServer(
        checkpoint_without_plugin,
        arguments=["--io-processor-plugin", "raster"],
        environment={"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"},
    )
    with server:
        group = server.group
        names = [one.name() for one in psutil.Process(group).children(recursive=True)]
        assert not any("Worker" in name for name in names)
        assert "Computing in the engine's process; threads: 1." in server.log.read_text()
        os.killpg(group, signal.SIGINT)
        psutil.Process(group).wait(60)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and _is_there(group):
            time.sleep(0.2)
        assert not _is_there(group)


def _is_there(group: int) -> bool:
    members = (one for one in psutil.process_iter() if one.status() != psutil.STATUS_ZOMBIE)
    return any(_group(one) == group for one in members)


def _group(process: psutil.Process) -> int | None:
    try:
        return os.getpgid(process.pid)
    except ProcessLookupError:
        return None


def copied(checkpoint: Path, folder: Path) -> Path:
    for file in checkpoint.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder
