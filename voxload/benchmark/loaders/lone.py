"""LoneGrid: the grid of a rank whose job runs only in part, so that it waits for nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch.distributed as dist

from voxload.geometry import Box
from voxload.grid import ProcessGrid


@dataclass(frozen=True, slots=True)
class LoneGrid(ProcessGrid):
    """One rank to whoever would talk to others; its block is that of its place among all of them."""

    place: ProcessGrid = field(default_factory=ProcessGrid)
    """The ranks, of which others are absent."""

    def block(self, shape: Sequence[int]) -> Box:
        """See ProcessGrid."""
        return self.place.block(shape)


def is_whole(grid: ProcessGrid) -> bool:
    """Tell whether all ranks of a grid run, and can talk to each other by torch.distributed."""
    if grid.world_size == 1:
        return True
    is_job = dist.is_available() and dist.is_initialized()
    return is_job and (dist.get_world_size(), dist.get_rank()) == (grid.world_size, grid.rank)
