"""Which waiting prompts must let others end first, for their adapter has no place beside theirs."""

from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.core.sched.request_queue import FCFSRequestQueue
from vllm.v1.core.sched.scheduler import Scheduler

from vllm_raster_model.engine_adapters import let_adapters_take_turns


def request(adapter: int) -> Any:
    """Of an adapter; 0 for none."""
    return SimpleNamespace(lora_request=adapter and SimpleNamespace(lora_int_id=adapter))


@pytest.mark.parametrize(
    ("running", "waiting", "most", "seen"),
    [
        # Nothing is read in part: vLLM counts right.
        ([], [1, 2, 1], 1, [1, 2, 1]),
        ([0], [1, 2, 1], 1, [1, 2, 1]),
        # The first in the queue has no place: all with an adapter wait, or it would for ever.
        ([1], [2, 1, 0], 1, [0]),
        ([1], [0, 2, 1], 1, [0]),
        ([1], [1, 2, 1, 0], 1, [1, 1, 0]),
        ([1], [2, 3, 2, 1], 2, [2, 2, 1]),
        ([1, 2], [3, 1], 2, []),
        ([1, 2], [3, 1], 3, [3, 1]),
    ],
)
def test_who_waits(
    monkeypatch: pytest.MonkeyPatch, running: list[int], waiting: list[int], most: int, seen: Any
) -> None:
    told: list[Any] = []

    def schedule(self: Any) -> str:
        told.append([one.lora_request and one.lora_request.lora_int_id for one in self.waiting])
        return "step"

    monkeypatch.setattr(Scheduler, "schedule", schedule)
    let_adapters_take_turns.__wrapped__()
    queue = FCFSRequestQueue(map(request, waiting))
    before = list(queue)
    made = SimpleNamespace(
        lora_config=SimpleNamespace(max_loras=most),
        running=list(map(request, running)),
        waiting=queue,
        schedule=Scheduler.schedule,
    )
    monkeypatch.setattr(FCFSRequestQueue, "remove_requests", _remove)
    assert Scheduler.schedule(made) == "step"
    assert told == [seen]
    # Nobody is lost, and nobody of those that were held has a later place than before.
    assert {id(one) for one in queue} == {id(one) for one in before}
    held = [one for one in queue if _number(one) not in (0, *seen)]
    assert held == [one for one in before if one in held]


def _number(one: Any) -> int:
    return one.lora_request.lora_int_id if one.lora_request else 0


def _remove(self: Any, requests: Any) -> None:
    # vLLM's own puts them into a set, which these cannot be in.
    kept = [one for one in self if not any(one is other for other in requests)]
    self.clear()
    self.extend(kept)
