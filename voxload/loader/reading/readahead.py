"""ReadAhead: the batches of all epochs, read by threads before they are asked for, in order.

Rules of this file:

1. What the consumer gets is what the real sampler draws. What is foreseen is only read earlier.
2. Samplers that can be replayed are drawn when torch's loader would draw them, for they may share a generator with
   the training loop: with worker processes as many batches ahead as those, else one at a time. Others are drawn as far
   ahead as batches are read.
3. Where an epoch was drawn otherwise than foreseen, the rest of it is read as it is drawn, by rule 2.
4. Beyond an epoch only the iterator made last reads, and only into slots that are free.
"""

from __future__ import annotations

import operator
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from voxload.errors import UsageError
from voxload.loader.batch import Batch, Foreseen
from voxload.loader.order.repeats import Passed, Repeats
from voxload.loader.reading.batch_read import BatchPlan
from voxload.loader.reading.batch_reads import BatchReads, Pending
from voxload.prefetch.line import Ints
from voxload.prefetch.order.source import OrderSource

Indices = tuple[int, ...]


class ReadAhead:
    """Reads ahead for all iterators of one loader; used by their consumers' thread.

    Parameters
    ----------
    reads
        Threads and slots.
    source
        What is foreseen; None: nothing.
    samples
        Length of the data set.
    lead
        Batches drawn ahead of their use: None where torch's loader would draw none.
    depth
        Batches drawn ahead of their use from samplers that cannot be foreseen, where torch's loader would draw none.
    is_augmented
        Whether an epoch's number decides what is read.
    """

    def __init__(
        self,
        reads: BatchReads,
        source: OrderSource | None,
        *,
        samples: int,
        lead: int | None,
        depth: int,
        is_augmented: bool,
    ) -> None:
        self.reads = reads
        self.samples = samples
        self.lead = lead
        self.depth = depth
        self._is_augmented = is_augmented
        self._source = source
        self._is_foreseen = False
        self._user: weakref.ref[EpochReads] | None = None
        self._users: weakref.WeakSet[EpochReads] = weakref.WeakSet()
        self._beyond: Ints | None = None
        self._coming: deque[Pending] = deque()
        self._coming_repeats = self._repeats()

    def begin(self) -> None:
        """Look at the sampler, right before an epoch's iterator is made."""
        self._user = None
        try:
            if self._source is not None:
                self._source.begin_epoch()
            self._is_foreseen = self._source is not None
        except (UsageError, TypeError, ValueError):  # what is wrong with a sampler is said when it is drawn
            self._is_foreseen = False

    def epoch(
        self, drawn: Iterator[Sequence[int]], number: int, timeout: float | None, *, passed: Passed
    ) -> EpochReads:
        """Return the batches of the epoch begun last, which has this number.

        `passed` says which of its samples were drawn before the place where it goes on.
        """
        order = self._order(0)
        begun, self._coming, self._beyond = self._coming, deque(), None
        repeats = self._repeats_of(begun, number, passed) if _is_beginning(begun, order) else None
        if repeats is None:
            self.reads.drop(begun)
            repeats = self._repeats(passed)
        found = EpochReads(self, drawn, order, number=number, begun=begun, repeats=repeats, timeout=timeout)
        self._user = weakref.ref(found)
        self._users.add(found)
        found.prime()
        return found

    def go_on(self, user: EpochReads, number: int) -> None:
        """Read into free slots what the next epoch is foreseen to begin with."""
        if self._user is None or self._user() is not user:
            return
        if self._beyond is None:
            self._beyond = self._order(1)
        if not self._coming:
            self._coming_repeats = self._repeats()
        while self._beyond is not None and len(self._coming) < len(self._beyond):
            indices = _row(self._beyond, len(self._coming))
            pending = self.reads.begin(BatchPlan(indices, number + 1, self._coming_repeats.of(indices)))
            if pending is None:
                return
            self._coming_repeats.add(indices)
            self._coming.append(pending)

    def make_way(self, needy: EpochReads) -> None:
        """Let an iterator that has no slot have one, of what is read beyond an epoch or ahead for another iterator."""
        if self._coming:
            self.forget_beyond()
            return
        for user in self._users:
            if user is not needy and user.put_back():
                return

    def forget_beyond(self) -> None:
        """Forget what was read beyond an epoch."""
        self.reads.drop(self._coming)

    def drawn_otherwise(self, user: EpochReads, batches: list[Indices]) -> None:
        """Learn that an epoch went on as nobody foresaw."""
        self.forget_beyond()
        if self._user is None or self._user() is not user:
            return
        self._beyond = None
        try:
            if self._source is not None:
                self._source.observe(batches)
        except UsageError:  # no sample of the data set: raised by whoever reads it
            self._is_foreseen = False

    def close(self) -> None:
        """Stop the threads."""
        self.forget_beyond()
        self.reads.close()

    def _repeats(self, passed: Passed = tuple) -> Repeats:
        """Return a count of an epoch's draws, which counts where these decide what is read."""
        return Repeats(self.samples if self._is_augmented else 0, passed)

    def _repeats_of(self, begun: deque[Pending], number: int, passed: Passed) -> Repeats | None:
        """Return the count behind what was read beyond an epoch; None where that is not what this epoch would read."""
        repeats = self._repeats(passed)
        if not self._is_augmented:
            return repeats
        if not repeats.is_known():
            return None if begun else repeats
        for pending in begun:
            if (pending.plan.epoch, pending.plan.repeats) != (number, repeats.of(pending.plan.indices)):
                return None
            repeats.add(pending.plan.indices)
        return repeats

    def _order(self, place: int) -> Ints | None:
        """Return the order of the epoch begun last, or of one behind it; None where it is not known."""
        if self._source is None or not self._is_foreseen:
            return None
        orders = self._source.own_ahead(place + 1)
        return orders[place] if place < len(orders) else None


