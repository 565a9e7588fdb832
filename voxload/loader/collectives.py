"""Collectives: what the ranks of a loader tell each other, on gloo groups beside any training traffic."""

from __future__ import annotations

import warnings
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist

from voxload.errors import InternalError, UsageError
from voxload.grid import ProcessGrid
from voxload.launch.collectives import all_gathered

T = TypeVar("T")

RENDEZVOUS_TIMEOUT = timedelta(minutes=5)
"""How long a rank waits for the others: longer than any healthy start, shorter than a lost night."""


class Rendezvous:
    """All ranks of a job, on a gloo group of its own, beside any training traffic; used by one thread.

    Every rank makes one, and calls `gather` as often as the others.

    Parameters
    ----------
    grid
        The ranks.

    Raises
    ------
    UsageError
        When the grid is not the one that torch.distributed runs.
    """

    def __init__(self, grid: ProcessGrid) -> None:
        self._group: dist.ProcessGroup | None = None
        self.ranks = 1
        """Ranks that can talk to each other: all of the job, or this one alone."""
        if grid.world_size == 1:
            return
        if not (dist.is_available() and dist.is_initialized()):
            warnings.warn(
                "torch.distributed is not initialised: ranks cannot share blocks, and each keeps its own only; "
                "call torch.distributed.init_process_group before the first batch",
                stacklevel=2,
            )
            return
        if (dist.get_world_size(), dist.get_rank()) != (grid.world_size, grid.rank):
            raise UsageError(
                "process grid",
                found=f"rank {grid.rank} of {grid.world_size}",
                expected=f"rank {dist.get_rank()} of {dist.get_world_size()} as torch.distributed has it",
                remedy="build the grid with ProcessGrid.from_env",
            )
        self._group = dist.new_group(backend="gloo", timeout=RENDEZVOUS_TIMEOUT)
        self.ranks = grid.world_size

    def gather(self, mine: T, kind: Any) -> list[T]:
        """Return what every rank gave, by rank; `[mine]` where this rank is alone.

        Parameters
        ----------
        mine
            A value that `voxload.launch.wire` knows.
        kind
            The type that every rank's must have.

        Raises
        ------
        InternalError
            When a rank does not answer in time, or gave something else.
        """
        if self._group is None:
            return [mine]
        try:
            return all_gathered(mine, kind, group=self._group)
        except InternalError:
            raise
        except RuntimeError as error:
            raise InternalError(
                "rendezvous of the ranks",
                found=f"a rank that does not answer: {str(error).splitlines()[0]}",
                remedy="see the log of the rank that stopped; every rank must begin as many epochs",
            ) from error

    def close(self) -> None:
        """Leave the group."""
        group, self._group = self._group, None
        if group is not None and dist.is_initialized():
            dist.destroy_process_group(group)
