"""Collectives: what the ranks of a loader tell each other, on gloo groups beside any training traffic."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from voxload.errors import InternalError, UsageError
from voxload.grid import ProcessGrid
from voxload.launch.collectives import all_gathered

AGREEMENT_TIMEOUT = timedelta(minutes=5)
"""How long a rank waits for the others: longer than any healthy step, shorter than a lost night."""


class GroupAgreement:
    """Compares, batch by batch, what the ranks of one sample group are about to deliver.

    Every rank of the group calls `check` as often as the others: once a batch and once at the end of an epoch.
    One small all-gather on a gloo group of its own, so it runs on the host beside any training traffic.
    Used by one thread.

    Parameters
    ----------
    grid
        The ranks.
    fingerprint
        Digest of the data set: indices mean the same samples only when it agrees too.
    """

    def __init__(self, grid: ProcessGrid, fingerprint: str) -> None:
        self._grid = grid
        self._fingerprint = fingerprint
        self._group: dist.ProcessGroup | None = None
        self._is_open = False

    def check(self, indices: Sequence[int] | None, *, step: int) -> None:
        """Compare one batch's sample indices; None stands for the end of the epoch.

        Raises
        ------
        UsageError
            On every rank of the group, when the ranks differ.
        InternalError
            When a rank does not answer in time.
        """
        if self._grid.group_size == 1 or not self._ready():
            return
        text = f"{self._fingerprint} {step} {None if indices is None else list(indices)}"
        mine = hashlib.sha256(text.encode()).digest()[:8]
        own = torch.tensor([int.from_bytes(mine, "little", signed=True)])
        gathered = [torch.zeros_like(own) for _ in range(self._grid.group_size)]
        try:
            dist.all_gather(gathered, own, group=self._group)
        except RuntimeError as error:
            raise InternalError(
                f"sample group {self._grid.group}, step {step}",
                found=f"a rank that does not answer: {str(error).splitlines()[0]}",
                remedy="see the log of the rank that stopped; every rank must draw as many batches",
            ) from error
        found = [int(digest) for digest in gathered]
        if len(set(found)) > 1:
            differing = [rank for rank, value in zip(self._grid.group_ranks, found, strict=True) if value != found[0]]
            raise UsageError(
                f"sample group {self._grid.group}, step {step}",
                found=f"ranks {differing} with other samples than rank {self._grid.group_ranks[0]}",
                expected="the same samples on every rank of a group",
                remedy="give all ranks the same data, and build samplers over grid.groups, not over ranks",
            )

    def _ready(self) -> bool:
        """Open the group on first use; False, with a warning, where ranks have no way to talk."""
        if not self._is_open:
            self._is_open = True
            if not (dist.is_available() and dist.is_initialized()):
                warnings.warn(
                    "torch.distributed is not initialised: ranks of a sample group cannot compare their samples; "
                    "call torch.distributed.init_process_group before the first batch",
                    stacklevel=6,
                )
                return False
            if dist.get_world_size() != self._grid.world_size or dist.get_rank() != self._grid.rank:
                raise UsageError(
                    "process grid",
                    found=f"rank {self._grid.rank} of {self._grid.world_size}",
                    expected=f"rank {dist.get_rank()} of {dist.get_world_size()} as torch.distributed has it",
                    remedy="build the grid with ProcessGrid.from_env",
                )
            self._group = dist.new_group(
                list(self._grid.group_ranks),
                backend="gloo",
                timeout=AGREEMENT_TIMEOUT,
                use_local_synchronization=True,
            )
        return self._group is not None


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
