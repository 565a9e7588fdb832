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
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import monotonic

from voxload.errors import InternalError
from voxload.prefetch.events import (
    Delivered,
    Drop,
    Event,
    Failed,
    Fetch,
    Ready,
    SlotFree,
    Store,
    Waited,
    Wake,
)
from voxload.prefetch.execution.resources import Filling, Resources, Slot, Slots
from voxload.prefetch.execution.transfers import Transfers
from voxload.prefetch.placement import RankPlan
from voxload.prefetch.planning.planner import Planner

Notify = Callable[[object], object]
"""What a slot that came back calls, with an object of its own."""


class Executor:
    """Runs one rank's planner; `take` is for one consumer, everything else for its owner.

    Parameters
    ----------
    planner
        Which nobody else uses.
    resources
        What plans are carried out with.
    slots
        Makes the staging slots, given what to call whenever one came back.
    """

    def __init__(self, planner: Planner, resources: Resources, slots: Callable[[Notify], Slots]) -> None:
        self._driver = Driver(planner, resources)
        self._driver.begin(slots(self._driver.notify))
        self._stop = weakref.finalize(self, self._driver.stop)

    def extend(self, plan: RankPlan) -> None:
        """Append the plan of the epoch behind the last one."""
        self._driver.call(lambda planner: planner.extend(plan))

    def cut(self, step: int) -> None:
        """Forget what was planned from a step on: other samples are wanted."""
        self._driver.cut(step)

    def take(self, step: int, timeout: float | None = None) -> Filling:
        """Return the batch of a step, the next one that was not taken yet; waits for it.

        Raises
        ------
        TimeoutError
            When it takes longer than the time-out, in seconds.
        VoxloadError
            What reading one of its blocks raised; the step counts as taken.
        """
        return self._driver.take(step, timeout)

    def is_ready(self, step: int) -> bool:
        """Tell whether `take` would return or raise at once."""
        return self._driver.is_ready(step)

    def close(self) -> None:
        """Stop all threads, and wait for those that end soon; no other call may run or follow."""
        self._stop()
        self._driver.join()


_JOIN_SECONDS = 5.0
"""How long closing waits for the thread to end."""


class _Freed:
    """A slot came back, perhaps."""


@dataclass(frozen=True, slots=True)
class _Call:
    """Something to do in the driver's thread."""

    act: Callable[[], None]


class Driver:
    """The thread that talks to a planner; see Executor, whose other half it is.

    It knows no Executor, so that one which nobody holds any more can go, and end this.
    """

    def __init__(self, planner: Planner, resources: Resources) -> None:
        self._planner = planner
        # A SimpleQueue: a slot may come back in a finaliser, in the middle of another put of the same thread.
        self._queue: queue.SimpleQueue[Event | _Freed | _Call | None] = queue.SimpleQueue()
        self.notify: Notify = partial(self._queue.put, _Freed())
        """Tells the driver that a slot came back; no Python, for a weak reference to call."""
        self._transfers = Transfers(resources, self._queue.put)
        self._thread = threading.Thread(target=self._run, name="voxload-prefetch", daemon=True)
        self._fill = resources.blocks.filling
        self._filling: dict[int, Filling] = {}
        self._steps: dict[int, int] = {}  # of the slots that anything was brought to
        self._count = 0
        self._wake: float | None = None
        self._changed = threading.Condition()
        self._done: dict[int, Filling | BaseException] = {}
        self._broken: BaseException | None = None
        self._slots: Slots | None = None

    def begin(self, slots: Slots) -> None:
        """Start with these slots."""
        self._slots = slots
        self._thread.start()
        self._queue.put(_Freed())

    def call(self, act: Callable[[Planner], None]) -> None:
        """Let the driver do something with the planner."""
        self._queue.put(_Call(lambda: act(self._planner)))

    def cut(self, step: int) -> None:
        """Forget all steps from `step` on; returns when they are forgotten."""
        is_done = threading.Event()

        def act() -> None:
            self._planner.cut(step)
            for slot in [slot for slot, filled in self._steps.items() if filled >= step]:
                del self._steps[slot]
                self._filling[slot] = self._filling[slot].again()
            with self._changed:
                for later in [other for other in self._done if other >= step]:
                    del self._done[later]
            is_done.set()

        self._queue.put(_Call(act))
        while not is_done.wait(0.1):
            self._check()

    def take(self, step: int, timeout: float | None) -> Filling:
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

    def is_ready(self, step: int) -> bool:
        """See Executor."""
        with self._changed:
            return step in self._done or self._broken is not None

    def _check(self) -> None:
        """Raise what ended the driver, if anything did."""
        if self._broken is not None:
            raise InternalError(
                "prefetching", found=f"{type(self._broken).__name__}: {self._broken}", remedy="please report it"
            ) from self._broken

    def stop(self) -> None:
        """Let all threads end."""
        self._queue.put(None)
        self._transfers.stop()

    def join(self) -> None:
        """Wait for all threads that end soon."""
        self._thread.join(_JOIN_SECONDS)
        self._transfers.join()

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
        self._filling[self._count] = self._fill(slot.arrays())
        self._handle(SlotFree(monotonic(), self._count))

    def _handle(self, event: Event) -> None:
        """Tell the planner, and do what it says."""
        for instruction in self._planner.handle(event):
            match instruction:
                case Fetch():
                    for part in instruction.parts:
                        self._steps[part.slot] = part.step
                        self._filling[part.slot].begin(part.step)
                    self._transfers.fetch(instruction, self._filling)
                case Store():
                    self._transfers.store(instruction, self._filling[instruction.part.slot])
                case Drop(sample):
                    self._transfers.drop(sample)
                case Ready(step, slot):
                    del self._steps[slot]
                    self._finish(step, self._filling.pop(slot))
                case Failed(step, slot, ticket):
                    del self._filling[slot], self._steps[slot]
                    self._finish(step, self._transfers.error(ticket))
                case Wake(at):
                    self._wake = at if self._wake is None else min(self._wake, at)

    def _finish(self, step: int, result: Filling | BaseException) -> None:
        with self._changed:
            self._done[step] = result
            self._changed.notify_all()
