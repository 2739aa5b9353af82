"""The pooler: the cells of a prompt are laid out as a map again."""

from collections.abc import Callable, Mapping, Set
from typing import Any

import torch

from vllm_raster_model.config import RasterConfig
from vllm_raster_model.crew import Crew, InTurn
from vllm_raster_model.engine import AllPool, Pooler, PoolingMetadata, PoolingParamsUpdate
from vllm_raster_model.grid import Grid
from vllm_raster_model.sent import sent

Decode = Callable[[torch.Tensor], torch.Tensor]
"""From the hidden states of cells to their blocks of output."""
ALL_IMAGES = "all"
"""Asks for the maps of all images of a prompt, which are of one size."""
_Found = tuple[torch.Tensor, Grid]
"""The hidden states of an image's cells and row ends, and how they lie."""


class MapPooler(Pooler):
    """Gives the map of an image of each prompt, or of all.

    It is the last one, or that which `PoolingParams.extra_kwargs["image"]` asks for by number, or
    `ALL_IMAGES`; its scores, or what `extra_kwargs["answer"]` asks for of them, see `sent.py`.

    The task is `token_classify`, the one that both of vLLM's model runners accept and that sees
    the hidden state of every token; those of a prompt that came in chunks are collected.
    """

    def __init__(
        self,
        config: RasterConfig,
        decode: Decode | None = None,
        crew: Crew | None = None,
        failed: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__()
        self.config = config
        # A function and no module, or its weights would have two names.
        self.decode = decode
        self.all_tokens = AllPool()
        self.crew = crew or InTurn()
        # Whether the network may have failed on a window, whose scores are NaN alone then.
        self.failed = failed

    def get_supported_tasks(self) -> Set[str]:
        """The one task."""
        return {"token_classify"}

    def get_pooling_updates(self, task: str) -> PoolingParamsUpdate:
        """Asks for the prompt's tokens, which tell the grid."""
        return PoolingParamsUpdate(requires_token_ids=True)

    def forward(
        self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata
    ) -> list[torch.Tensor | None]:
        """Maps of all prompts of a batch.

        Args:
            hidden_states: (tokens of the batch, numbers a cell).
            pooling_metadata: Says which tokens are whose.

        Returns:
            One (channels, height, width) a prompt, padded to whole cells, or (1, height, width)
            of class ids; of all images one (images, …); None where its last chunk is still to
            come; an empty one where it has no image, as in trial runs, where its tokens are not
            those of whole images, where a part of it was not read but taken from the cache of
            prefixes, or where the network failed: an error here would stop the engine.
        """
        prompts = pooling_metadata.get_prompt_token_ids_cpu()
        _forget_what_is_read_again(pooling_metadata)
        states = self.all_tokens(hidden_states, pooling_metadata)
        asked = [one.extra_kwargs or {} for one in pooling_metadata.pooling_params]
        wanted = [self._wanted(*one) for one in zip(states, prompts, asked, strict=True)]
        to_lay = [
            (*one, of_it.get("answer"))
            for found, of_it in zip(wanted, asked, strict=True)
            for one in found
        ]
        laid = iter(self.crew.each(self._laid, to_lay, short=True))
        return [
            None if here is None else self._answer([next(laid) for _ in found], of_it, here)
            for here, found, of_it in zip(states, wanted, asked, strict=True)
        ]

    def _wanted(
        self, states: torch.Tensor | None, token_ids: torch.Tensor, asked: Mapping[str, Any]
    ) -> list[_Found]:
        """The images of a prompt whose maps are asked for."""
        if states is None or len(states) != len(token_ids):
            return []
        grids = Grid.read_all(token_ids, self.config.image_token_id, self.config.row_token_id)
        number = asked.get("image", len(grids) - 1)
        if number == ALL_IMAGES:
            alike = len({grid for _, grid in grids}) == 1
            return [(states[place], grid) for place, grid in grids] if alike else []
        if type(number) is not int or number not in range(len(grids)):
            return []
        place, grid = grids[number]
        return [(states[place], grid)]

    def _laid(self, image: tuple[torch.Tensor, Grid, object]) -> torch.Tensor:
        states, grid, answer = image
        channels = self.config.contract.output.channels
        cells = states.view(grid.rows, grid.columns + 1, -1)[:, :-1]
        if self.decode is not None:
            cells = self.decode(cells.flatten(0, 1))
        blocks = grid.blocks_of(cells, channels)
        if self.failed() and blocks.isnan().all():
            return blocks.new_zeros((channels, 0, 0))
        # Chosen before it is laid out, for ids are the fewer to move.
        laid = grid.laid_out(sent(blocks, answer))
        # A single cell need not be moved, but the next step writes over where it is.
        return laid.clone() if _same_memory(laid, states) else laid

    def _answer(
        self, maps: list[torch.Tensor], asked: Mapping[str, Any], states: torch.Tensor
    ) -> torch.Tensor:
        if not all(one.numel() for one in maps) or not maps:
            return states.new_zeros((self.config.contract.output.channels, 0, 0))
        return _together(maps) if asked.get("image") == ALL_IMAGES else maps[0]


def _together(maps: list[torch.Tensor]) -> torch.Tensor:
    """Maps of one prompt as one tensor; rounded scores are of the wider type if one map's are."""
    if len({one.dtype for one in maps}) > 1:
        maps = [one.float() for one in maps]
    return torch.stack(maps) if len(maps) > 1 else maps[0][None]


def _same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def _forget_what_is_read_again(pooling_metadata: PoolingMetadata) -> None:
    """Drops the states collected of prompts that were put off halfway and start anew.

    vLLM's first model runner keeps them, and would put those of the second reading behind them.
    """
    cursor = pooling_metadata.get_pooling_cursor()
    starts = (cursor.seq_lens_cpu - cursor.num_scheduled_tokens_cpu).tolist()
    for start, collected in zip(starts, pooling_metadata.pooling_states, strict=True):
        chunks = collected.hidden_states_cache
        if sum(map(len, chunks)) > start:
            chunks[:] = [torch.cat(chunks)[:start]]
