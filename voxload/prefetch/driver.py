"""Driver: one thread that talks to a planner, and lets hands do what it says."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
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
from voxload.prefetch.hands import Hands
from voxload.prefetch.means import Batch, Filling, Means, Slot, Slots
from voxload.prefetch.planner import Planner

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

    def __init__(self, planner: Planner, means: Means) -> None:
        self._planner = planner
        # A SimpleQueue: a slot may come back in a finaliser, in the middle of another put of the same thread.
        self._queue: queue.SimpleQueue[Event | _Freed | _Call | None] = queue.SimpleQueue()
        self._hands = Hands(means, self._queue.put)
        self._thread = threading.Thread(target=self._run, name="voxload-prefetch", daemon=True)
        self._filling: dict[int, Filling] = {}
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
        self._hands.stop()

    def join(self) -> None:
        """Wait for all threads that end soon."""
        self._thread.join(_JOIN_SECONDS)
        self._hands.join()

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
        self._filling[self._count] = Filling(slot.arrays(), {})
        self._handle(SlotFree(monotonic(), self._count))

    def _handle(self, event: Event) -> None:
        """Tell the planner, and do what it says."""
        for instruction in self._planner.handle(event):
            match instruction:
                case Fetch():
                    self._hands.fetch(instruction, self._filling)
                case Store():
                    self._hands.store(instruction, self._filling[instruction.part.slot])
                case Drop(sample):
                    self._hands.drop(sample)
                case Ready(step, slot):
                    filled = self._filling.pop(slot)
                    self._finish(step, Batch(filled.arrays, filled.arrivals))
                case Failed(step, slot, ticket):
                    del self._filling[slot]
                    self._finish(step, self._hands.error(ticket))
                case Wake(at):
                    self._wake = at if self._wake is None else min(self._wake, at)

    def _finish(self, step: int, result: Batch | BaseException) -> None:
        with self._changed:
            self._done[step] = result
            self._changed.notify_all()
