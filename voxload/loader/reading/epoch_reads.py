"""EpochReads: the batches of one epoch, drawn and taken by the loop, begun by whichever reader thread has time.

Rules of this file:

1. What the consumer gets is what the real sampler draws. What is foreseen is only read earlier.
2. Samplers that can be replayed are drawn when torch's loader would draw them, for they may share a generator with
   the training loop: with worker processes as many batches ahead as those, else one at a time. Others are drawn as far
   ahead as batches are read.
3. Where an epoch was drawn otherwise than foreseen, the rest of it is read as it is drawn, by rule 2.
4. Batches are begun and given up under the lock of the loader. The consumer takes one that is there without it: only
   the consumer takes from the left of what is under way, and nobody counts by how much is left.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from operator import index
from typing import Any, Protocol

from voxload.loader.batch import Batch, Foreseen
from voxload.loader.order.repeats import Repeats
from voxload.loader.reading.batch_read import BatchPlan
from voxload.loader.reading.batch_reads import BatchReads, Pending
from voxload.prefetch.line import Ints

Indices = tuple[int, ...]


class Reader(Protocol):
    """What reads an epoch's batches, and those of others."""

    reads: BatchReads
    lock: threading.Lock
    samples: int
    lead: int | None
    depth: int

    def go_on(self, user: EpochReads, number: int) -> Pending | None:
        """Begin a batch of the next epoch, if there is a slot; under the lock."""
        ...

    def make_way(self, needy: EpochReads) -> None:
        """Let an iterator that has no slot have one, of what is read for later; under the lock."""
        ...

    def drawn_otherwise(self, user: EpochReads, batches: list[Indices]) -> None:
        """Learn that an epoch went on as nobody foresaw; under the lock."""
        ...


