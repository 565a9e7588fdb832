"""BatchReads: batches on their way into staging slots, read by threads that belong to the loader.

Rules of this file:

1. The slots of all batches under way, wanted or not, are the ring's: one more is made only where the consumer keeps
   its batches, a read hangs, or a thread has not let go of one yet; as many are dropped when they come back.
2. A batch that is no longer wanted keeps its slot until nothing writes to it; then the next batch takes that over.
3. What a reader thread raises is raised to the consumer in place of that batch; the next batch is unharmed.
4. What does not fit a slot, because its blocks are others than the first sample's or its batch is larger, is read into
   memory of its own: ahead where the ring leaves so much of its budget, else when it is asked for.
"""

from __future__ import annotations

import weakref
from collections import deque
from concurrent.futures import wait
from dataclasses import dataclass

from voxload.data.dataset import VolumeDataset
from voxload.loader.batch import Batch
from voxload.loader.reading.batch_read import BatchPlan, BatchRead, made
from voxload.loader.reading.sample_reads import SpareBytes
from voxload.loader.reading.staging import StagingRing
from voxload.prefetch.execution.threadpool import DaemonThreadPool
from voxload.readers.protocol import Volume


@dataclass(frozen=True, slots=True, eq=False)
class Pending:
    """A batch under way, as its consumer has it: who reads it has let go of its slot before it is there."""

    read: BatchRead
    arrays: list[Volume]
    """Its slot."""

    @property
    def plan(self) -> BatchPlan:
        """Its samples."""
        return self.read.plan


class BatchReads:
    """Reads batches into slots; its methods are for the consumer's thread.

    Parameters
    ----------
    dataset
        What is read.
    ring
        Slots for the batches under way.
    threads
        Reader threads.
    """

    def __init__(self, dataset: VolumeDataset, ring: StagingRing, *, threads: int) -> None:
        self._dataset = dataset
        self._ring = ring
        self._threads = threads
        self._pool = DaemonThreadPool(threads, "voxload-reader")
        self._unwanted: deque[Pending] = deque()
        self._room = SpareBytes(ring.spare)
        weakref.finalize(self, self._pool.shutdown, wait=False, cancel_futures=True)

    def close(self) -> None:
        """Stop the threads: what has not begun is cancelled, and what has begun is waited for, though not for ever."""
        self._pool.shutdown(cancel_futures=True)

    def begin(self, plan: BatchPlan, *, patience: float | None = 0.0) -> Pending | None:
        """Begin to read a batch; None where no slot is free within `patience` seconds.

        With another patience than none at all, None for as long as it takes, a slot is found or made in any case.
        """
        arrays = self._free_arrays()
        if arrays is None:
            if patience == 0:
                return None
            arrays = self._quiet_arrays(patience) or self._ring.replace().arrays()
        layout, count = self._ring.layout, len(plan.indices)
        read = BatchRead(
            plan, self._dataset, arrays, fits=count <= layout.batch_size, layout=layout.fields, room=self._room
        )
        for _ in range(min(self._threads, count)):
            self._pool.submit(read.run).add_done_callback(read.cancelled_with)
        return Pending(read, arrays)

    def take(self, pending: Pending, timeout: float | None) -> Batch | None:
        """Return a batch, waiting for its reads; None when they take longer than a time-out.

        Raises
        ------
        VoxloadError
            Whatever reading one of its samples raised.
        """
        if not pending.read.wait(timeout):
            return None
        found = pending.read.taken()
        if isinstance(found, Batch):
            return found
        late = [self._pool.submit(result.finished, self._dataset) for result in found]
        if timeout is not None and wait(late, timeout).not_done:
            return None
        return made(pending.plan.indices, self._dataset, pending.arrays, [future.result() for future in late])

    def drop(self, batches: deque[Pending]) -> None:
        """Forget batches, and leave the deque empty."""
        _drop(batches, self._unwanted)

    def drop_with(self, owner: object, batches: deque[Pending]) -> None:
        """Forget what is in a deque when its owner goes."""
        weakref.finalize(owner, _drop, batches, self._unwanted).atexit = False

    def _free_arrays(self) -> list[Volume] | None:
        """Return those of a free slot, or of a batch that nobody wants and nothing writes to."""
        slot = self._ring.acquire()
        if slot is not None:
            return slot.arrays()
        quiet = next((pending for pending in self._unwanted.copy() if pending.read.is_quiet), None)
        if quiet is None:
            return None
        self._unwanted.remove(quiet)
        return quiet.arrays

    def _quiet_arrays(self, patience: float | None) -> list[Volume] | None:
        """Return those of the batch that was given up first, once nothing writes to them; None where that lasts."""
        if not self._unwanted:
            return None
        first = self._unwanted[0]
        if not first.read.wait_quiet(patience):
            return None
        self._unwanted.remove(first)
        return first.arrays


def _drop(batches: deque[Pending], unwanted: deque[Pending]) -> None:
    """Move batches to those that nobody wants; runs in any thread, for its caller may be a finaliser."""
    while batches:
        pending = batches.popleft()
        pending.read.cancel()
        unwanted.append(pending)
