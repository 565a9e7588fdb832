"""Transfers: the threads that fetch, store and drop blocks."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from time import monotonic

from voxload.cache.protocol import Answer
from voxload.errors import DataError
from voxload.prefetch.events import (
    Event,
    Failure,
    Fetch,
    FetchDone,
    FetchFailed,
    Part,
    SourceKind,
    Store,
    Stored,
)
from voxload.prefetch.execution import threadpool
from voxload.prefetch.execution.resources import Arrival, Filling, Resources, StorageRead
from voxload.prefetch.line import DISK, MEMORY
from voxload.readers.protocol import ReadCost, Volume

_FAILURES = {Answer.ABSENT: Failure.ABSENT, Answer.WRONG: Failure.WRONG, Answer.LOST: Failure.LOST}


class Transfers:
    """Does what a planner says, in threads, and tells what came of it; its methods are for the driver's thread.

    Parameters
    ----------
    resources
        What it works with.
    tell
        Takes the events, in any thread.
    """

    def __init__(self, resources: Resources, tell: Callable[[Event], None]) -> None:
        self._resources = resources
        self._tell = tell
        self._far_pool = threadpool.DaemonThreadPool(resources.readers, "voxload-reader")
        self._near_pool = threadpool.DaemonThreadPool(resources.helpers, "voxload-near")
        self._errors: dict[int, BaseException] = {}

    def error(self, ticket: int) -> BaseException:
        """Return, and forget, what a fetch raised."""
        return self._errors.pop(ticket)

    def stop(self) -> None:
        """Let all threads end: what has not begun is cancelled."""
        self._far_pool.shutdown(wait=False, cancel_futures=True)
        self._near_pool.shutdown(wait=False, cancel_futures=True)

    def join(self) -> None:
        """Wait for what is under way; a read that hangs is left to its storage."""
        deadline = monotonic() + threadpool.GRACE
        for pool in (self._near_pool, self._far_pool):
            pool.join(deadline)

    def fetch(self, fetch: Fetch, slots: Mapping[int, Filling]) -> None:
        """Begin a fetch into the slots of its parts."""
        pool = self._far_pool if fetch.source.kind is SourceKind.STORAGE else self._near_pool
        slots = {part.slot: slots[part.slot] for part in fetch.parts}
        nbytes = sum(self._resources.blocks.nbytes(part.sample) for part in fetch.parts)
        # Who waits for a block that is to come learns nothing of how fast it then comes.
        predicted = None if fetch.wait else self._resources.costs.predicted(fetch.source, nbytes)
        pool.submit(self._fetch, fetch, slots, nbytes, predicted)

    def _fetch(self, fetch: Fetch, slots: Mapping[int, Filling], nbytes: int, predicted: float | None) -> None:
        """Bring the parts of a fetch; runs in a pool."""
        begin = monotonic()
        kinds: Counter[SourceKind] = Counter()
        try:
            failure, kinds = self._brought(fetch, slots)
        except Exception as error:  # noqa: BLE001 - raised to the consumer
            _let_go(error)
            self._errors[fetch.ticket], failure = error, Failure.ERROR
        now = monotonic()
        if failure is None:
            for kind, parts in kinds.items():
                share = parts / len(fetch.parts)
                self._resources.meter.fetched(
                    kind,
                    blocks=parts,
                    nbytes=round(share * nbytes),
                    seconds=share * (now - begin),
                    predicted=predicted if predicted is None else share * predicted,
                )
            self._tell(FetchDone(now, fetch.ticket, nbytes, now - begin))
        else:
            self._resources.meter.missed(fetch.source.kind, blocks=len(fetch.parts))
            self._tell(FetchFailed(now, fetch.ticket, failure, now - begin))

    def _brought(self, fetch: Fetch, slots: Mapping[int, Filling]) -> tuple[Failure | None, Counter[SourceKind]]:
        """Bring the blocks of a fetch; return why one did not come, and how many came from where."""
        kinds: Counter[SourceKind] = Counter()
        for part in fetch.parts:
            failure = self._bring(fetch, part, slots[part.slot])
            if failure is not None:
                return failure, kinds
            kinds[slots[part.slot].arrivals[part.place].kind] += 1
        return None, kinds

    def _bring(self, fetch: Fetch, part: Part, filling: Filling) -> Failure | None:
        """Bring one block; return why it did not come."""
        kind, read = fetch.source.kind, StorageRead(ReadCost(), is_sure=True)
        if kind is SourceKind.STORAGE:
            read = self._read(part, filling)
            kind = read.source
        elif kind is not SourceKind.MEMORY or not self._take(part, filling):
            failure = self._bring_near(fetch, part.sample, filling.at(part))
            if failure is not None:
                return failure
        filling.arrived(part, Arrival(kind, read.cost, read.is_sure))
        return None

    def _read(self, part: Part, filling: Filling) -> StorageRead:
        """Read a block from the storage; or what is wanted of it, where the rest of it is missing or damaged."""
        try:
            return self._resources.blocks.read(part.sample, filling.at(part))
        except DataError:
            cost = filling.read_wanted(part)
            if cost is None:
                raise
            return StorageRead(cost, is_sure=False)

    def _take(self, part: Part, filling: Filling) -> bool:
        """Take a part of a block out of this rank's memory, where that is all that is wanted."""
        tier = self._resources.near.tiers.get(MEMORY)
        return tier is not None and filling.take_from(part, tier, self._resources.blocks.keys(part.sample))

    def _bring_near(self, fetch: Fetch, sample: int, out: Sequence[Volume]) -> Failure | None:
        """Fill one array for each field out of a tier or from a peer."""
        keys = self._resources.blocks.keys(sample)
        if fetch.source.kind is SourceKind.PEER:
            if self._resources.near.peers is None:
                return Failure.LOST
            for key, volume in zip(keys, out, strict=True):
                answer = self._resources.near.peers.get_into(fetch.source.group, key, volume, wait=fetch.wait)
                if answer is not Answer.GOT:
                    return _FAILURES[answer]
            return None
        tier = self._resources.near.tiers.get(MEMORY if fetch.source.kind is SourceKind.MEMORY else DISK)
        is_there = tier is not None and all(tier.get_into(key, one) for key, one in zip(keys, out, strict=True))
        return None if is_there else Failure.ABSENT

    def store(self, store: Store, filling: Filling) -> None:
        """Begin to store a block out of a slot."""
        self._near_pool.submit(self._store, store, filling)

    def _store(self, store: Store, filling: Filling) -> None:
        """Store a block in a tier, all of its fields or none; runs in a pool."""
        tier, sample = self._resources.near.tiers.get(store.tier), store.part.sample
        is_kept = False
        try:
            keys = self._resources.blocks.keys(sample)
            volumes = filling.whole(store.part)
            may_keep = filling.arrivals[store.part.place].is_sure and (
                store.tier != DISK or self._resources.blocks.lasts(sample)
            )
            is_kept = (
                tier is not None
                and volumes is not None
                and may_keep
                and all(tier.put(key, one) for key, one in zip(keys, volumes, strict=True))
            )
            if tier is not None and not is_kept:
                for key in keys:
                    tier.drop(key)
            self._resources.near.stored()
        finally:
            self._tell(Stored(monotonic(), sample, is_kept))

    def drop(self, sample: int) -> None:
        """Forget a block; here and now, for what is stored next may need its room."""
        for key in self._resources.blocks.keys(sample):
            for tier in self._resources.near.tiers.values():
                tier.drop(key)


def _let_go(error: BaseException | None) -> None:
    """Clear what the frames of an error hold: they have arrays of a slot, which would never come back."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
