"""What happens when a server starts, or cannot, and when it ends."""

import os
from pathlib import Path

import pytest

from vllm_raster_io import LocalServer, RasterClient, ServiceError

from ..factories import make_raster


def test_unknown_plugin_is_a_clear_error(checkpoint_without_plugin: Path) -> None:
    # The flag wins over the configuration, here over none.
    server = LocalServer(checkpoint_without_plugin, arguments=["--io-processor-plugin", "rooster"])
    with pytest.raises(ServiceError, match="'rooster' IO Processor plugin but it is not installed"):
        server.start()


def test_nothing_is_left_behind(checkpoint_without_plugin: Path) -> None:
    server = LocalServer(checkpoint_without_plugin, arguments=["--io-processor-plugin", "raster"])
    with server:
        group = server.group
        with RasterClient(server.url) as client:
            assert client.map(make_raster(height=20, width=30)).answer.width == 30
        assert "Serving in float32" in server.log.read_text()
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)
