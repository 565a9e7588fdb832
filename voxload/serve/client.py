"""ServiceClient: a rank's way to the blocks of its node's service.

Rules of this file:

1. A block that is in the service's memory is read there, in place; the service learns how far the job is, now and then.
2. What is not there is waited for, as long as the service answers, and no longer than `LONGEST`; after that nothing is
   asked of it in this session. What does not come from it has to be read otherwise: whoever asks is told so, and no
   error.
3. A service that comes back, or another one, is told anew all that is still to come.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from voxload.cache.memory.attached import AttachedMemory
from voxload.cache.protocol import Answer, BlockKey
from voxload.cache.warnonce import WarnOnce
from voxload.errors import VoxloadError
from voxload.prefetch.line import Ints
from voxload.readers.protocol import Volume
from voxload.serve.attachment import Attached, Attachment
from voxload.serve.protocol.blocktable import MOST, ServedBlock, table
from voxload.serve.protocol.bulk import lent
from voxload.serve.protocol.messages import Blocks, Memory, Message, Order, Reached, Report, There, Unavailable, Want

LONGEST = 60.0
"""Seconds that a block is waited for; a storage that takes longer is asked by whoever wants it."""
_NAMING = 2.0
"""Seconds that a block is waited for that the service was not told of yet."""
_USES = 2**20
"""Uses of an order, at once."""
_ATTEMPTS = 2
"""Times that a block is asked for which is said to be there and is not found."""
_PAUSE = 0.005
"""Seconds until more is said: many uses are one message."""
_REPORT = 1.0
"""Seconds from one report of what this job met with to the next."""
_BREATH = 0.02
"""Seconds until something is said again that the service did not take."""


class _Wait:
    """What threads wait for that want one block."""

    def __init__(self) -> None:
        self.is_there: bool | None = None


class ServiceClient:
    """Blocks of a service; safe to use from many threads at once.

    Parameters
    ----------
    path
        Of its socket.
    block
        What a number that is used here stands for; called by a thread of its own.
    name
        What people are shown of this job.

    Raises
    ------
    NotFoundError
        Where nobody listens there.
    StorageError
        Where the service refuses, does not answer, or is another user's; DataError where it speaks another language.
    """

    def __init__(self, path: Path, block: Callable[[int], ServedBlock], *, name: str = "") -> None:
        self._block = block
        self._changed = threading.Condition()
        self._wire: dict[int, int] = {}  # the service's numbers of blocks, by those used here
        self._waits: dict[int, _Wait] = {}
        self._memory: AttachedMemory | None = None
        self._epoch = 0  # grows with each session
        self._uses: Ints = np.zeros(0, np.int64)  # from `_first` on
        self._first = self._place = 0
        self._shift = 0  # by how much places are later here than for who says them
        self._places: dict[int, deque[int]] = {}  # of each number, those of its uses that are to come
        self._early: set[int] = set()  # places beyond `_place` that have been used
        self._said_to: int | None = None  # place up to which the service knows the uses; None for not at all
        self._base = 0  # place here of the service's place 0
        self._said_place = 0
        self._given_up = -1  # the session in which nothing is asked of the service any more
        self._is_closing = False
        self._hits = self._hit_bytes = self._misses = self._steps = 0  # of this session
        self._stall = 0.0
        self._reported, self._told_of = 0.0, Report(0, 0, 0, 0.0, 0)
        self._warnings = WarnOnce(f"service at {path}")
        self._attachment = Attachment(path, name=name, changed=self._has_changed, heard=self._hear)
        self._thread = threading.Thread(target=self._say_all, name="voxload-service-orders", daemon=True)
        self._thread.start()

    def foresee(self, place: int, numbers: Ints) -> None:
        """Say what is used from a place in the order on; what was said of that before is forgotten."""
        with self._changed:
            place += self._shift
            if place < self._place:  # what was used already is used no less: what comes instead comes behind it
                self._shift += self._place - place
                place = self._place
            # What the service was not told of yet is told, even where it has passed: it counts uses.
            begin = self._place if self._said_to is None else min(self._place, self._said_to)
            kept = self._uses[begin - self._first : place - self._first]
            self._uses, self._first = np.concatenate([kept, np.asarray(numbers, np.int64)]), begin
            self._early = {one for one in self._early if one < place}
            self._places = {}
            for at, one in enumerate(self._uses[max(0, self._place - begin) :].tolist(), max(self._place, begin)):
                if at not in self._early:
                    self._places.setdefault(one, deque()).append(at)
            if self._said_to is not None:
                self._said_to = min(self._said_to, place)
            self._changed.notify_all()

    def reached(self, place: int) -> None:
        """Say that all before a place has been used."""
        with self._changed:
            place += self._shift
            if place > self._place:
                self._place = place
                self._early = {one for one in self._early if one >= place}
                self._changed.notify_all()

    def used(self, number: int, *, nbytes: int) -> None:
        """Note that a block is where it is used: what lies in a loader's buffers need not stay in the memory.

        `nbytes` of it came from the service.
        """
        with self._changed:
            self._hits += nbytes > 0
            self._hit_bytes += nbytes
            self._misses += nbytes == 0
            places = self._places.get(number)
            if not places:
                return
            self._early.add(places.popleft())
            place = self._place
            while place in self._early:
                self._early.remove(place)
                place += 1
            if place > self._place:
                self._place = place
                self._changed.notify_all()

    def waited(self, seconds: float) -> None:
        """Note for how long a batch was waited for."""
        with self._changed:
            self._stall += seconds
            self._steps += 1

    def fetch(self, number: int, key: BlockKey, out: Volume) -> bool:
        """Fill `out` with a block; False, with `out` undefined, where it does not come from the service."""
        if self._found(key, out):
            return True
        for attempt in range(_ATTEMPTS):
            if not self._waited(number, is_again=attempt > 0):
                return False
            if self._found(key, out):
                return True
        return False

    def close(self) -> None:
        """End the session; no other call may run or follow."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._attachment.send(self._report())
        self._attachment.close()
        self._thread.join()
        self._memory = None

    def _report(self) -> Report:
        """Return what this session met with."""
        with self._changed:
            return Report(self._hits, self._hit_bytes, self._misses, self._stall, self._steps)

    def _found(self, key: BlockKey, out: Volume) -> bool:
        memory = self._memory
        return memory is not None and memory.fetch(key, out) is Answer.GOT

    def _waited(self, number: int, *, is_again: bool) -> bool:
        """Wait until the service says that a block is there; False where it does not."""
        with self._changed:
            epoch = self._epoch
            named = lambda: number in self._wire or self._is_lost(epoch)  # noqa: E731 - it is said twice
            if not self._changed.wait_for(named, _NAMING) or self._is_lost(epoch):
                return False
            wire = self._wire[number]
            wait, is_first = self._waits.get(wire), False
            if wait is None:
                wait, is_first = self._waits.setdefault(wire, _Wait()), True
        if is_first and not self._attachment.send(Want(wire, again=int(is_again))):
            self._answer(wire, is_there=False)
            return False
        with self._changed:
            has_come = self._changed.wait_for(lambda: wait.is_there is not None or self._is_lost(epoch), LONGEST)
        if not has_come:
            self._give_up(epoch, "slow", f"a block did not come in {LONGEST:.0f} s", remedy="look at its storage")
        return bool(wait.is_there)

    def _is_lost(self, epoch: int) -> bool:
        is_over = self._is_closing or self._epoch != epoch or self._given_up == epoch
        return is_over or self._attachment.session is None

    def _give_up(self, epoch: int, kind: str, words: str, *, remedy: str) -> None:
        """Ask nothing more of a service that lets everybody wait, until there is another session."""
        with self._changed:
            self._given_up = epoch
            self._changed.notify_all()
        with suppress(RuntimeWarning):  # where warnings are errors: the run goes on
            self._warnings.tell(kind, words, remedy=remedy)

    def _answer(self, wire: int, *, is_there: bool) -> None:
        with self._changed:
            wait = self._waits.pop(wire, None)
            if wait is not None:
                wait.is_there = is_there
                self._changed.notify_all()

    # What the thread of the attachment calls.

    def _has_changed(self, session: Attached | None) -> None:
        with self._changed:
            self._epoch += 1
            self._wire, self._said_to = {}, None
            self._waits.clear()
            self._hits = self._hit_bytes = self._misses = self._steps = 0
            self._stall, self._told_of = 0.0, Report(0, 0, 0, 0.0, 0)
            if session is not None:
                self._said_to, self._base, self._said_place = self._place, self._place, self._place
            self._changed.notify_all()

    def _hear(self, message: Message, descriptors: Sequence[int]) -> None:
        match message:
            case There(block):
                self._answer(block, is_there=True)
            case Unavailable(block):
                self._answer(block, is_there=False)
            case Memory(name):
                for descriptor in descriptors[:1]:
                    self._memory = AttachedMemory(name, descriptor=descriptor)  # who reads the one before has it still
            case _:
                pass  # of a later version

    # What the thread of this file does.

    def _say_all(self) -> None:
        """Tell the service what is to come, and how far this job is."""
        while True:
            with self._changed:
                has_news = self._changed.wait_for(lambda: self._is_closing or self._has_news(), _REPORT)
                if self._is_closing:
                    return
                epoch, first, place, said = self._epoch, self._first, self._place, self._said_to
                uses = self._uses[(said or 0) - first :]  # who foresees makes another array
            if not has_news:
                self._has_reported()
                continue
            is_told = said is not None and self._told(epoch, place, said, uses=uses)
            with self._changed:
                self._changed.wait_for(lambda: self._is_closing, _PAUSE if is_told else _BREATH)

    def _has_news(self) -> bool:
        if self._said_to is None or self._given_up == self._epoch:
            return False
        return self._said_to < self._first + len(self._uses) or self._said_place < self._place

    def _told(self, epoch: int, place: int, said: int, *, uses: Ints) -> bool:
        """Say what there is to say; False where the service did not take all of it."""
        try:
            fresh = [number for number in dict.fromkeys(uses.tolist()) if number not in self._wire]
            for start in range(0, len(fresh), MOST):
                if not self._name(epoch, fresh[start : start + MOST]):
                    return False
            for start in range(0, len(uses), _USES):
                if not self._order(epoch, said + start, uses[start : start + _USES]):
                    return False
            return self._has_reached(epoch, place) and self._has_reported()
        except (OSError, VoxloadError) as error:  # a sample that cannot be described, no memory left
            self._give_up(epoch, "orders", str(error), remedy="blocks are read without it until it is there anew")
            return False

    def _name(self, epoch: int, numbers: Sequence[int]) -> bool:
        data = table([self._block(number) for number in numbers])
        if not self._sent(epoch, Blocks(len(numbers)), data):
            return False
        with self._changed:
            if self._epoch == epoch:
                self._wire.update(zip(numbers, range(len(self._wire), len(self._wire) + len(numbers)), strict=True))
            self._changed.notify_all()
        return True

    def _order(self, epoch: int, place: int, uses: Ints) -> bool:
        wire = np.array([self._wire[number] for number in uses.tolist()], "<i8")
        with self._changed:
            base, is_forgotten = self._base, self._said_to is None or self._said_to != place
        if is_forgotten or not self._sent(epoch, Order(place - base, len(uses)), wire.tobytes()):
            return False
        with self._changed:
            # What was said anew meanwhile begins no later than what was said now.
            if self._epoch == epoch and self._said_to == place:
                self._said_to = place + len(uses)
        return True

    def _has_reached(self, epoch: int, place: int) -> bool:
        with self._changed:
            base, known = self._base, self._said_to
        if known is None or place > known:
            return False
        if place > self._said_place and not self._sent(epoch, Reached(place - base), None):
            return False
        with self._changed:
            if self._epoch == epoch:
                self._said_place = max(self._said_place, place)
        return True

    def _has_reported(self) -> bool:
        now, report = time.monotonic(), self._report()
        if now - self._reported < _REPORT or report == self._told_of:
            return True
        self._reported, self._told_of = now, report
        return self._attachment.send(report)

    def _sent(self, epoch: int, message: Message, data: bytes | None) -> bool:
        descriptors = () if data is None else (lent(message.kind, data),)
        try:
            return self._epoch == epoch and self._attachment.send(message, descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
