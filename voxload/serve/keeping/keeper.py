"""Keeper: what is in a service's memory and on its disk, and for whom; driven by the thread of an event loop.

Rules of this file:

1. Only the loop's thread talks to the planner and to clients. Reads and writes are done by threads of a bounded team.
2. A client is told that a block is there only by what is in memory now: who does not find it is told so once more,
   after a look at the storage.
3. Who comes while all of it ends is let in no more, and who waits is told to read for themselves.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from voxload.cache.memory.sealed import SealedMemory
from voxload.cache.memory.tier import MemoryTier, Pages
from voxload.errors import DataError
from voxload.prefetch.sharing import events
from voxload.prefetch.sharing.events import (
    Answer,
    Began,
    Drop,
    Ended,
    Erase,
    Event,
    Foreseen,
    Instruction,
    Read,
    Store,
    Wanted,
)
from voxload.prefetch.sharing.limits import SharingLimits
from voxload.prefetch.sharing.planner import SharedPlanner
from voxload.serve.keeping.book import BlockBook
from voxload.serve.keeping.carrier import WRITES, Carrier
from voxload.serve.keeping.elsewhere import Elsewhere
from voxload.serve.keeping.figures import disk_figures, memory_figures, read_figures, report_figures
from voxload.serve.keeping.guests import Guest, Say, added, checked, foreseen, name_of, named
from voxload.serve.keeping.levels import HEADER, Levels
from voxload.serve.keeping.pins import Pin, Pins
from voxload.serve.protocol.bulk import lent
from voxload.serve.protocol.messages import (
    Blocks,
    Clear,
    Done,
    Drain,
    Figures,
    Keep,
    Limit,
    Look,
    Memory,
    Message,
    Order,
    Reached,
    Report,
    There,
    Unavailable,
    Want,
)
from voxload.serve.seen.advice import Used
from voxload.serve.sessions import Sessions

_BLOCKS = 2**22
"""Blocks that are remembered at once, of all clients; each takes some hundred bytes."""
_LOOK = 1.0
"""Seconds between two looks at which pins have ended."""


class Keeper:
    """Keeps blocks for the clients of a service; used by one thread, that of the running event loop.

    Parameters
    ----------
    memory
        Bytes of it.
    threads
        Reads at once.
    sessions
        Who is in.
    disk
        Folder, and bytes of all that lies there; None for no disk.
    make
        Makes the memory; see `MemoryTier`.
    elsewhere
        Who else may have a block.

    Raises
    ------
    UsageError, StorageError
        As `Levels` raises.
    """

    def __init__(
        self,
        memory: int,
        *,
        threads: int,
        sessions: Sessions,
        disk: tuple[Path, int] | None = None,
        make: Callable[..., Pages] = SealedMemory,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._loop, self._sessions, self._since = asyncio.get_running_loop(), sessions, time.monotonic()
        self._book = BlockBook(_BLOCKS)
        self._levels = Levels(memory, self._book.line, disk=disk, make=make, elsewhere=elsewhere)
        self._carrier = Carrier(self._levels, threads=threads, tell=self._tell)
        self._room = self._levels.memory.room
        limits = SharingLimits(reads=threads, writes=WRITES, header=HEADER)
        self._planner = SharedPlanner(self._room, disk=self._levels.disk_room, limits=limits)
        self._sizes: dict[int, int] = {}
        self._pins, self._looking = Pins(), self._loop.call_later(_LOOK, self._end_pins)
        self._guests: dict[int, Guest] = {}
        self._events: deque[Event] = deque()
        self._left: list[int] = []  # blocks that may be forgotten, unless somebody names or keeps them
        self._is_telling = False
        self.stalled = (0.0, 0)
        """Seconds that jobs have waited, and how many there are; may be looked at by any thread."""
        self._members: Callable[[], int] = lambda: 0
        self.draining, self.drained = asyncio.Event(), asyncio.Event()
        """Set when all is to end, and when nothing is left to be stored."""
        self._wants, self._before = 0, Report(0, 0, 0, 0.0, 0)  # what clients met with that have left

    def figures(self, *, besides: int = 0) -> dict[str, Any]:
        """Return what is kept, what was read, and for whom, but for one session, as plain values for JSON."""
        totals = self._carrier.totals
        jobs = [
            {"name": one.name, "session": one.number, "uid": one.uid, "pid": one.pid} | guest.figures()
            for one in self._sessions
            if one.number != besides and (guest := self._guests.get(one.number)) is not None
        ]
        return {
            "seconds": time.monotonic() - self._since,
            "is_draining": self.draining.is_set(),
            "memory": memory_figures(self._levels, self._planner, totals, limit=self.limited),
            "disk": disk_figures(self._levels, self._planner, totals),
            "reads": {**read_figures(self._planner, totals), "waited_for": self._wants},
            "jobs_met": report_figures([self._before, *(guest.report for guest in self._guests.values())]),
            "blocks_known": len(self._book),
            "lapsed": self._sessions.lapsed,
            "ring": self._members(),
            "kept": [self._kept(pin) for pin in self._pins],
            "jobs": jobs,
        }

    def used(self) -> Used:
        """Return what jobs used of late, and what that took."""
        recent, totals, sizes = self._planner.recent, self._carrier.totals, self._sizes
        known = [sizes[unit] for unit in np.unique(recent).tolist() if unit in sizes]
        far = totals.reads - totals.near - totals.elsewhere
        met = report_figures([self._before, *(guest.report for guest in self._guests.values())])
        uses = met["hits"] + met["misses"]
        return Used(
            recent,
            block=sum(known) / max(1, len(known)),
            room=self._room + self._levels.disk_room,
            read_seconds=totals.storage_seconds / max(1, far),
            reads_at_once=self._planner.limits.reads,
            stall=met["stall_seconds"] * len(recent) / max(1, uses),
        )

    def began(self, session: int, say: Say) -> None:
        """Take in a client."""
        self._guests[session] = Guest(say)
        self._tell(Began(time.monotonic(), session))
        say(Memory(self._levels.memory.path), (self._levels.memory.descriptor,))

    def ended(self, session: int) -> None:
        """Forget a client, and what only it will use; what is kept stays until its room is needed."""
        guest = self._guests.pop(session, None)
        if guest is None:
            return
        self._before = added(self._before, guest.report)
        self._left.extend(self._book.leave(guest.blocks))
        self._tell(Ended(time.monotonic(), session))

    def heard(self, session: int, message: Message, descriptors: Sequence[int]) -> None:
        """Do what a client says; raises VoxloadError where that makes no sense. The descriptors stay the caller's."""
        guest = self._guests[session]
        match message:
            case Blocks(count):
                self._take_blocks(guest, descriptors, count)
            case Order(place, count):
                self._take_order(session, guest, place, count=count, descriptors=descriptors)
            case Reached(place):
                if not guest.place <= place <= guest.end:
                    raise DataError("reached", found=str(place), expected=f"{guest.place} to {guest.end}")
                guest.place = place
                self._tell(events.Reached(time.monotonic(), session, place))
            case Want(block, again):
                self._want(session, guest, block, is_again=bool(again))
            case Report():
                seconds, _ = self.stalled
                self.stalled = seconds + max(0.0, checked(message).stall - guest.report.stall), len(self._guests)
                guest.report = message
            case _:
                self._asked(session, guest, message, descriptors)

    def _asked(self, session: int, guest: Guest, message: Message, descriptors: Sequence[int]) -> None:
        """Do what people ask for."""
        match message:
            case Look():
                self._show(session, guest)
            case Keep(name, count, seconds):
                self._keep(guest, descriptors, name_of(name), count=count, seconds=seconds)
            case Clear():
                before = len(self._planner.held) + len(self._planner.disk.held)
                self._tell(events.Cleared(time.monotonic()))
                guest.say(Done(before - len(self._planner.held) - len(self._planner.disk.held)), ())
            case Limit(memory, user):
                if user >= 0:
                    raise DataError("limit", found=f"user {user}", expected="none: this service is one user's")
                self.limit(memory)
                guest.say(Done(), ())
            case Drain():
                guest.is_draining = True
                self.drain()
            case _:
                raise DataError("message", found=message.kind, expected="one of a client that is in")

    def limit(self, memory: int) -> None:
        """Use so many bytes of the memory from now on; more than there are mean all.

        Raises StorageError, with nothing changed, where the system does not give them.
        """
        tier = self._levels.memory
        room = max(0, min(memory, tier.capacity) - tier.overhead)
        if room > self._room:
            self._carrier.resize(memory)
        self._room = room
        self._tell(events.RoomChanged(time.monotonic(), room))
        self._carrier.resize(memory)  # what is used last has gone; what lies where there is no memory any more goes

    def join(self, elsewhere: Elsewhere, members: Callable[[], int]) -> None:
        """Ask others for blocks from now on, before they are read; `members` says how many there are."""
        self._levels.elsewhere, self._members = elsewhere, members

    @property
    def memory(self) -> MemoryTier:
        """Where blocks are."""
        return self._levels.memory

    @property
    def limited(self) -> int:
        """Bytes of the memory that are used at most."""
        return self._room + self._levels.memory.overhead

    def read_at_once(self, reads: int) -> None:
        """Read no more than so many blocks of the storage at once from now on, and one at least."""
        self._tell(events.ReadsChanged(time.monotonic(), max(1, reads)))

    def drain(self) -> None:
        """Read nothing more, and write what is in memory to disk; `drained` is set when that is done."""
        self.draining.set()
        self._tell(events.Draining(time.monotonic()))

    def close(self) -> None:
        """Stop reading and give the memory up; clients keep what they have mapped."""
        self._looking.cancel()
        self._carrier.close()

    # What clients say.

    def _take_blocks(self, guest: Guest, descriptors: Sequence[int], count: int) -> None:
        sizes, lines = named(descriptors, count)
        numbers, fresh = self._book.name(lines)
        footprints = np.array([MemoryTier.footprint(size) for size in sizes[fresh].tolist()], np.int64)
        self._planner.know(numbers[fresh], footprints)
        self._sizes.update(zip(numbers[fresh].tolist(), sizes[fresh].tolist(), strict=True))
        guest.blocks.extend(numbers.tolist())

    def _take_order(self, session: int, guest: Guest, place: int, *, count: int, descriptors: Sequence[int]) -> None:
        if not guest.place <= place <= guest.end:
            expected = f"one from {guest.place} to {guest.end} on"
            raise DataError("order", found=f"{count} uses from {place} on", expected=expected)
        numbers = foreseen(guest, descriptors, count)
        guest.end = place + count
        self._tell(Foreseen(time.monotonic(), session, place, numbers))

    def _want(self, session: int, guest: Guest, block: int, *, is_again: bool) -> None:
        if not 0 <= block < len(guest.blocks):
            raise DataError("want", found=f"block {block}", expected=f"0 to {len(guest.blocks) - 1}")
        number = guest.blocks[block]
        guest.wanted.setdefault(number, set()).add(block)
        self._wants += 1
        if is_again and number in self._planner.held:
            self._carrier.look(number, partial(self._wait, session, number))
        else:
            self._wait(session, number)

    def _wait(self, session: int, number: int) -> None:
        if session in self._guests:
            self._tell(Wanted(time.monotonic(), session, number))

    def _show(self, session: int, guest: Guest) -> None:
        descriptor = lent("figures", json.dumps(self.figures(besides=session)).encode())
        try:
            guest.say(Figures(), (descriptor,))
        finally:
            os.close(descriptor)

    def _keep(self, guest: Guest, descriptors: Sequence[int], name: str, *, count: int, seconds: float) -> None:
        """Keep blocks near by a name, or end that."""
        if seconds < 0:
            raise DataError("keep", found=f"{seconds} s", expected="0 or more")
        if not count:
            self._end_pin(self._pins.end(name))
            guest.say(Done(), ())
            return
        units = foreseen(guest, descriptors, count)
        now = time.monotonic()
        pin, before = self._pins.add(name, units, now, seconds)
        self._book.hold(units.tolist())
        self._end_pin(before)
        self._tell(Began(now, pin.job, is_pin=True))
        self._tell(Foreseen(now, pin.job, 0, units))
        guest.say(Done(count), ())

    def _kept(self, pin: Pin) -> dict[str, Any]:
        units = np.unique(pin.units)
        left = pin.ends - time.monotonic()
        return {
            "name": pin.name,
            "blocks": len(units),
            "there": sum(map(self._planner.has, units.tolist())),
            "bytes": sum(self._sizes[unit] for unit in units.tolist()),
            "seconds": None if left == float("inf") else max(0.0, left),
        }

    def _end_pin(self, pin: Pin | None) -> None:
        if pin is not None:
            self._left.extend(self._book.leave(pin.units.tolist()))
            self._tell(Ended(time.monotonic(), pin.job))

    def _end_pins(self) -> None:
        for pin in self._pins.ended(time.monotonic()):
            self._end_pin(pin)
        self._looking = self._loop.call_later(_LOOK, self._end_pins)

    # What follows.

    def _tell(self, event: Event) -> None:
        """Tell the planner, and do what it says; what happens meanwhile, as that a client hung up, comes after that."""
        self._events.append(event)
        if self._is_telling:
            return
        self._is_telling = True
        try:
            while self._events:
                now = self._events.popleft()
                for instruction in self._planner.handle(now):
                    self._do(instruction)
                if isinstance(now, events.ReadDone | events.Stored):
                    self._left.append(now.unit)
            self._carrier.flush()
            # Not before: until it has heard of all who ended, the planner may have their blocks read.
            while self._left:
                self._forget_unless_kept(self._left.pop())
        finally:
            self._is_telling = False
        if self.draining.is_set() and self._planner.disk.is_settled and not self.drained.is_set():
            self.drained.set()
            for guest in [one for one in self._guests.values() if one.is_draining]:
                guest.say(Done(len(self._planner.disk.held)), ())

    def _do(self, instruction: Instruction) -> None:
        match instruction:
            case Read(number, is_near):
                self._carrier.read(number, self._sizes[number], is_near=is_near)
            case Store(number):
                self._carrier.store(number)
            case Erase(number):
                self._carrier.erase(number)
                self._left.append(number)
            case Drop(number):
                self._carrier.drop(number)
                self._left.append(number)
            case Answer(session, number, is_there):
                self._answer(session, number, is_there=is_there)

    def _answer(self, session: int, number: int, *, is_there: bool) -> None:
        guest = self._guests.get(session)
        if guest is not None:
            for block in guest.wanted.pop(number, ()):
                guest.say(There(block) if is_there else Unavailable(block), ())

    def _forget_unless_kept(self, number: int) -> None:
        if not self._book.is_named(number) and not self._planner.has(number):
            self._book.forget(number)
            self._sizes.pop(number, None)
