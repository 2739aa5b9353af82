"""Networks of other packages, added by an entry point."""

import sys
from pathlib import Path

import pytest

from vllm_raster_model.errors import ContractError
from vllm_raster_model.networks import ENTRY_POINTS, network_class


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package as an installer leaves it."""
    (tmp_path / "theirs.py").write_text("class Theirs:\n    pass\n")
    facts = tmp_path / "theirs-1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Name: theirs\nVersion: 1\n")
    told = f"[{ENTRY_POINTS}]\ntheirs = theirs:Theirs\nprithvi_dense = theirs:Theirs\n"
    (facts / "entry_points.txt").write_text(told)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "theirs", raising=False)


@pytest.mark.usefixtures("installed")
def test_is_found_by_its_model_type() -> None:
    assert network_class("theirs").__name__ == "Theirs"


@pytest.mark.usefixtures("installed")
def test_takes_no_name_away() -> None:
    assert network_class("prithvi_dense").__name__ == "PrithviDense"


@pytest.mark.usefixtures("installed")
def test_is_named_where_another_is_asked_for() -> None:
    with pytest.raises(ContractError, match=r"prithvi_dense.*theirs.*got 'nobodys'"):
        network_class("nobodys")


def test_is_gone_with_its_package() -> None:
    with pytest.raises(ContractError, match=f"an entry point of '{ENTRY_POINTS}'"):
        network_class("theirs")
