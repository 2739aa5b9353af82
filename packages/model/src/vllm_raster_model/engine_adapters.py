"""The seventh part of the seam: adapters of the language model inside, as vLLM applies them.

Written for vLLM 0.32; each function names what it mends.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Self

import torch
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU
from vllm.model_executor.models.utils import WeightsMapper
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request


class AdapterNames(WeightsMapper):
    """By what name vLLM has the module that a weight of an adapter is for.

    Args:
        served: From the weight's name in the adapter to vLLM's; raises where there is none.
    """

    def __init__(self, served: Callable[[str], str]) -> None:
        super().__init__()
        self.served = served

    def map_name(self, key: str) -> str:
        """The name that vLLM has."""
        return self.served(key)

    _map_name = map_name

    def get_rename_mapper(self) -> Self:
        """Nothing is done here but renaming."""
        return self


def keep_adapters_apart() -> None:
    """Has tokens without an adapter be read without one on a CPU; may be called twice.

    vLLM marks them by the index -1, and what stands for its kernels on a CPU takes the last
    adapter for these (vllm-project/vllm#48421): one request would change another's answer.
    """
    shrink, embed = PunicaWrapperCPU._apply_shrink, PunicaWrapperCPU.add_lora_embedding
    if shrink.__module__ == __name__:
        return

    def apply_shrink(self: PunicaWrapperCPU, y: torch.Tensor, *rest: Any) -> None:
        shrink(self, y, *rest)
        y[self.token_lora_indices < 0] = 0

    def add_lora_embedding(
        self: PunicaWrapperCPU, y: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any
    ) -> None:
        embed(self, y, x * (self.token_lora_indices >= 0)[:, None], *rest, **named)

    PunicaWrapperCPU._apply_shrink = apply_shrink
    PunicaWrapperCPU.add_lora_embedding = add_lora_embedding


@cache
def let_adapters_take_turns() -> None:
    """Has prompts wait whose adapter has no place in the next step; once a process.

    vLLM counts the adapters of prompts that a step goes on with. One that is read in part, and
    has no part in a step because there is no room for its image, is not counted: another adapter
    takes its place, and in the step after there are more than `--max-loras`, which ends the engine
    by an assertion in `Scheduler.schedule`.
    """
    schedule = Scheduler.schedule

    def schedule_in_turns(self: Scheduler, *args: Any, **kwargs: Any) -> Any:
        held = _without_place(self)
        if not held:
            return schedule(self, *args, **kwargs)
        self.waiting.remove_requests(held)
        try:
            return schedule(self, *args, **kwargs)
        finally:
            # The queue puts each in front of those before.
            self.waiting.prepend_requests(reversed(held))

    Scheduler.schedule = schedule_in_turns


def _without_place(scheduler: Scheduler) -> list[Request]:
    """The waiting prompts whose adapters may not join those that are read in part."""
    if not scheduler.lora_config:
        return []
    taken = {adapter for one in scheduler.running if (adapter := _adapter(one))}
    waiting = [one for one in scheduler.waiting if _adapter(one)] if taken else []
    held = []
    for one in waiting:
        if _adapter(one) in taken or len(taken) < scheduler.lora_config.max_loras:
            taken.add(_adapter(one))
        else:
            held.append(one)
    # Whoever has waited longest would wait for ever if others of the same adapter went on coming.
    return waiting if held and held[0] is waiting[0] else held


def _adapter(request: Request) -> int:
    """The number of a request's adapter; 0 for none."""
    return request.lora_request.lora_int_id if request.lora_request else 0
