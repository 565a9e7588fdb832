"""Executor: carries out what a planner says, with threads, tiers, peers and readers.

Rules of this file:

1. Only the driver's thread talks to the planner. Whatever happens elsewhere reaches it through one queue.
2. A slot's arrays are held here while the slot is filled, then by the consumer alone: with the last of them the slot
   comes back.
3. A fetch that failed wrote into nothing but its own places, and has ended: they may be written to again.
4. What a storage read raised is raised to the consumer in place of its batch; later batches are unharmed.
5. Dropping the executor stops its threads: what has not begun is cancelled, what has begun ends by itself.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol

from voxload.cache.block import BlockKey
from voxload.cache.peer.protocol import Answer, Peers
from voxload.cache.protocol import Tier
from voxload.errors import InternalError
from voxload.prefetch.cost import CostModel
from voxload.prefetch.events import (
    Delivered,
    Drop,
    Event,
    Failed,
    Failure,
    Fetch,
    FetchDone,
    FetchFailed,
    From,
    Part,
    Ready,
    SlotFree,
    Store,
    Stored,
    Waited,
    Wake,
)
from voxload.prefetch.line import DISK, MEMORY
from voxload.prefetch.meter import Meter
from voxload.prefetch.placement import RankPlan
from voxload.prefetch.planner import Planner
from voxload.readers.protocol import ReadCost, Volume

_JOIN_SECONDS = 5.0
"""How long closing waits for threads that end by themselves."""


class Blocks(Protocol):
    """One rank's blocks of every sample; all methods may be called from many threads at once."""

    def keys(self, sample: int) -> tuple[BlockKey, ...]:
        """Return the key of each field's block."""
        ...

    def read(self, sample: int, out: Sequence[Volume]) -> ReadCost:
        """Fill one array for each field from the storage."""
        ...

    def targets(self, sample: int) -> Any:
        """Return what comes with a sample besides its blocks."""
        ...


class Slot(Protocol):
    """A staging slot."""

    def arrays(self) -> list[Volume]:
        """Return an array for each field, batch first, which lend the slot out until the last of them is gone."""
        ...


class Slots(Protocol):
    """Staging slots; used by the driver's thread only."""

    def acquire(self) -> Slot | None:
        """Return a free slot, or None."""
        ...

    def replace(self) -> Slot:
        """Return a new slot in place of one that its consumer keeps."""
        ...


@dataclass(frozen=True, slots=True)
class Near:
    """What lies nearer than the storage."""

    tiers: Mapping[int, Tier]
    """This rank's own, by the plan's names of them."""
    peers: Peers | None = None
    """Those of the other groups; None where nothing leads there."""
    stored: Callable[[], None] = lambda: None
    """Called after each store, for peers may wait for the block."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """How one block of a batch came."""

    kind: From
    """From where."""
    cost: ReadCost
    """What it took of the storage."""
    targets: Any
    """What comes with the sample."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A step's slot, filled."""

    arrays: list[Volume]
    """One for each field, batch first."""
    arrivals: dict[int, Arrival]
    """By place in the batch."""


@dataclass(frozen=True, slots=True)
class _Filling:
    """A slot that is being filled."""

    arrays: list[Volume]
    arrivals: dict[int, Arrival]

    def at(self, place: int) -> list[Volume]:
        """Return one block's array for each field."""
        return [array[place] for array in self.arrays]


@dataclass(frozen=True, slots=True)
class _Means:
    """What instructions are carried out with."""

    blocks: Blocks
    costs: CostModel
    near: Near
    meter: Meter


class _Freed:
    """A slot came back, perhaps."""


@dataclass(frozen=True, slots=True)
class _Call:
    """Something to do in the driver's thread."""

    act: Callable[[], None]


class Executor:
    """Runs one rank's planner; `take` is for one consumer, everything else for its owner.

    Parameters
    ----------
    planner
        Which nobody else uses.
    blocks
        What is read.
    costs
        The planner's: what it predicts is compared with what happens.
    near
        Tiers and peers; whoever made them closes them, after this.
    slots
        Makes the staging slots, given what to call whenever one came back.
    threads
        Reader threads, and threads for everything nearer than the storage.
    meter
        Counts what comes from where.
    """

    def __init__(
        self,
        planner: Planner,
        blocks: Blocks,
        *,
        costs: CostModel,
        near: Near,
        slots: Callable[[Callable[[], None]], Slots],
        threads: tuple[int, int],
        meter: Meter,
    ) -> None:
        self._driver = _Driver(planner, _Means(blocks, costs, near, meter), threads)
        self._driver.begin(slots(self._driver.notify))
        self._stop = weakref.finalize(self, self._driver.stop)

    def extend(self, plan: RankPlan) -> None:
        """Append the plan of the epoch behind the last one."""
        self._driver.call(lambda planner: planner.extend(plan))

    def cut(self, step: int) -> None:
        """Forget what was planned from a step on: other samples are wanted."""
        self._driver.cut(step)

    def take(self, step: int, timeout: float | None = None) -> Batch:
        """Return the batch of a step, the next one that was not taken yet; waits for it.

        Raises
        ------
        TimeoutError
            When it takes longer than the time-out, in seconds.
        VoxloadError
            What reading one of its blocks raised; the step counts as taken.
        """
        return self._driver.take(step, timeout)

    def close(self) -> None:
        """Stop all threads, and wait for those that end soon; no other call may run or follow."""
        self._stop()
        self._driver.join()


