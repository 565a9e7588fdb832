"""Keeper: the memory of a service, what is read into it, and for whom; driven by the thread of an event loop.

Rules of this file:

1. Only the loop's thread talks to the planner and to clients. Reads are done by threads of a bounded team.
2. What is in the memory was read by this process, with its rights, and was not written to while it was read.
3. A client is told that a block is there only by what is stored there now: who does not find it is told so once more,
   after a look at the storage.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from voxload.cache.memory.tier import MemoryTier
from voxload.cache.protocol import BlockKey
from voxload.errors import DataError, VoxloadError
from voxload.prefetch.execution.threadpool import GRACE, DaemonThreadPool
from voxload.prefetch.line import Ints
from voxload.prefetch.sharing import events
from voxload.prefetch.sharing.events import (
    Answer,
    Began,
    Drop,
    Ended,
    Event,
    Foreseen,
    Instruction,
    Lost,
    Read,
    ReadDone,
    Wanted,
)
from voxload.prefetch.sharing.planner import SharedPlanner, SharingLimits
from voxload.serve.blocktable import MOST, divided
from voxload.serve.book import BlockBook
from voxload.serve.bulk import lent, taken
from voxload.serve.messages import (
    Blocks,
    Figures,
    Look,
    Memory,
    Message,
    Order,
    Reached,
    There,
    Unavailable,
    Want,
)
from voxload.serve.sessions import Sessions
from voxload.serve.storedblocks import StoredBlocks

_BLOCKS = 2**22
"""Blocks that are remembered at once, of all clients; each takes some hundred bytes."""
_USES = 2**20
"""Uses of an order, at once."""
_USE = np.dtype("<i8")

Say = Callable[[Message, Sequence[int]], None]
"""Sends a message with descriptors to a client; raises nothing."""


@dataclass(slots=True)
class _Client:
    say: Say
    blocks: list[int] = field(default_factory=list)
    """Numbers in the book, by the client's own."""
    wanted: dict[int, set[int]] = field(default_factory=dict)
    """The client's numbers of what it waits for, by the book's."""
    place: int = 0
    end: int = 0


@dataclass(slots=True)
class Totals:
    """What the service did since it began."""

    reads: int = 0
    storage_bytes: int = 0
    """That these asked of the storage."""
    failed: int = 0
    """Reads that brought nothing which could be kept."""
    dropped: int = 0
    wants: int = 0
    """Blocks that clients waited for, or would have had to."""


