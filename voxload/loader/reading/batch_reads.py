"""BatchReads: batches on their way into staging slots, read by threads that belong to the loader.

Rules of this file:

1. The slots of all batches under way, wanted or not, are the ring's: one more is made only where the consumer keeps
   its batches, a read hangs, or a thread has not let go of one yet; as many are dropped when they come back.
2. A batch that is no longer wanted keeps its slot until nothing writes to it; then the next batch takes that over.
3. What a reader thread raises is raised to the consumer in place of that batch; the next batch is unharmed.
4. What does not fit a slot, because its blocks are others than the first sample's or its batch is larger, is read into
   memory of its own: ahead where the ring leaves so much of its budget, else when it is asked for.
5. A slot that comes back is for the reader threads to fill: one of them is told a moment later, when the loop is at
   work again, and begins the next batch by itself. The loop only takes what is there.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import wait
from dataclasses import dataclass
from typing import Protocol

from voxload.data.dataset import VolumeDataset
from voxload.loader.batch import Batch
from voxload.loader.reading.batch_read import BatchPlan, BatchRead, made
from voxload.loader.reading.sample_reads import SpareBytes
from voxload.loader.reading.staging import BatchLayout, StagingRing
from voxload.prefetch.execution.alarm import Alarm
from voxload.prefetch.execution.threadpool import DaemonThreadPool
from voxload.readers.protocol import Volume


@dataclass(frozen=True, slots=True, eq=False)
class Pending:
    """A batch under way, as its consumer has it: who reads it has let go of its slot before it is there."""

    read: BatchRead
    arrays: list[Volume]
    """Its slot."""
    is_here: bool = True
    """Whether threads of this process read it."""

    @property
    def plan(self) -> BatchPlan:
        """Its samples."""
        return self.read.plan


Begin = Callable[[], Pending | None]
"""Begins the next batch, where one is known and there is a slot."""


class Readers(Protocol):
    """Others that read batches into slots, in a process of their own."""

    def start(self, read_here: Callable[[BatchRead], None], tell_room: Callable[[], None]) -> None:
        """Begin, given what lets threads of this process read a batch, and what tells them that there is room."""
        ...

    def begin(self, read: BatchRead) -> bool:
        """Read a batch that fits its slot; False where threads of this process have to."""
        ...

    def tell_cancelled(self) -> None:
        """Stop reading what nobody wants any more."""
        ...

    def close(self) -> None:
        """Stop, and wait for that."""
        ...


@dataclass(frozen=True, slots=True)
class _Task:
    """A task of a batch, for a thread."""

    read: BatchRead
    number: int
    refill: _Refill

    def run(self) -> None:
        """Do it; one that nobody wants any more may have been all that was in the way of another batch."""
        self.read.read(self.number)
        if self.read.is_cancelled:
            self.refill.run()

    def cancel(self) -> None:
        """Tell who waits for it."""
        self.read.fail()


class _Refill:
    """Begins a batch where there is a slot; for a thread. It keeps nothing of the loader."""

    def __init__(self, pool: DaemonThreadPool) -> None:
        self.begin: weakref.WeakMethod[Begin] | None = None
        self.others: weakref.ref[Readers] | None = None
        self._pool = weakref.ref(pool)

    def run(self) -> None:
        """Begin a batch, and do its first task: at once, unless others that are wanted earlier wait."""
        others = self.others() if self.others is not None else None
        if others is not None:
            others.tell_cancelled()
        begin = self.begin() if self.begin is not None else None
        begun = begin() if begin is not None else None
        del begin, others
        if begun is None or not begun.is_here:
            return
        pool, read = self._pool(), begun.read
        del begun
        if pool is None or pool.is_idle:
            read.read(0)
        else:
            self.post(read, range(1))

    def post(self, read: BatchRead, numbers: Iterable[int]) -> None:
        """Let threads do tasks of a batch; without threads it fails."""
        pool = self._pool()
        if pool is None:
            read.fail()
            return
        try:
            for number in numbers:
                pool.post(_Task(read, number, self))
        except RuntimeError:  # they are ending
            read.fail()

    def post_all(self, read: BatchRead) -> None:
        """Let threads do all tasks of a batch."""
        self.post(read, range(read.tasks))

    def cancel(self) -> None:
        """Nobody waits for it."""


class BatchReads:
    """Reads batches into slots; of its methods, one runs at a time.

    Parameters
    ----------
    dataset
        What is read.
    ring
        Makes slots for the batches under way, given what to call when one comes back.
    threads
        Reader threads.
    others
        Makes readers in a process of their own, given the layout of a slot.
    """

    def __init__(
        self,
        dataset: VolumeDataset,
        ring: Callable[[Callable[[object], object]], StagingRing],
        *,
        threads: int,
        others: Callable[[BatchLayout], Readers] | None = None,
    ) -> None:
        self._dataset = dataset
        self._threads = threads
        self._pool = DaemonThreadPool(threads, "voxload-reader")
        self._refill = _Refill(self._pool)
        self.tell_room = self._pool.posting(self._refill)
        """Tells a thread that there may be room; takes no lock."""
        self._alarm = Alarm(self.tell_room)
        self.tell_room_soon = self._alarm.arm
        """Tells it a moment later, when the loop is at work again; wakes nobody."""
        self.put_off_room = self._alarm.put_off
        """Lets it be told later, if it is to be told: the loop is at work for this loader itself."""
        self._ring = ring(self._alarm.arm_for)
        self._unwanted: deque[Pending] = deque()
        self._room = SpareBytes(self._ring.spare)
        self._others = None if others is None else others(self._ring.layout)
        if self._others is not None:
            self._refill.others = weakref.ref(self._others)
            self._others.start(self._refill.post_all, self.tell_room)
        weakref.finalize(self, self._pool.shutdown, wait=False, cancel_futures=True)

    def filled_by(self, begin: Begin) -> None:
        """Let threads that are told of room begin a batch by a method, whose object they keep nothing of."""
        self._refill.begin = weakref.WeakMethod(begin)

    def close(self) -> None:
        """Stop the threads: what has not begun is cancelled, and what has begun is waited for, though not for ever."""
        if self._others is not None:
            self._others.close()
        self._alarm.close()
        self._pool.shutdown(cancel_futures=True)

    def begin(self, plan: BatchPlan, *, has_first: bool = False, by_loop: bool = False) -> Pending | None:
        """Begin to read a batch; None where no slot is free.

        With `has_first` its first task is the caller's, with `by_loop` only if the loop may read it.
        """
        arrays = self._free_arrays()
        return None if arrays is None else self.begin_in(arrays, plan, has_first=has_first, by_loop=by_loop)

    def begin_in(
        self, arrays: list[Volume], plan: BatchPlan, *, has_first: bool = False, by_loop: bool = False
    ) -> Pending:
        """Begin to read a batch into a slot; see `begin`."""
        layout, count = self._ring.layout, len(plan.indices)
        fits = count <= layout.batch_size
        read = BatchRead(plan, self._dataset, arrays, fits=fits, layout=layout.fields, room=self._room)
        if self._others is not None and fits and count and self._others.begin(read):
            return Pending(read, arrays, is_here=False)
        for number in range(1 if has_first or (by_loop and read.may_help) else 0, read.tasks):
            self._pool.post(_Task(read, number, self._refill))
        return Pending(read, arrays)

    def post(self, pending: Pending) -> None:
        """Let a thread read a batch that the loop left alone."""
        if pending.is_here:
            self._refill.post_all(pending.read)

    @property
    def has_room(self) -> bool:
        """Whether a slot seems to be free."""
        return self._ring.has_free or bool(self._unwanted)

    def unwanted(self) -> Pending | None:
        """Return the batch that was given up first, to be waited for; whoever does has its slot."""
        return self._unwanted.popleft() if self._unwanted else None

    def keep_unwanted(self, pending: Pending) -> None:
        """Take back a batch that was given up."""
        self._unwanted.appendleft(pending)
        self.tell_room()

    def new_arrays(self) -> list[Volume]:
        """Return those of a slot more than the ring has."""
        return self._ring.replace().arrays()

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
        """Forget batches, and leave the deque empty; for any thread."""
        _drop(batches, self._unwanted, self.tell_room)

    def drop_with(self, owner: object, batches: deque[Pending]) -> None:
        """Forget what is in a deque when its owner goes."""
        weakref.finalize(owner, _drop, batches, self._unwanted, self.tell_room).atexit = False

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


def _drop(batches: deque[Pending], unwanted: deque[Pending], tell_room: Callable[[], None]) -> None:
    """Move batches to those that nobody wants; runs in any thread, for its caller may be a finaliser."""
    while batches:
        pending = batches.popleft()
        pending.read.cancel()
        unwanted.append(pending)
        tell_room()
