"""SlotReads: batches on their way into staging slots, read by threads that belong to the loader.

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
from concurrent.futures import Future, wait
from dataclasses import dataclass

import torch

from voxload.data.dataset import VolumeDataset
from voxload.loader.batch import Batch, Column
from voxload.loader.reading.sample_reads import SamplePlace, SampleRead, SpareBytes, to_columns
from voxload.loader.reading.staging import StagingRing
from voxload.prefetch.execution.threadpool import DaemonThreadPool
from voxload.readers.protocol import ReadCost, Volume


@dataclass(frozen=True, slots=True, eq=False)
class Pending:
    """A batch under way; equal to itself alone, for the same samples may be under way twice."""

    indices: tuple[int, ...]
    """Its samples, counted from 0 where they are samples at all."""
    epoch: int
    """For which epoch it is read."""
    repeats: tuple[int, ...]
    """How often each sample was drawn before in it."""
    arrays: list[Volume]
    """Its slot."""
    futures: list[Future[SampleRead]]
    """One for each sample."""

    def cancel(self) -> None:
        """Let no read of it begin any more."""
        for future in self.futures:
            future.cancel()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing writes to its slot, or will."""
        return all(future.done() for future in self.futures)


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
        self._pool = DaemonThreadPool(threads, "voxload-reader")
        self._unwanted: deque[Pending] = deque()
        self._room = SpareBytes(ring.spare)
        weakref.finalize(self, self._pool.shutdown, wait=False, cancel_futures=True)

    def close(self) -> None:
        """Stop the threads: what has not begun is cancelled, and what has begun is waited for, though not for ever."""
        self._pool.shutdown(cancel_futures=True)

    def begin(
        self, indices: tuple[int, ...], epoch: int, *, repeats: tuple[int, ...], patience: float | None = 0.0
    ) -> Pending | None:
        """Begin to read a batch; None where no slot is free within `patience` seconds.

        `repeats` is how often each sample was drawn before in the epoch.
        With another patience than none at all, None for as long as it takes, a slot is found or made in any case.
        """
        arrays = self._free_arrays()
        if arrays is None:
            if patience == 0:
                return None
            arrays = self._quiet_arrays(patience) or self._ring.replace().arrays()
        layout = self._ring.layout
        fits = len(indices) <= layout.batch_size
        places = [
            SamplePlace([array[place] for array in arrays] if fits else None, layout.fields, self._room, epoch, repeat)
            for place, repeat in enumerate(repeats)
        ]
        futures = [
            self._pool.submit(place.read, self._dataset, index) for place, index in zip(places, indices, strict=True)
        ]
        return Pending(indices, epoch, repeats, arrays, futures)

    def take(self, pending: Pending, timeout: float | None) -> Batch | None:
        """Return a batch, waiting for its reads; None when they take longer than a time-out.

        Raises
        ------
        VoxloadError
            Whatever reading one of its samples raised.
        """
        if timeout is not None and wait(pending.futures, timeout).not_done:
            return None
        results = [future.result() for future in pending.futures]
        if any(result.is_late for result in results):
            late = [self._pool.submit(result.finished, self._dataset) for result in results]
            if timeout is not None and wait(late, timeout).not_done:
                return None
            results = [future.result() for future in late]
        targets = [result.targets for result in results if result.targets is not None]
        return Batch(
            indices=pending.indices,
            volumes=self._volumes(pending, results),
            targets=torch.stack(targets) if targets else None,
            cost=sum((result.cost for result in results), ReadCost()),
        )

    def drop(self, batches: deque[Pending]) -> None:
        """Forget batches, and leave the deque empty."""
        _drop(batches, self._unwanted)

    def drop_with(self, owner: object, batches: deque[Pending]) -> None:
        """Forget what is in a deque when its owner goes."""
        weakref.finalize(owner, _drop, batches, self._unwanted).atexit = False

    def _volumes(self, pending: Pending, results: list[SampleRead]) -> tuple[Column, ...]:
        """Return a batch's blocks."""
        if not any(result.is_apart for result in results):
            return tuple(torch.from_numpy(array[: len(results)]) for array in pending.arrays)
        samples = [
            [array[place] for array in pending.arrays] if result.volumes is None else result.volumes
            for place, result in enumerate(results)
        ]
        return to_columns(self._dataset, results, samples)

    def _free_arrays(self) -> list[Volume] | None:
        """Return those of a free slot, or of a batch that nobody wants and nothing writes to."""
        slot = self._ring.acquire()
        if slot is not None:
            return slot.arrays()
        quiet = next((pending for pending in self._unwanted.copy() if pending.is_quiet), None)
        if quiet is None:
            return None
        self._unwanted.remove(quiet)
        return quiet.arrays

    def _quiet_arrays(self, patience: float | None) -> list[Volume] | None:
        """Return those of the batch that was given up first, once nothing writes to them; None where that lasts."""
        if not self._unwanted:
            return None
        first = self._unwanted[0]
        # What is cancelled counts as done here; `wait` would wait until a thread has come upon it.
        if wait([future for future in first.futures if not future.done()], patience).not_done:
            return None
        self._unwanted.remove(first)
        return first.arrays


def _drop(batches: deque[Pending], unwanted: deque[Pending]) -> None:
    """Move batches to those that nobody wants; runs in any thread, for its caller may be a finaliser."""
    while batches:
        pending = batches.popleft()
        pending.cancel()
        # What has ended writes no more, and the traceback of an error leads to the loader, which would stay for good.
        pending.futures[:] = [future for future in pending.futures if not future.done()]
        unwanted.append(pending)
