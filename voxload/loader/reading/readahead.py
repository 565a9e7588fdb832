"""ReadAhead: the batches of all epochs of one loader, read before they are asked for, beyond the ends of epochs too.

Rules of this file:

1. Beyond an epoch only the iterator made last reads, only into slots that are free, and only where that is allowed:
   some benchmarks forbid to use orders of later epochs.
2. For that iterator reader threads begin batches by themselves, as slots come back; one that was made before it, and is
   still in use, begins its own whenever it is asked for a batch.
3. What a thread fails to begin, the loop meets when it begins that by itself.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence

from voxload.errors import UsageError
from voxload.loader.order.repeats import Passed, Repeats
from voxload.loader.reading.batch_read import BatchPlan
from voxload.loader.reading.batch_reads import BatchReads, Pending
from voxload.loader.reading.epoch_reads import EpochReads, Indices, row
from voxload.prefetch.line import Ints
from voxload.prefetch.order.source import OrderSource


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
    is_clairvoyant
        Whether anything is read beyond the end of an epoch, before the next one begins.
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
        is_clairvoyant: bool,
    ) -> None:
        self.reads = reads
        self.lock = threading.Lock()
        self.samples = samples
        self.lead = lead
        self.depth = depth
        self._is_augmented = is_augmented
        self._is_clairvoyant = is_clairvoyant
        self._source = source
        self._is_foreseen = False
        self._user: weakref.ref[EpochReads] | None = None
        self._users: weakref.WeakSet[EpochReads] = weakref.WeakSet()
        self._beyond: Ints | None = None
        self._coming: deque[Pending] = deque()
        self._coming_repeats = self._repeats()
        reads.filled_by(self.begin_next)

    @property
    def has_more(self) -> bool:
        """Whether somebody holds an iterator that has not got all that it is foreseen to."""
        with self.lock:  # a thread that begins a batch holds one, too, for as long
            return any(not user.is_done for user in self._users)

    def renew(self, samples: int, source: OrderSource | None) -> None:
        """Read a data set that is as long as this from the next epoch on; what is read ahead is given up."""
        with self.lock:
            self._leave()
            self.reads.drop(self._coming)
            self.samples, self._source, self._beyond = samples, source, None

    def begin(self) -> None:
        """Look at the sampler, right before an epoch's iterator is made."""
        with self.lock:
            self._leave()
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
        with self.lock:
            self._leave()
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

    def begin_next(self) -> Pending | None:
        """Begin the batch that is wanted next, where it is known and there is a slot; for reader threads.

        Its first sample is the caller's.
        """
        try:
            with self.lock:
                user = self._user() if self._user is not None else None
                begun = user.begin_next() if user is not None else None
                user = None  # under the lock: who let go of the iterator is not to find it held by this thread
                if begun is not None and self.reads.has_room:
                    self.reads.tell_room()
        except Exception:  # noqa: BLE001 - rule 3
            return None
        return begun

    def go_on(self, user: EpochReads, number: int) -> Pending | None:
        """Begin the next batch that the next epoch is foreseen to have, if there is a slot; under the lock."""
        if not user.is_newest or not self._is_clairvoyant:
            return None
        if self._beyond is None:
            self._beyond = self._order(1)
        if not self._coming:
            self._coming_repeats = self._repeats()
        if self._beyond is None or len(self._coming) >= len(self._beyond):
            return None
        indices = row(self._beyond, len(self._coming))
        plan = BatchPlan(indices, number + 1, self._coming_repeats.of(indices))
        pending = self.reads.begin(plan, has_first=True)
        if pending is None:
            return None
        self._coming_repeats.add(indices)
        self._coming.append(pending)
        return pending

    def make_way(self, needy: EpochReads) -> None:
        """See Reader: one slot, of what is read beyond an epoch or ahead for another iterator."""
        if self._coming:
            self.reads.drop(self._coming)
            return
        for user in self._users:
            if user is not needy and user.put_back():
                return

    def drawn_otherwise(self, user: EpochReads, batches: list[Indices]) -> None:
        """See Reader."""
        self.reads.drop(self._coming)
        if not user.is_newest:
            return
        self._beyond = None
        try:
            if self._source is not None:
                self._source.observe(batches)
        except UsageError:  # no sample of the data set: raised by whoever reads it
            self._is_foreseen = False

    def close(self) -> None:
        """Stop the threads."""
        with self.lock:
            self._leave()
            self.reads.drop(self._coming)
        self.reads.close()

    def _leave(self) -> None:
        """Begin no more batches of the iterator made last, unless it asks for them."""
        user, self._user = self._user() if self._user is not None else None, None
        if user is not None:
            user.is_newest = False

    def _repeats(self, passed: Passed = tuple) -> Repeats:
        """Return a count of an epoch's draws, which counts where these decide what is read."""
        return Repeats(self.samples if self._is_augmented else 0, passed)

    def _repeats_of(self, begun: deque[Pending], number: int, passed: Passed) -> Repeats | None:
        """Return the count behind what was read beyond an epoch; None where that is not what this epoch would read."""
        repeats = self._repeats(passed)
        if not self._is_augmented:
            return repeats
        if not repeats.count():
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


def _is_beginning(begun: Sequence[Pending], order: Ints | None) -> bool:
    """Tell whether batches under way are the first of an epoch."""
    if order is None or len(begun) > len(order):
        return not begun
    return all(pending.plan.indices == row(order, place) for place, pending in enumerate(begun))
