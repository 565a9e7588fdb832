"""Collectives: what the ranks of a loader tell each other, on gloo groups beside any training traffic."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from voxload.errors import InternalError, UsageError
from voxload.grid import ProcessGrid
from voxload.launch.collectives import all_gathered

AGREEMENT_TIMEOUT = timedelta(minutes=5)
"""How long a rank waits for the others: longer than any healthy step, shorter than a lost night."""


@dataclass(slots=True)
class _Announced:
    """A batch whose digest is on its way to the other ranks."""

    digest: int
    step: int
    work: Any
    """What is waited for."""


class GroupAgreement:
    """Compares, batch by batch, what the ranks of one sample group are about to deliver.

    Every rank of the group calls `check` as often as the others: once a batch and once at the end of an epoch. What a
    batch will be is announced while the loop works on the one before, so that a check finds all answers there. One that
    is not as this rank announced it is compared anew; the others then meet that in place of the next announcement.

    One small all-gather a batch on a gloo group of its own, so it runs on the host beside any training traffic. Used by
    one thread.

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
        self._announced: _Announced | None = None
        self._own = torch.zeros(1, dtype=torch.int64)
        self._found = torch.zeros(grid.group_size, dtype=torch.int64)
        self._places = [self._found[place : place + 1] for place in range(grid.group_size)]

    @property
    def is_shared(self) -> bool:
        """Whether there are other ranks to agree with."""
        return self._grid.group_size > 1

    def announce(self, indices: Sequence[int] | None, *, step: int) -> None:
        """Tell the others what the next batch will be; returns at once, and what fails is told by its `check`."""
        group = self._opened() if self.is_shared and self._announced is None else None
        if group is not None:
            with suppress(RuntimeError):
                self._announced = self._begin(group, self._digest(indices, step), step)

    def check(self, indices: Sequence[int] | None, *, step: int) -> None:
        """Compare one batch's sample indices; None stands for the end of the epoch.

        Raises
        ------
        UsageError
            On every rank of the group, when the ranks differ.
        InternalError
            When a rank does not answer in time.
        """
        group = self._opened() if self.is_shared else None
        if group is None:
            return
        digest, announced = self._digest(indices, step), self._announced
        if announced is not None:
            self._compare(announced)
            if announced.digest == digest:
                return
        try:
            announced = self._begin(group, digest, step)
        except RuntimeError as error:
            raise self._unanswered(step, error) from error
        self._compare(announced)

    def _digest(self, indices: Sequence[int] | None, step: int) -> int:
        text = f"{self._fingerprint} {step} {None if indices is None else list(indices)}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little", signed=True)

    def _begin(self, group: dist.ProcessGroup, digest: int, step: int) -> _Announced:
        self._own[0] = digest
        return _Announced(digest, step, group.allgather([self._places], [self._own]))

    def _compare(self, announced: _Announced) -> None:
        """Wait for what all ranks announced, and compare it; it is announced no more, whatever becomes of it."""
        self._announced = None
        try:
            announced.work.wait()
        except RuntimeError as error:
            raise self._unanswered(announced.step, error) from error
        found = self._found.tolist()
        if len(set(found)) > 1:
            differing = [rank for rank, value in zip(self._grid.group_ranks, found, strict=True) if value != found[0]]
            raise UsageError(
                f"sample group {self._grid.group}, step {announced.step}",
                found=f"ranks {differing} with other samples than rank {self._grid.group_ranks[0]}",
                expected="the same samples on every rank of a group",
                remedy="give all ranks the same data, and build samplers over grid.groups, not over ranks",
            )

    def _unanswered(self, step: int, error: RuntimeError) -> InternalError:
        return InternalError(
            f"sample group {self._grid.group}, step {step}",
            found=f"a rank that does not answer: {str(error).splitlines()[0]}",
            remedy="see the log of the rank that stopped; every rank must draw as many batches",
        )

    def _opened(self) -> dist.ProcessGroup | None:
        """Return the group, opened on first use; None, with a warning, where ranks have no way to talk."""
        if not self._is_open:
            self._is_open = True
            if not (dist.is_available() and dist.is_initialized()):
                warnings.warn(
                    "torch.distributed is not initialised: ranks of a sample group cannot compare their samples; "
                    "call torch.distributed.init_process_group before the first batch",
                    stacklevel=6,
                )
                return None
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
        return self._group


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
