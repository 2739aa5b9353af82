"""A network that fails on one window fails the request of that window, and no other."""

import logging
from typing import Any

import pytest
import torch

from vllm_raster_model.crew import InTurn, OpenMPCrew
from vllm_raster_model.engine_ahead import windows_of
from vllm_raster_model.grid import Grid

from .checkpoints import CELL
from .items import window
from .runners import Request, first_runner, step, whole
from .serving import InstructedServing, Serving
from .test_engine_ahead import chosen

IMAGE, ROW = 4, 5
POISON = 7777


@pytest.fixture(params=["in turn", "side by side"])
def failing(
    prithvi: Serving, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Serving:
    """A served network that fails where a window is of nothing but one number."""
    predictor = prithvi.model.predictor
    crew = InTurn() if request.param == "in turn" else OpenMPCrew(2, side_by_side=True)
    monkeypatch.setattr(predictor, "crew", crew)
    monkeypatch.setattr(predictor, "failed", False)
    maps = type(predictor)._maps

    def poisoned(self: Any, windows: Any) -> Any:
        if any((pixels == POISON).all() for pixels, *_ in windows):
            raise RuntimeError("could not allocate")
        return maps(self, windows)

    monkeypatch.setattr(type(predictor), "_maps", poisoned)
    return prithvi


def items() -> list[dict[str, Any]]:
    made = [window(32, 32, seed=i) for i in range(5)] + [window(24, 16, seed=9)]
    for i in (1, 5):
        made[i]["pixel_values"][:] = POISON
    return made


@pytest.mark.parametrize("ahead", [False, True])
def test_others_are_answered(
    failing: Serving, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    good = [one for i, one in enumerate(items()) if i not in (1, 5)]
    expected = failing.encode([failing.prepare("<image>", one) for one in good])
    assert not failing.model.predictor.failed
    prepared, scheduled = chosen(failing, items())
    if ahead:
        failing.model.predictor.begin(windows_of(scheduled))
    found = failing.encode(prepared)
    assert failing.model.predictor.failed
    for i, one in enumerate(found):
        if i in (1, 5):
            assert one.isnan().all()
        else:
            torch.testing.assert_close(one, expected.pop(0), rtol=1e-5, atol=1e-5)
    assert [one.shape for one in found[:2]] == [found[0].shape] * 2
    assert "could not allocate" in caplog.text
    assert "The network failed on a window of shape (3, 1, 32, 32)" in caplog.text


def test_the_pooler_has_no_map_of_it(failing: Serving) -> None:
    grid, pooler = Grid(4, 4), failing.model.pooler
    ids = [*grid.token_ids(IMAGE, ROW), 7, *grid.token_ids(IMAGE, ROW)]
    cells = failing.encode([failing.prepare("<image>", one) for one in items()[:2]])
    hidden = torch.zeros(len(ids), cells[0].shape[1])
    hidden[[i for i, one in enumerate(ids) if one == IMAGE]] = torch.cat(cells)
    for asked, numbers in (({"image": 0}, 32 * 32), ({"image": 1}, 0), ({"image": "all"}, 0)):
        (found,) = step(pooler, first_runner, whole(Request(ids, hidden)), **asked)
        assert found[0].numel() == numbers


def test_a_network_that_never_worked_ends_the_start(
    failing: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a device on which vLLM tries it before it serves."""
    predictor = failing.model.predictor
    monkeypatch.setattr(predictor, "_worked", False)
    poisoned = [failing.prepare("<image>", items()[1])]
    monkeypatch.setattr(type(predictor), "_device", torch.device("cuda"))
    with pytest.raises(RuntimeError, match="could not allocate"):
        failing.encode(poisoned)
    assert not predictor.failed


def test_nan_is_an_answer_where_nothing_failed(prithvi: Serving) -> None:
    grid = Grid(2, 2)
    ids = grid.token_ids(IMAGE, ROW)
    hidden = torch.full((len(ids), 2 * CELL**2), torch.nan)
    assert not prithvi.model.predictor.failed
    (found,) = step(prithvi.model.pooler, first_runner, whole(Request(ids, hidden)))
    assert found.isnan().all()
    assert found.numel()


def test_plain_pytorch_says_it(failing: Serving) -> None:
    """Where nobody else's request depends on it, it is raised."""
    predictor = failing.model.predictor
    pixels = torch.full((3, 1, 32, 32), POISON)
    nothing = torch.full((1, 2), torch.nan), torch.full((2,), torch.nan)
    with pytest.raises(RuntimeError, match="could not allocate"):
        predictor([pixels], [torch.zeros(0, 0, dtype=torch.bool)], *([one] for one in nothing))


def test_the_language_model_sees_nothing_of_it(
    llama: InstructedServing, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor = llama.model.predictor
    monkeypatch.setattr(predictor, "failed", False)
    prepared = [llama.prepare("water", window(24, 16, seed=i)) for i in range(2)]
    right = llama.encode(prepared)
    maps = type(predictor)._maps

    def poisoned(self: Any, windows: Any) -> Any:
        if any((one[0] == windows_of_first).all() for one in windows):
            raise MemoryError("no more")
        return maps(self, windows)

    (windows_of_first,) = prepared[0]["mm_kwargs"]["image"][0]["pixel_values"].data
    monkeypatch.setattr(type(predictor), "_maps", poisoned)
    bad, good = llama.encode(prepared)
    torch.testing.assert_close(good, right[1], rtol=1e-5, atol=1e-5)
    width = llama.model.width
    assert not bad[:, :width].isnan().any()
    assert bad[:, width:].isnan().all()