class Keeper:
    """Keeps blocks for the clients of a service; used by one thread, that of the running event loop.

    Parameters
    ----------
    capacity
        Bytes of memory.
    threads
        Reads at once.
    sessions
        Who is in.

    Raises
    ------
    UsageError
        Where there is not so much memory.
    """

    def __init__(self, capacity: int, *, threads: int, sessions: Sessions) -> None:
        self._loop, self._sessions, self._since = asyncio.get_running_loop(), sessions, time.monotonic()
        self._memory = MemoryTier(capacity, job="service", is_named=False)
        self._planner = SharedPlanner(self._memory.room, limits=SharingLimits(reads=threads))
        self._book = BlockBook(_BLOCKS)
        self._sizes: dict[int, int] = {}
        self._stored = StoredBlocks(self._book.line)
        self._keys: dict[int, BlockKey] = {}
        self._team = DaemonThreadPool(threads, "voxload-service-reader")
        self._clients: dict[int, _Client] = {}
        self._events: deque[Event] = deque()
        self._left: list[int] = []  # blocks that may be forgotten, unless somebody names or keeps them
        self._is_telling = self._is_closed = False
        self.totals = Totals()

    @property
    def used(self) -> int:
        """Bytes of the memory that are taken."""
        return self._memory.used

    @property
    def capacity(self) -> int:
        """Bytes of the memory."""
        return self._memory.capacity

    def figures(self, *, besides: int = 0) -> dict[str, Any]:
        """Return what is kept, what was read, and for whom, but for one session, as plain values for JSON."""
        totals, held = self.totals, self._planner.held
        jobs = [
            {"name": one.name, "session": one.number, "uid": one.uid, "pid": one.pid}
            | {"blocks": len(client.blocks), "ahead": client.end - client.place, "waiting": len(client.wanted)}
            for one in self._sessions
            if one.number != besides and (client := self._clients.get(one.number)) is not None
        ]
        return {
            "seconds": time.monotonic() - self._since,
            "memory": {"capacity": self.capacity, "used": self.used, "blocks": len(held), "dropped": totals.dropped},
            "reads": {
                "done": totals.reads,
                "failed": totals.failed,
                "storage_bytes": totals.storage_bytes,
                "waited_for": totals.wants,
            },
            "blocks_known": len(self._book),
            "jobs": jobs,
        }

    def began(self, session: int, say: Say) -> None:
        """Take in a client."""
        self._clients[session] = _Client(say)
        self._tell(Began(time.monotonic(), session))
        say(Memory(self._memory.path), (self._memory.descriptor,))

    def ended(self, session: int) -> None:
        """Forget a client, and what only it will use; what is kept stays until its room is needed."""
        client = self._clients.pop(session, None)
        if client is None:
            return
        self._left.extend(self._book.leave(client.blocks))
        self._tell(Ended(time.monotonic(), session))

    def heard(self, session: int, message: Message, descriptors: Sequence[int]) -> None:
        """Do what a client says; raises VoxloadError where that makes no sense. The descriptors stay the caller's."""
        client = self._clients[session]
        match message:
            case Blocks(count):
                self._take_blocks(client, count, _only(descriptors))
            case Order(place, count):
                self._take_order(session, client, place, count=count, descriptor=_only(descriptors))
            case Reached(place):
                if not client.place <= place <= client.end:
                    raise DataError("reached", found=str(place), expected=f"{client.place} to {client.end}")
                client.place = place
                self._tell(events.Reached(time.monotonic(), session, place))
            case Want(block, again):
                self._want(session, client, block, is_again=bool(again))
            case Look():
                self._show(session, client)
            case _:
                raise DataError("message", found=message.kind, expected="one of a client that is in")

    def close(self) -> None:
        """Stop reading and give the memory up; clients keep what they have mapped."""
        self._is_closed = True
        self._team.shutdown(wait=False, cancel_futures=True)
        self._team.join(time.monotonic() + GRACE)
        self._stored.close()
        self._memory.close()

    # What clients say.

    def _take_blocks(self, client: _Client, count: int, descriptor: int) -> None:
        if not 1 <= count <= MOST:
            raise DataError("blocks", found=str(count), expected=f"1 to {MOST}")
        sizes, lines = divided(taken("block table", descriptor), count)
        numbers, fresh = self._book.name(lines)
        footprints = np.array([MemoryTier.footprint(size) for size in sizes[fresh].tolist()], np.int64)
        self._planner.know(numbers[fresh], footprints)
        self._sizes.update(zip(numbers[fresh].tolist(), sizes[fresh].tolist(), strict=True))
        client.blocks.extend(numbers.tolist())

    def _take_order(self, session: int, client: _Client, place: int, *, count: int, descriptor: int) -> None:
        if not (0 <= count <= _USES and client.place <= place <= client.end):
            expected = f"at most {_USES} from {client.place} to {client.end} on"
            raise DataError("order", found=f"{count} uses from {place} on", expected=expected)
        data = taken("order", descriptor, most=count * _USE.itemsize)
        if len(data) != count * _USE.itemsize:
            raise DataError("order", found=f"{len(data)} bytes", expected=f"{count} uses")
        uses = np.frombuffer(data, _USE).astype(np.int64)
        if count and not (uses.min() >= 0 and uses.max() < len(client.blocks)):
            found = f"blocks {uses.min()} to {uses.max()}"
            raise DataError("order", found=found, expected=f"0 to {len(client.blocks) - 1}")
        client.end = place + count
        numbers: Ints = np.array(client.blocks, np.int64)[uses]
        self._tell(Foreseen(time.monotonic(), session, place, numbers))

    def _want(self, session: int, client: _Client, block: int, *, is_again: bool) -> None:
        if not 0 <= block < len(client.blocks):
            raise DataError("want", found=f"block {block}", expected=f"0 to {len(client.blocks) - 1}")
        number = client.blocks[block]
        client.wanted.setdefault(number, set()).add(block)
        self.totals.wants += 1
        if is_again and number in self._planner.held:
            self._submit(partial(self._look, session, number, self._keys.get(number)))
        else:
            self._tell(Wanted(time.monotonic(), session, number))

    def _show(self, session: int, client: _Client) -> None:
        descriptor = lent("figures", json.dumps(self.figures(besides=session)).encode())
        try:
            client.say(Figures(), (descriptor,))
        finally:
            os.close(descriptor)

    # What follows.

    def _tell(self, event: Event) -> None:
        """Tell the planner, and do what it says; what happens meanwhile, as that a client hung up, comes after that."""
        self._events.append(event)
        if self._is_telling:
            return
        self._is_telling = True
        try:
            while self._events:
                for instruction in self._planner.handle(self._events.popleft()):
                    self._do(instruction)
            # Not before: until it has heard of all who ended, the planner may have their blocks read.
            while self._left:
                self._forget_unless_kept(self._left.pop())
        finally:
            self._is_telling = False

    def _do(self, instruction: Instruction) -> None:
        match instruction:
            case Read(number):
                self._submit(partial(self._read, number, self._sizes[number]))
            case Drop(number):
                self._drop(number)
            case Answer(session, number, is_there):
                self._answer(session, number, is_there=is_there)

    def _answer(self, session: int, number: int, *, is_there: bool) -> None:
        client = self._clients.get(session)
        if client is not None:
            for block in client.wanted.pop(number, ()):
                client.say(There(block) if is_there else Unavailable(block), ())

    def _drop(self, number: int) -> None:
        key = self._keys.pop(number, None)
        if key is not None:
            self._memory.drop(key)
            self.totals.dropped += 1
        self._left.append(number)

    def _forget_unless_kept(self, number: int) -> None:
        if not self._book.is_named(number) and not self._planner.has(number):
            self._book.forget(number)
            self._sizes.pop(number, None)

    # What threads of the team do, and what comes of it.

    def _submit(self, work: Callable[[], None]) -> None:
        if not self._is_closed:
            self._team.submit(work)

    def _post(self, act: Callable[[], None]) -> None:
        """Let the loop's thread do something, unless all of it ends."""
        if not self._is_closed and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act)

    def _read(self, number: int, nbytes: int) -> None:
        """Read a block into the memory; runs in a thread of the team."""
        kept, stored = None, 0
        try:
            found = self._stored.read(number, nbytes)
            stored = found.cost.stored_bytes
            kept = found.key if self._memory.put(found.key, found.volume) else None
        except (VoxloadError, OSError, MemoryError):  # the client reads it itself, and is told there what is wrong
            kept = None
        finally:
            self._post(partial(self._has_read, number, stored, kept))

    def _has_read(self, number: int, stored: int, key: BlockKey | None) -> None:
        self.totals.reads += 1
        self.totals.storage_bytes += stored
        if key is None:
            self.totals.failed += 1
        else:
            self._keys[number] = key
        self._tell(ReadDone(time.monotonic(), number, is_kept=key is not None))
        self._forget_unless_kept(number)

    def _look(self, session: int, number: int, key: BlockKey | None) -> None:
        """Tell whether a block that is kept is undamaged, and what is stored now; runs in a thread of the team."""
        is_so = False
        with suppress(VoxloadError, OSError):
            if key is not None and self._stored.key(number) == key:
                layout = self._stored.unit(number).layout[0]
                with self._memory.lent(key, layout.dtype, layout.shape) as found:
                    is_so = found is not None
        self._post(partial(self._has_looked, session, number, key, is_so=is_so))

    def _has_looked(self, session: int, number: int, key: BlockKey | None, *, is_so: bool) -> None:
        if not is_so and key is not None and self._keys.get(number) == key:
            del self._keys[number]
            self._memory.drop(key)
            self._tell(Lost(time.monotonic(), number))
            self._forget_unless_kept(number)
        if session in self._clients:
            self._tell(Wanted(time.monotonic(), session, number))


def _only(descriptors: Sequence[int]) -> int:
    if len(descriptors) != 1:
        raise DataError("message", found=f"{len(descriptors)} descriptors", expected="one")
    return descriptors[0]
