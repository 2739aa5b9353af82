"""Batches for the pooler, built as vLLM's two model runners build them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from vllm.pooling_params import PoolingParams
from vllm.v1.pool.metadata import PoolingMetadata, PoolingStates

from vllm_raster_model.pooler import MapPooler

TASK = "token_classify"
CPU = torch.device("cpu")

_VOCABULARY = 22


@dataclass
class Request:
    """A prompt on its way, with a hidden state for each of its tokens."""

    ids: list[int]
    hidden: torch.Tensor
    computed: int = 0
    states: PoolingStates = field(default_factory=PoolingStates)


def params(pooler: MapPooler, answer: str | None = None, **asked: Any) -> PoolingParams:
    if answer:
        asked["answer"] = answer
    made = PoolingParams(task=TASK, extra_kwargs=asked or None)
    pooler.get_pooling_updates(TASK).apply(made)
    return made


def first_runner(requests: Sequence[Request], made: PoolingParams) -> PoolingMetadata:
    """As `InputBatch.get_pooling_metadata` builds it."""
    lengths = torch.tensor([len(one.ids) for one in requests], dtype=torch.int32)
    ids = torch.full((len(requests), int(lengths.max())), _VOCABULARY, dtype=torch.int64)
    return _metadata(requests, made, lengths, ids)


def second_runner(requests: Sequence[Request], made: PoolingParams) -> PoolingMetadata:
    """As `PoolingRunner._get_pooling_metadata` builds it."""
    lengths = torch.from_numpy(np.array([len(one.ids) for one in requests], np.int32))
    ids = torch.zeros((len(requests), int(lengths.max())), dtype=torch.int64)
    return _metadata(requests, made, lengths, ids)


def _metadata(
    requests: Sequence[Request], made: PoolingParams, lengths: torch.Tensor, ids: torch.Tensor
) -> PoolingMetadata:
    for row, one in zip(ids, requests, strict=True):
        row[: len(one.ids)] = torch.tensor(one.ids)
    return PoolingMetadata(
        prompt_lens=lengths,
        prompt_token_ids=None,
        prompt_token_ids_cpu=ids,
        pooling_params=[made] * len(requests),
        pooling_states=[one.states for one in requests],
    )


Runner = Callable[[Sequence[Request], PoolingParams], PoolingMetadata]


def step(
    pooler: MapPooler,
    runner: Runner,
    scheduled: Sequence[tuple[Request, int]],
    answer: str | None = None,
    **asked: Any,
) -> list[torch.Tensor | None]:
    """Pools so many tokens of each request, out of a buffer that is used again afterwards."""
    requests = [one for one, _ in scheduled]
    counts = np.array([count for _, count in scheduled], np.int32)
    buffer = torch.cat([one.hidden[one.computed :][:count] for one, count in scheduled])
    for one, count in scheduled:
        one.computed += count
    given = runner(requests, params(pooler, answer, **asked))
    given.build_pooling_cursor(
        counts,
        torch.tensor([one.computed for one in requests], dtype=torch.int32),
        device=CPU,
        query_start_loc_gpu=torch.tensor([0, *np.cumsum(counts)], dtype=torch.int32),
    )
    # Not copied: the engine sends them while the next step is under way.
    maps = pooler(buffer, given)
    buffer.fill_(torch.nan)
    return maps


def whole(*requests: Request) -> list[tuple[Request, int]]:
    """Schedules all tokens of each request."""
    return [(one, len(one.ids)) for one in requests]


def first_runner_s_dummies(tokens: int, at_most: int, made: PoolingParams) -> PoolingMetadata:
    """As `GPUModelRunner._dummy_pooler_run_task` builds them."""
    count = min(tokens, at_most)
    scheduled = np.full(count, tokens // count)
    scheduled[-1] += tokens % count
    ids = torch.zeros((count, tokens // count), dtype=torch.int32)  # too short for the last
    return _dummies(scheduled, made, ids, ids.cpu())


def second_runner_s_dummies(tokens: int, at_most: int, made: PoolingParams) -> PoolingMetadata:
    """As `PoolingRunner._dummy_pooler_run_task` builds them."""
    count = min(tokens, at_most)
    scheduled = np.full(count, tokens // count, dtype=np.int32)
    if extra := tokens % count:
        scheduled[-extra:] += 1
    ids = torch.zeros((count, int(scheduled.max())), dtype=torch.int64)
    return _dummies(scheduled, made, None, ids)


def _dummies(
    scheduled: npt.NDArray[Any],
    made: PoolingParams,
    ids: torch.Tensor | None,
    ids_cpu: torch.Tensor,
) -> PoolingMetadata:
    lengths = torch.from_numpy(scheduled)
    given = PoolingMetadata(
        prompt_lens=lengths,
        prompt_token_ids=ids,
        prompt_token_ids_cpu=ids_cpu,
        pooling_params=[made] * len(scheduled),
        pooling_states=[PoolingStates() for _ in scheduled],
    )
    given.build_pooling_cursor(scheduled, seq_lens_cpu=lengths, device=CPU)
    return given