class _Driver:
    """The thread that talks to the planner, and its hands."""

    def __init__(self, planner: Planner, means: _Means, threads: tuple[int, int]) -> None:
        self._planner = planner
        self._means = means
        # A SimpleQueue: a slot may come back in a finaliser, in the middle of another put of the same thread.
        self._queue: queue.SimpleQueue[Event | _Freed | _Call | None] = queue.SimpleQueue()
        self._far_pool = ThreadPoolExecutor(threads[0], thread_name_prefix="voxload-reader")
        self._near_pool = ThreadPoolExecutor(threads[1], thread_name_prefix="voxload-near")
        self._thread = threading.Thread(target=self._run, name="voxload-prefetch", daemon=True)
        self._filling: dict[int, _Filling] = {}
        self._errors: dict[int, BaseException] = {}
        self._count = 0
        self._wake: float | None = None
        self._changed = threading.Condition()
        self._done: dict[int, Batch | BaseException] = {}
        self._broken: BaseException | None = None
        self._slots: Slots | None = None

    def begin(self, slots: Slots) -> None:
        """Start with these slots."""
        self._slots = slots
        self._thread.start()
        self.notify()

    def notify(self) -> None:
        """Tell the driver that a slot came back."""
        self._queue.put(_Freed())

    def call(self, act: Callable[[Planner], None]) -> None:
        """Let the driver do something with the planner."""
        self._queue.put(_Call(lambda: act(self._planner)))

    def cut(self, step: int) -> None:
        """Forget all steps from `step` on; returns when they are forgotten."""
        is_done = threading.Event()

        def act() -> None:
            self._planner.cut(step)
            with self._changed:
                for later in [other for other in self._done if other >= step]:
                    del self._done[later]
            is_done.set()

        self._queue.put(_Call(act))
        while not is_done.wait(0.1):
            self._check()

    def take(self, step: int, timeout: float | None) -> Batch:
        """See Executor."""
        with self._changed:
            if step not in self._done:
                self._queue.put(_Call(lambda: self._wanted(step)))
            if not self._changed.wait_for(lambda: step in self._done or self._broken is not None, timeout):
                raise TimeoutError(f"no batch after {timeout} seconds")
            self._check()
            found = self._done.pop(step)
        self._queue.put(Delivered(monotonic(), step))
        if isinstance(found, BaseException):
            raise found
        return found

    def _check(self) -> None:
        """Raise what ended the driver, if anything did."""
        if self._broken is not None:
            raise InternalError(
                "prefetching", found=f"{type(self._broken).__name__}: {self._broken}", remedy="please report it"
            ) from self._broken

    def stop(self) -> None:
        """Let all threads end."""
        self._queue.put(None)
        self._far_pool.shutdown(wait=False, cancel_futures=True)
        self._near_pool.shutdown(wait=False, cancel_futures=True)

    def join(self) -> None:
        """Wait for the driver and what works near; a read that hangs is left to its storage."""
        self._thread.join(_JOIN_SECONDS)
        self._near_pool.shutdown(wait=True)

    def _run(self) -> None:
        """Pass on what happens until told to stop."""
        try:
            while (item := self._next()) is not None:
                match item:
                    case _Freed():
                        self._offer()
                    case _Call(act):
                        act()
                        self._handle(Waited(monotonic()))
                    case _:
                        self._handle(item)
        except BaseException as error:  # noqa: BLE001 - raised to the consumer
            with self._changed:
                self._broken = error
                self._changed.notify_all()
        finally:
            self._filling.clear()
            self._done.clear()

    def _next(self) -> Event | _Freed | _Call | None:
        """Return what happened next, or that time passed."""
        while True:
            try:
                wait = None if self._wake is None else max(0.0, self._wake - monotonic())
                return self._queue.get(timeout=wait)
            except queue.Empty:
                self._wake = None
                return Waited(monotonic())

    def _offer(self) -> None:
        """Offer the planner all free slots."""
        while self._slots is not None and (slot := self._slots.acquire()) is not None:
            self._lend(slot)

    def _wanted(self, step: int) -> None:
        """Make room for a step that the consumer waits for, where it keeps all slots."""
        if self._slots is None or self._filling or step in self._done:
            return
        self._offer()
        if not self._filling:
            self._lend(self._slots.replace())

    def _lend(self, slot: Slot) -> None:
        self._count += 1
        self._filling[self._count] = _Filling(slot.arrays(), {})
        self._handle(SlotFree(monotonic(), self._count))

    def _handle(self, event: Event) -> None:
        """Tell the planner, and do what it says."""
        for instruction in self._planner.handle(event):
            match instruction:
                case Fetch():
                    self._begin_fetch(instruction)
                case Store():
                    self._near_pool.submit(self._store, instruction, self._filling[instruction.part.slot])
                case Drop(sample):
                    self._drop(sample)
                case Ready(step, slot):
                    filled = self._filling.pop(slot)
                    self._finish(step, Batch(filled.arrays, filled.arrivals))
                case Failed(step, slot, ticket):
                    del self._filling[slot]
                    self._finish(step, self._errors.pop(ticket))
                case Wake(at):
                    self._wake = at if self._wake is None else min(self._wake, at)

    def _finish(self, step: int, result: Batch | BaseException) -> None:
        with self._changed:
            self._done[step] = result
            self._changed.notify_all()

    def _begin_fetch(self, fetch: Fetch) -> None:
        pool = self._far_pool if fetch.source.kind is From.STORAGE else self._near_pool
        slots = {part.slot: self._filling[part.slot] for part in fetch.parts}
        nbytes = sum(volume.nbytes for part in fetch.parts for volume in slots[part.slot].at(part.place))
        predicted = self._means.costs.predicted(fetch.source, nbytes)
        pool.submit(self._fetch, fetch, slots, nbytes, predicted)

    def _fetch(self, fetch: Fetch, slots: dict[int, _Filling], nbytes: int, predicted: float) -> None:
        """Bring the parts of a fetch; runs in a pool."""
        begin = monotonic()
        kind = fetch.source.kind
        try:
            failure = next(filter(None, (self._bring(fetch, part, slots[part.slot]) for part in fetch.parts)), None)
        except Exception as error:  # noqa: BLE001 - raised to the consumer
            self._errors[fetch.ticket], failure = error, Failure.ERROR
        now = monotonic()
        if failure is None:
            self._means.meter.fetched(
                kind, blocks=len(fetch.parts), nbytes=nbytes, seconds=now - begin, predicted=predicted
            )
            self._queue.put(FetchDone(now, fetch.ticket, nbytes, now - begin))
        else:
            self._means.meter.missed(kind, blocks=len(fetch.parts))
            self._queue.put(FetchFailed(now, fetch.ticket, failure, now - begin))

    def _bring(self, fetch: Fetch, part: Part, filling: _Filling) -> Failure | None:
        """Bring one block; return why it did not come."""
        out, kind, cost = filling.at(part.place), fetch.source.kind, ReadCost()
        if kind is From.STORAGE:
            cost = self._means.blocks.read(part.sample, out)
        else:
            failure = self._bring_near(fetch, part.sample, out)
            if failure is not None:
                return failure
        filling.arrivals[part.place] = Arrival(kind, cost, self._means.blocks.targets(part.sample))
        return None

    def _bring_near(self, fetch: Fetch, sample: int, out: Sequence[Volume]) -> Failure | None:
        """Fill one array for each field out of a tier or from a peer."""
        keys = self._means.blocks.keys(sample)
        if fetch.source.kind is From.PEER:
            if self._means.near.peers is None:
                return Failure.LOST
            for key, volume in zip(keys, out, strict=True):
                answer = self._means.near.peers.get_into(fetch.source.group, key, volume, wait=fetch.wait)
                if answer is not Answer.GOT:
                    return _FAILURES[answer]
            return None
        tier = self._means.near.tiers.get(MEMORY if fetch.source.kind is From.MEMORY else DISK)
        is_there = tier is not None and all(tier.get_into(key, one) for key, one in zip(keys, out, strict=True))
        return None if is_there else Failure.ABSENT

    def _store(self, store: Store, filling: _Filling) -> None:
        """Store a block in a tier, all of its fields or none; runs in a pool."""
        tier, sample = self._means.near.tiers.get(store.tier), store.part.sample
        is_kept = False
        try:
            keys = self._means.blocks.keys(sample)
            volumes = filling.at(store.part.place)
            is_kept = tier is not None and all(tier.put(key, one) for key, one in zip(keys, volumes, strict=True))
            if tier is not None and not is_kept:
                for key in keys:
                    tier.drop(key)
            self._means.near.stored()
        finally:
            self._queue.put(Stored(monotonic(), sample, is_kept))

    def _drop(self, sample: int) -> None:
        """Forget a block; here and now, for what is stored next may need its room."""
        for key in self._means.blocks.keys(sample):
            for tier in self._means.near.tiers.values():
                tier.drop(key)


_FAILURES = {Answer.ABSENT: Failure.ABSENT, Answer.WRONG: Failure.WRONG, Answer.LOST: Failure.LOST}
