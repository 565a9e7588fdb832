"""JobGrid: the process grid of the running job, looked up when it is first needed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist

from voxload.grid import ProcessGrid, launched_as, spatial_counts


class JobGrid:
    """Blocks along (d, h, w), which become a ProcessGrid once the job's ranks are known; safe to use from many threads.

    The ranks are torch.distributed's where it is initialised, else those that the launcher put into the environment.
    They are looked up once. What is pickled while torch.distributed is initialised is looked up before that: a worker
    process that is given it has no torch.distributed of its own.

    Parameters
    ----------
    grid
        Number of blocks along (d, h, w); or a ProcessGrid, which needs no look-up.

    Raises
    ------
    UsageError
        When `grid` is not three counts of 1 or more.
    """

    def __init__(self, grid: ProcessGrid | Sequence[int]) -> None:
        self._spatial = grid.spatial if isinstance(grid, ProcessGrid) else spatial_counts(grid)
        self._found = grid if isinstance(grid, ProcessGrid) else None

    @property
    def spatial(self) -> tuple[int, int, int]:
        """Blocks along (d, h, w)."""
        return self._spatial

    @property
    def is_known(self) -> bool:
        """Whether the ranks are looked up."""
        return self._found is not None

    def __call__(self) -> ProcessGrid:
        """Return the grid; raises UsageError when the world is not a whole number of sample groups."""
        if self._found is None:
            self._found = _grid_now(self._spatial)
        return self._found

    def __eq__(self, other: object) -> bool:
        """Tell whether both are, or will be, the same grid."""
        if not isinstance(other, JobGrid) or self.is_known != other.is_known:
            return False
        return self._found == other._found and self._spatial == other._spatial

    def __hash__(self) -> int:
        return hash(self._spatial)

    def __getstate__(self) -> dict[str, Any]:
        if _is_distributed():
            self()
        return vars(self)


def _grid_now(spatial: tuple[int, int, int]) -> ProcessGrid:
    """Return the grid of the ranks that there are now."""
    if _is_distributed():
        return ProcessGrid(spatial=spatial, world_size=dist.get_world_size(), rank=dist.get_rank())
    rank, world_size = launched_as(os.environ)
    return ProcessGrid(spatial=spatial, world_size=world_size, rank=rank)


def _is_distributed() -> bool:
    return dist.is_available() and dist.is_initialized()