class EpochReads:
    """The batches of one epoch; used by one thread.

    Parameters
    ----------
    ahead
        Which made it.
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
        ahead: ReadAhead,
        drawn: Iterator[Sequence[int]],
        order: Ints | None,
        *,
        number: int,
        begun: deque[Pending],
        repeats: Repeats,
        timeout: float | None,
    ) -> None:
        self._ahead = ahead
        self._sampler: Iterator[Sequence[int]] | None = drawn
        self._order = order
        self._is_replayed = order is not None
        self._number = number
        self._timeout = timeout
        self._pending = begun
        self._repeats = repeats
        self._waiting: deque[Indices] = deque()  # drawn, and not yet foreseen or under way
        self._error: Exception | None = None  # what the sampler raised
        self._drawn = 0
        self._taken = 0
        self.seconds_on_device = 0.0
        ahead.reads.drop_with(self, begun)

    def prime(self) -> None:
        """Do what is done when the iterator is made."""
        if self._ahead.lead is not None:
            self._draw(self._ahead.lead)
        if self._drawn or self._order is not None:
            self._read(most=1)

    def next(self) -> Batch | None:
        """See Batches.

        All threads read the first batch together, and only then what follows: nobody has anything to do until it comes.
        """
        is_first = self._taken == 0 and len(self._pending) <= 1
        self._prepare(most=1 if is_first else None)
        if self._taken < self._drawn:
            batch = self._take()
            if is_first:
                self._read(is_wanted=False)
            return batch
        error, self._error = self._error, None
        if error is not None:
            raise error
        return None

    @property
    def taken(self) -> int:
        """See Batches."""
        return self._taken

    def ready(self) -> bool:
        """See Batches; where all slots are lent, they are waited for by whoever asks for the batch."""
        self._prepare(is_wanted=False)
        return self._taken == self._drawn or bool(self._pending and self._pending[0].read.is_made)

    def foreseen(self) -> Foreseen | None:
        """See Batches."""
        if self._order is not None and self._taken <= len(self._order):
            return Foreseen(_row(self._order, self._taken) if self._taken < len(self._order) else None)
        if self._pending:
            return Foreseen(self._pending[0].plan.indices)
        if self._waiting:
            return Foreseen(self._waiting[0])
        return Foreseen(None) if self._sampler is None and self._error is None else None

    @property
    def _lead(self) -> int:
        if self._ahead.lead is not None:
            return self._ahead.lead
        return 0 if self._is_replayed else self._ahead.depth

    def put_back(self) -> bool:
        """Give up the slot of the last batch under way, which is read again later; False where there is none."""
        if not self._pending:
            return False
        last = self._pending.pop()
        self._repeats.take_back(last.plan.indices)
        self._ahead.reads.drop(deque([last]))
        if self._order is None:
            self._waiting.appendleft(last.plan.indices)
        return True

    def _prepare(self, most: int | None = None, *, is_wanted: bool = True) -> None:
        """Draw the next batch, and read ahead."""
        self._draw(self._taken + 1 + self._lead)
        self._read(most, is_wanted=is_wanted)

    def _take(self) -> Batch:
        """Return the first batch under way."""
        reads = self._ahead.reads
        try:
            batch = reads.take(self._pending[0], self._timeout)
        except Exception:
            reads.drop(deque([self._pending.popleft()]))
            self._taken += 1
            raise
        if batch is None:
            # The words of torch's own loader: programs look for them.
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
        self._pending.popleft()
        self._taken += 1
        return batch

    def _draw(self, count: int) -> None:
        """Draw from the sampler until so many batches of the epoch are drawn."""
        while self._sampler is not None and self._drawn < count:
            try:
                drawn = next(self._sampler, None)
            except Exception as error:  # noqa: BLE001 - raised when its turn comes
                self._error, drawn = error, None
            if drawn is None:
                self._sampler = None
                self._unforesee()
                return
            indices = _normal(drawn, self._ahead.samples)
            is_foreseen = self._order is not None and self._drawn < len(self._order)
            if self._order is not None and not (is_foreseen and _row(self._order, self._drawn) == indices):
                past = [_row(self._order, place) for place in range(self._drawn)]
                self._unforesee()
                self._ahead.drawn_otherwise(self, [*past, indices])
            if self._order is None:
                self._waiting.append(indices)
            self._drawn += 1

    def _unforesee(self) -> None:
        """Forget what was foreseen beyond what is drawn."""
        if self._order is None:
            return
        known = self._drawn - self._taken
        wrong = deque(list(self._pending)[known:])
        for _ in wrong:
            self._repeats.take_back(self._pending.pop().plan.indices)
        self._ahead.reads.drop(wrong)
        begun = self._taken + len(self._pending)
        self._waiting.extend(_row(self._order, place) for place in range(begun, self._drawn))
        self._order = None

    def _read(self, most: int | None = None, *, is_wanted: bool = True) -> None:
        """Begin to read what is known to come, for as long as there are slots and no more than so many under way.

        The first batch under way has a slot in any case, unless nobody wants it yet.
        """
        reads = self._ahead.reads
        while (indices := self._coming()) is not None:
            if most is not None and len(self._pending) >= most:
                return
            plan = BatchPlan(indices, self._number, self._repeats.of(indices))
            pending = reads.begin(plan)
            if pending is None and is_wanted and not self._pending:
                self._ahead.make_way(self)
                pending = reads.begin(plan, patience=self._timeout)
            if pending is None:
                return
            self._repeats.add(indices)
            if self._order is None:
                self._waiting.popleft()
            self._pending.append(pending)
        if self._order is not None or self._sampler is None:
            self._ahead.go_on(self, self._number)

    def _coming(self) -> Indices | None:
        """Return the first batch that is not under way, where it is known, and how often its samples were drawn."""
        if not self._repeats.is_known():
            return None
        if self._order is None:
            return self._waiting[0] if self._waiting else None
        place = self._taken + len(self._pending)
        return _row(self._order, place) if place < len(self._order) else None


def _row(order: Ints, place: int) -> Indices:
    row: list[int] = order[place].tolist()
    return tuple(index for index in row if index >= 0)


def _normal(indices: Sequence[Any], samples: int) -> tuple[Any, ...]:
    """Return indices counted from 0; what is no sample stays as it is, for the data set to refuse."""
    try:
        whole = [operator.index(index) for index in indices]
    except TypeError:
        return tuple(indices)
    return tuple(index % samples if -samples <= index < samples else index for index in whole)


def _is_beginning(begun: Sequence[Pending], order: Ints | None) -> bool:
    """Tell whether batches under way are the first of an epoch."""
    if order is None or len(begun) > len(order):
        return not begun
    return all(pending.plan.indices == _row(order, place) for place, pending in enumerate(begun))