class EpochReads:
    """The batches of one epoch; used by one thread, but for `begin_next`.

    Parameters
    ----------
    reader
        What made it.
    drawn
        What the real sampler draws.
    order
        What it is foreseen to draw; None where it cannot be foreseen.
    number
        The epoch's.
    begun
        The first batches, where they are being read already.
    repeats
        How often each sample was drawn, up to these.
    timeout
        Seconds to wait for one batch; None waits for as long as its reads take. Who asks again gets the same batch.
    """

    def __init__(
        self,
        reader: Reader,
        drawn: Iterator[Sequence[int]],
        order: Ints | None,
        *,
        number: int,
        begun: deque[Pending],
        repeats: Repeats,
        timeout: float | None,
    ) -> None:
        self._reader = reader
        self._sampler: Iterator[Sequence[int]] | None = drawn
        self._order = order
        self._number = number
        self._timeout = timeout
        self._pending = begun
        self._begun = len(begun)
        self._repeats = repeats
        self._waiting: deque[Indices] = deque()  # drawn, and not yet foreseen or under way
        self._error: Exception | None = None  # what the sampler raised
        self._drawn = 0
        ahead = 0 if order is not None else reader.depth
        self._lead = ahead if reader.lead is None else reader.lead
        self.is_newest = True
        """Whether threads begin its batches by themselves."""
        self.taken = 0
        """See Batches."""
        self.seconds_on_device = 0.0
        # All threads read the first batch together, and only then what follows: nobody has anything to do before.
        self._is_alone = len(begun) <= 1
        reader.reads.drop_with(self, begun)

    def prime(self) -> None:
        """Do what is done when the iterator is made."""
        if self._reader.lead is not None:
            self._draw(self._reader.lead)
        if self._drawn or self._order is not None:
            with self._reader.lock:
                self._repeats.count()
                if not self._pending:
                    self._begin()
        if not self._is_alone:
            self._reader.reads.tell_room()

    def next(self) -> Batch | None:
        """See Batches."""
        self._draw(self.taken + 1 + self._lead)
        if self.taken == self._drawn:
            error, self._error = self._error, None
            if error is not None:
                raise error
            return None
        if not self._pending:
            self._begin_wanted()
        batch = self._pending[0].read.pop()
        if batch is None:
            batch = self._awaited()
        else:
            self._pending.popleft()
            self.taken += 1
        if self._is_alone or self._waiting or not self.is_newest:
            self._is_alone = False
            self._tell()
        return batch

    @property
    def is_done(self) -> bool:
        """Whether nothing comes any more, as far as is foreseen."""
        if self._order is not None and self.taken >= len(self._order):
            return True
        return self._sampler is None and self.taken == self._drawn

    def ready(self) -> bool:
        """See Batches; where all slots are lent, they are waited for by whoever asks for the batch."""
        self._draw(self.taken + 1 + self._lead)
        if self.taken < self._drawn and not self._pending:
            with self._reader.lock:
                if not self._pending:
                    self._begin()
        if self._waiting and not self._is_alone:
            self._tell()
        return self.taken == self._drawn or bool(self._pending and self._pending[0].read.is_made)

    def foreseen(self) -> Foreseen | None:
        """See Batches."""
        with self._reader.lock:
            if self._order is not None and self.taken <= len(self._order):
                return Foreseen(row(self._order, self.taken) if self.taken < len(self._order) else None)
            if self._pending:
                return Foreseen(self._pending[0].plan.indices)
            if self._waiting:
                return Foreseen(self._waiting[0])
        return Foreseen(None) if self._sampler is None and self._error is None else None

    def begin_next(self) -> Pending | None:
        """Begin the batch that comes behind those under way, whose first sample is the caller's; under the lock.

        None where there is no slot, where nobody knows what comes, and while the epoch's first batch is read.
        """
        if self._is_alone and self._pending:
            return None
        pending = self._begin(has_first=True)
        if pending is not None:
            return pending
        if self._coming() is None and (self._order is not None or self._sampler is None):
            return self._reader.go_on(self, self._number)
        return None

    def put_back(self) -> bool:
        """Give up the slot of the last batch under way, which is read again later; False where there is none.

        Under the lock.
        """
        if not self._pending:
            return False
        last = self._pending.pop()
        self._begun -= 1
        self._repeats.take_back(last.plan.indices)
        self._reader.reads.drop(deque([last]))
        if self._order is None:
            self._waiting.appendleft(last.plan.indices)
        return True

    def _awaited(self) -> Batch:
        """Return the first batch under way once it is there."""
        reads = self._reader.reads
        if self._timeout is None and self._pending[0].read.help():
            reads.put_off_room()  # a loop that does nothing else reads small batches faster than it is handed them
        else:
            if self._pending[0].read.is_left:
                reads.post(self._pending[0])
            reads.tell_room()  # the loop waits, and is in nobody's way
        try:
            batch = reads.take(self._pending[0], self._timeout)
        except Exception:
            reads.drop(deque([self._pending.popleft()]))
            self.taken += 1
            raise
        if batch is None:
            # The words of torch's own loader: programs look for them.
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
        self._pending.popleft()
        self.taken += 1
        return batch

    def _tell(self) -> None:
        """Let what is known be begun, where there are slots."""
        if self.is_newest:
            self._reader.reads.tell_room_soon()
            return
        with self._reader.lock:
            while self._begin() is not None:
                pass

    def _draw(self, count: int) -> None:
        """Draw from the sampler until so many batches of the epoch are drawn."""
        while self._sampler is not None and self._drawn < count:
            try:
                drawn = next(self._sampler, None)
            except Exception as error:  # noqa: BLE001 - raised when its turn comes
                self._error, drawn = error, None
            if drawn is None:
                self._sampler = None
                with self._reader.lock:
                    self._unforesee()
                self._reader.reads.tell_room()
                return
            # What is under way is given up by this thread alone: no other one is in the way of looking at it.
            place, pending = self._drawn - self.taken, self._pending
            known = pending[place].read.plan.indices if self._order is not None and place < len(pending) else None
            try:
                is_foreseen = known is not None and known == tuple(map(index, drawn))
            except TypeError:  # of what is no index
                is_foreseen = False
            if not is_foreseen:
                with self._reader.lock:
                    self._note(drawn)
            self._drawn += 1

    def _note(self, drawn: Sequence[Any]) -> None:
        """Learn what was drawn next; under the lock."""
        if not self._repeats.is_counted:
            self._repeats.count()  # a sampler that goes on has now told what lies before
        indices = _normal(drawn, self._reader.samples)
        is_foreseen = self._order is not None and self._drawn < len(self._order)
        if self._order is not None and not (is_foreseen and row(self._order, self._drawn) == indices):
            past = [row(self._order, place) for place in range(self._drawn)]
            self._unforesee()
            self._reader.drawn_otherwise(self, [*past, indices])
        if self._order is None:
            self._waiting.append(indices)

    def _unforesee(self) -> None:
        """Forget what was foreseen beyond what is drawn; under the lock."""
        if self._order is None:
            return
        known = self._drawn - self.taken
        wrong = deque(list(self._pending)[known:])
        for _ in wrong:
            self._repeats.take_back(self._pending.pop().plan.indices)
        self._begun -= len(wrong)
        self._reader.reads.drop(wrong)
        self._waiting.extend(row(self._order, place) for place in range(self._begun, self._drawn))
        self._order = None

    def _begin_wanted(self) -> None:
        """Begin the batch that is wanted now, in a slot of whoever has one in vain, or in one that is made for it."""
        reads = self._reader.reads
        with self._reader.lock:
            if self._pending or self._begin_here():
                return
            self._reader.make_way(self)
            if self._begin_here():
                return
            unwanted = reads.unwanted()
        is_quiet = unwanted is not None and unwanted.read.wait_quiet(self._timeout)
        with self._reader.lock:
            if not self._pending:
                arrays = unwanted.arrays if unwanted is not None and is_quiet else reads.new_arrays()
                self._begin(arrays)
                unwanted = None if is_quiet else unwanted
            if unwanted is not None:
                reads.keep_unwanted(unwanted)

    def _begin_here(self) -> bool:
        """Begin the next batch for this thread, which waits for it; wakes no other one where this one reads it."""
        return self._begin(by_loop=self._timeout is None) is not None

    def _begin(
        self, arrays: list[Any] | None = None, *, has_first: bool = False, by_loop: bool = False
    ) -> Pending | None:
        """Begin the next batch that is known, where there is a slot; under the lock."""
        indices = self._coming()
        if indices is None:
            return None
        reads = self._reader.reads
        plan = BatchPlan(indices, self._number, self._repeats.of(indices))
        if arrays is None:
            pending = reads.begin(plan, has_first=has_first, by_loop=by_loop)
        else:
            pending = reads.begin_in(arrays, plan, has_first=has_first, by_loop=by_loop)
        if pending is None:
            return None
        self._repeats.add(indices)
        if self._order is None:
            self._waiting.popleft()
        self._begun += 1
        self._pending.append(pending)
        return pending

    def _coming(self) -> Indices | None:
        """Return the first batch that is not under way, where it is known, and how often its samples were drawn."""
        if not self._repeats.is_counted:
            return None
        if self._order is None:
            return self._waiting[0] if self._waiting else None
        return row(self._order, self._begun) if self._begun < len(self._order) else None


def row(order: Ints, place: int) -> Indices:
    """Return the samples of a batch of an order."""
    found: list[int] = order[place].tolist()
    return tuple(number for number in found if number >= 0)


def _normal(indices: Sequence[Any], samples: int) -> tuple[Any, ...]:
    """Return indices counted from 0; what is no sample stays as it is, for the data set to refuse."""
    try:
        whole = tuple(map(index, indices))
    except TypeError:
        return tuple(indices)
    if not whole or (min(whole) >= 0 and max(whole) < samples):
        return whole
    return tuple(number % samples if -samples <= number < samples else number for number in whole)
