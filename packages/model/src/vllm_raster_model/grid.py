"""The grid of cells that stands for an image among tokens.

A window is padded to whole cells. In the prompt it is its cells row by row, each row ended by
a row token, so that the tokens alone tell the grid's shape.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from einops import rearrange


@dataclass(frozen=True)
class Grid:
    """Rows and columns of cells of one window."""

    rows: int
    columns: int

    @classmethod
    def covering(cls, height: int, width: int, *, cell: int, minimum: int = 1) -> Self:
        """The smallest grid of cells of `cell` pixels, `minimum` a side, over a window."""
        return cls(max(minimum, -(-height // cell)), max(minimum, -(-width // cell)))

    @property
    def cells(self) -> int:
        """Number of cells, which is also the number of embeddings."""
        return self.rows * self.columns

    @property
    def tokens(self) -> int:
        """Number of tokens: the cells and one end a row."""
        return self.rows * (self.columns + 1)

    def token_ids(self, cell_token_id: int, row_token_id: int) -> list[int]:
        """The grid as it stands in a prompt."""
        return ([cell_token_id] * self.columns + [row_token_id]) * self.rows

    @classmethod
    def read_all(
        cls, token_ids: Sequence[int] | torch.Tensor, cell_token_id: int, row_token_id: int
    ) -> list[tuple[slice, Self]]:
        """The grids that stand in a prompt, each with its place among the tokens.

        Something stands between two grids. None is given where cells and row ends are not those
        of whole grids: whoever sends token ids may send these in any order.
        """
        # In numpy, for each step of torch's takes longer than the whole.
        ids = np.asarray(token_ids)
        inside = (ids == cell_token_id) | (ids == row_token_id)
        edges = np.flatnonzero(np.diff(inside, prepend=False, append=False))
        grids = []
        for place in map(slice, edges[::2].tolist(), edges[1::2].tolist()):
            rows = int((ids[place] == row_token_id).sum())
            grid = cls(rows, (place.stop - place.start) // max(rows, 1) - 1)
            if not grid.cells or grid.tokens != place.stop - place.start:
                return []
            row = ids[place].reshape(grid.rows, grid.columns + 1)
            if (row[:, :-1] != cell_token_id).any() or (row[:, -1] != row_token_id).any():
                return []
            grids.append((place, grid))
        return grids

    def cells_of(self, raster: torch.Tensor) -> torch.Tensor:
        """Cuts a map (channels, height, width) into (cells, channels * block height * width)."""
        return rearrange(raster, "c (r y) (k x) -> (r k) (c y x)", r=self.rows, k=self.columns)

    def map_of(self, cells: torch.Tensor, channels: int) -> torch.Tensor:
        """Lays cells out as a map (channels, height, width).

        Args:
            cells: (cells, channels * block * block), of `block` output pixels a side.
            channels: Of the map.
        """
        return self.laid_out(self.blocks_of(cells, channels))

    def blocks_of(self, cells: torch.Tensor, channels: int) -> torch.Tensor:
        """The same cells as (channels, rows, columns, block * block), without a copy.

        They may also come as (rows, columns, numbers of a cell).
        """
        return cells.view(self.rows, self.columns, channels, -1).movedim(2, 0)

    def laid_out(self, blocks: torch.Tensor) -> torch.Tensor:
        """Blocks (channels, rows, columns, block * block) as a map (channels, height, width)."""
        block = math.isqrt(blocks.shape[-1])
        return rearrange(blocks, "c r k (y x) -> c (r y) (k x)", y=block)
