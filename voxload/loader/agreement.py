"""GroupAgreement: the ranks of a sample group compare what they are about to deliver, batch by batch."""

from __future__ import annotations

import hashlib
import threading
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from voxload.errors import InternalError, UsageError
from voxload.grid import ProcessGrid
from voxload.prefetch.execution.threadpool import DaemonThreadPool

AGREEMENT_TIMEOUT = timedelta(minutes=5)
"""How long a rank waits for the others: longer than any healthy step, shorter than a lost night."""


@dataclass(frozen=True, slots=True)
class Coming:
    """What a batch is, to those who compare it."""

    indices: tuple[int, ...] | None
    """Samples; None at the end of the epoch."""
    step: int
    """Its number in the epoch."""


class GroupAgreement:
    """Compares, batch by batch, what the ranks of one sample group are about to deliver.

    Every rank of the group calls `check` as often as the others: once a batch and once at the end of an epoch. What a
    batch will be is announced while the loop works on the one before, and compared by a thread, so that a check finds
    the outcome there. One that is not as this rank announced it is compared anew; the others then meet that in place of
    the next announcement.

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
        self._exchange: _Exchange | None = None
        self._is_open = False
        self._announced: _Announcement | None = None
        self._threads = DaemonThreadPool(1, "voxload-agreement")

    @property
    def is_shared(self) -> bool:
        """Whether there are other ranks to agree with."""
        return self._grid.group_size > 1

    def renew(self, fingerprint: str) -> None:
        """Compare batches of another data set from the next one on; between epochs, when nothing is announced."""
        self._fingerprint = fingerprint
        if self._exchange is not None:
            self._exchange.fingerprint = fingerprint

    def announce(self, coming: Coming) -> None:
        """Tell the others what the next batch will be; returns at once, and what fails is told by its `check`."""
        if self._exchange is None or self._announced is not None:
            return
        announced = _Announcement(self._exchange, coming)
        self._threads.post(announced)
        self._announced = announced

    def check(self, coming: Coming) -> None:
        """Compare one batch with the other ranks'.

        Raises
        ------
        UsageError
            On every rank of the group, when the ranks differ.
        InternalError
            When a rank does not answer in time.
        """
        announced, self._announced = self._announced, None
        if announced is not None:
            announced.outcome()
            if announced.coming == coming:
                return
        exchange = self._opened() if self.is_shared else None
        if exchange is not None:
            exchange.compare(coming)

    def close(self) -> None:
        """Stop the thread: what it compares is waited for, though not for ever. A further batch begins with another."""
        threads, self._threads = self._threads, DaemonThreadPool(1, "voxload-agreement")
        self._announced = None
        threads.shutdown()  # the other ranks count on what was announced

    def _opened(self) -> _Exchange | None:
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
            self._exchange = _Exchange(self._grid, self._fingerprint)
        return self._exchange


class _Exchange:
    """The ranks of one group, and what they say; used by one thread at a time."""

    def __init__(self, grid: ProcessGrid, fingerprint: str) -> None:
        self._grid = grid
        self.fingerprint = fingerprint
        self._own = torch.zeros(1, dtype=torch.int64)
        self._found = torch.zeros(grid.group_size, dtype=torch.int64)
        self._places = [self._found[place : place + 1] for place in range(grid.group_size)]
        self._group = _new_group(tuple(grid.group_ranks), grid.rank)

    def compare(self, coming: Coming) -> None:
        """Give every rank a digest, and compare all of them; raises as `GroupAgreement.check` does."""
        where = f"sample group {self._grid.group}, step {coming.step}"
        self._own[0] = self._digest(coming)
        try:
            self._group.allgather([self._places], [self._own]).wait()
        except RuntimeError as error:
            raise InternalError(
                where,
                found=f"a rank that does not answer: {str(error).splitlines()[0]}",
                remedy="see the log of the rank that stopped; every rank must draw as many batches",
            ) from error
        found = self._found.tolist()
        if len(set(found)) > 1:
            differing = [rank for rank, value in zip(self._grid.group_ranks, found, strict=True) if value != found[0]]
            raise UsageError(
                where,
                found=f"ranks {differing} with other samples than rank {self._grid.group_ranks[0]}",
                expected="the same samples on every rank of a group",
                remedy="give all ranks the same data, and build samplers over grid.groups, not over ranks",
            )

    def _digest(self, coming: Coming) -> int:
        said: Sequence[int] | None = None if coming.indices is None else list(coming.indices)
        text = f"{self.fingerprint} {coming.step} {said}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little", signed=True)


_opened: Counter[tuple[int, ...]] = Counter()
"""How many groups of these ranks there were in this process."""


def _new_group(ranks: tuple[int, ...], rank: int) -> dist.ProcessGroup:
    """Return a gloo group of some ranks, which they alone make.

    ``new_group(use_local_synchronization=True)`` names one by its ranks and by how many groups there are now: once
    one of a closed loader is gone, that is the name of another, or not the same on all ranks.
    """
    number, _opened[ranks] = _opened[ranks], _opened[ranks] + 1
    prefix = f"voxload/agreement/{'-'.join(map(str, ranks))}/{number}"
    torchs: Any = dist.distributed_c10d  # whose own groups are made so
    store = torchs.PrefixStore(prefix, torchs._get_default_store())  # noqa: SLF001 - torch says it in no other way
    made: dist.ProcessGroup = torchs.ProcessGroupGloo(store, ranks.index(rank), len(ranks), timeout=AGREEMENT_TIMEOUT)
    return made


class _Announcement:
    """A batch that a thread compares."""

    def __init__(self, exchange: _Exchange, coming: Coming) -> None:
        self.coming = coming
        self._exchange = exchange
        self._error: Exception | None = None
        self._is_done = False
        self._done = threading.Lock()  # held until it is
        self._done.acquire()

    def outcome(self) -> None:
        """Wait until it is compared; raises what came of it, once."""
        if not self._is_done:
            self._done.acquire()
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:  # a frame that holds an error that holds the frame would stay
                del error

    def run(self) -> None:
        """See Task."""
        try:
            self._exchange.compare(self.coming)
        except Exception as error:  # noqa: BLE001 - raised by its check
            self._error = error
        self._is_done = True
        self._done.release()

    def cancel(self) -> None:
        """See Task."""
        self._error = InternalError(f"step {self.coming.step}", found="a process that ends before ranks agreed")
        self._is_done = True
        self._done.release()
