"""MPI: blocks of other ranks by one-sided gets; the owner's processor is not asked where the network can do without.

A window lies over each rank's memory tier. A get reads the rows that a block may have, then its bytes, then its row
again (`voxload.cache.memory.layout` says why that is enough), into buffers of the transport's own: MPI cannot take a
get back, so one that does not end in time writes there for as long as it likes, and nowhere else.

What MPI itself does not give: blocks on disk are ABSENT here; under MPICH a rank that is killed takes the job with it;
and within one node, MPICH without XPMEM answers a get only when the owner happens to call MPI. Ranks of one node read
each other's tiers through `NodePeers` instead.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from voxload.cache.memory.layout import HEAD, Layout, Row
from voxload.cache.peer.bufferpool import BufferPool
from voxload.cache.peer.polling import poll_for
from voxload.cache.protocol import Answer, BlockKey
from voxload.cache.warnonce import WarnOnce
from voxload.errors import InternalError, UsageError, VoxloadError
from voxload.readers.protocol import Volume
from voxload.readers.scratch import Bytes

TIMEOUT = 10.0
"""Seconds in which a block must have come, or be given up."""

RECEIVED = 2**28
"""Bytes of blocks that are on their way to one rank."""

_MEETING = 60.0
"""Seconds in which all ranks of a line must come to set up or take down the windows."""
_SIZE_BYTES = 8
_LOOKS_AT_ONCE = 16
_SHORTEST_PAUSE, _LONGEST_PAUSE, _PAUSING = 20e-6, 1e-3, 1e-3


class MpiPeers:
    """Fetches blocks from the memory tiers of other ranks; a `Peers`.

    Making and closing one is collective: all ranks of the line do both, in any order with other MPI calls but in the
    same order on every rank. A rank that does not come within a minute is an error when it is made, and leaves the
    window to the end of the process when it is closed.

    Parameters
    ----------
    line
        Communicator of the ranks that share blocks, in the order of their sample groups; see `split_world`.
    arena
        Memory of this rank's tier, from its beginning; stays where it is until this is closed. None without one.
    timeout
        Seconds in which a block must have come, on top of what a call waits for one that is to come.
    received
        Bytes, hard: blocks on their way. A larger block is never fetched.

    Raises
    ------
    UsageError
        When MPI was initialised for fewer threads than this needs: with MPI_THREAD_SERIALIZED calls take turns, and
        nothing else in the process may call MPI meanwhile; with less there are none.
    InternalError
        When ranks of the line do not come, or have tiers of another version.
    """

    def __init__(self, line: Any, arena: Bytes | None, *, timeout: float = TIMEOUT, received: int = RECEIVED) -> None:
        self._mpi = _mpi()
        self._turn = _turn(self._mpi)
        self._warnings = WarnOnce("MPI peers")
        self._timeout = timeout
        self._buffers = BufferPool(received)
        self._given_up: list[tuple[Any, Bytes]] = []
        if not _do_all_come(line, self._turn, _MEETING):
            raise InternalError("MPI line", found="a rank that does not come", expected="all, within a minute")
        with self._turn:
            self._line = line.Dup()
            heads = _heads(self._line, arena)
            self._arena = arena  # the window lies over it
            self._window = self._mpi.Win.Create(arena, 1, comm=self._line)
            if self._window.model != self._mpi.WIN_UNIFIED:
                raise UsageError("MPI library", found="windows with a private copy", expected="MPI_WIN_UNIFIED")
            self._window.Lock_all(self._mpi.MODE_NOCHECK)
        self._layouts = [_layout(rank, size, head) for rank, (size, head) in enumerate(heads)]

    def get_into(self, group: int, key: BlockKey, out: Volume, *, wait: float) -> Answer:
        """Fill `out` with a block out of a group's memory tier; see `Peers`. Raises UsageError for an unknown group."""
        if not 0 <= group < len(self._layouts):
            raise UsageError("group", found=str(group), expected=f"0 to {len(self._layouts) - 1}")
        layout = self._layouts[group]
        if layout is None:
            return Answer.ABSENT
        return poll_for(lambda: self._look(group, layout, key, out), wait)

    def close(self) -> None:
        """Take the windows down together with the other ranks; bounded, and with a warning where one does not come."""
        deadline = time.monotonic() + self._timeout
        is_quiet = _poll(lambda: all(self._test(request) for request, _ in self._given_up), deadline)
        # Twice: a rank that gave up waiting the first time does not come the second time, and nobody frees alone.
        if not (is_quiet and all(_do_all_come(self._line, self._turn, self._timeout) for _ in range(2))):
            self._warnings.tell(
                "close", "a get or another rank is still under way", remedy="the window stays until the process ends"
            )
            # MPI itself ends after the interpreter, and what it may still write to must be there as long.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
            return
        with self._turn:
            self._window.Unlock_all()
            self._window.Free()
            self._line.Free()
        self._arena = None

    def _look(self, group: int, layout: Layout, key: BlockKey, out: Volume) -> Answer:
        """Fetch a block that is there now."""
        deadline = time.monotonic() + self._timeout
        while True:
            rows = self._get(group, layout.window(key.digest), deadline)
            if rows is None:
                return Answer.LOST
            row = layout.find(key.digest, rows)
            if row is None:
                return Answer.ABSENT
            if not row.form.suits(out) or row.form.stored > out.nbytes:
                return Answer.WRONG
            if row.form.stored > self._buffers.limit:
                what = f"a block of {row.form.stored} bytes, at most {self._buffers.limit} are fetched"
                self._warnings.tell("size", what, remedy="raise what may be received")
                return Answer.ABSENT
            answer = self._fetch(group, row, key, out, deadline)
            if answer is not None:
                return answer

    def _fetch(self, group: int, row: Row, key: BlockKey, out: Volume, deadline: float) -> Answer | None:
        """Fetch the block of a row; None where the row changed meanwhile."""
        data = self._get(group, row.span, deadline)
        again = None if data is None else self._get(group, row.place, deadline)
        if data is None or again is None:
            return Answer.LOST
        if again.tobytes() != row.content:
            return None
        return Answer.GOT if row.form.takes(key.digest, data, out) else Answer.WRONG

    def _get(self, group: int, span: slice, deadline: float) -> Bytes | None:
        """Return bytes of a group's tier; None where they do not come in time."""
        count = span.stop - span.start
        data = self._buffers.take(count, patience=deadline - time.monotonic())
        if data is None:
            return None
        place = (span.start, count, self._mpi.BYTE)
        with self._turn:
            request = self._window.Rget([data, self._mpi.BYTE], group, target=place)
        if _poll(lambda: self._test(request), deadline):
            return data
        self._given_up.append((request, data))
        return None

    def _test(self, request: Any) -> bool:
        with self._turn:
            return bool(request.Test())


def split_world(line: int, group: int) -> Any:
    """Return the communicator of a line, in the order of the sample groups; collective over all ranks of the job.

    Initialises MPI, asking for MPI_THREAD_MULTIPLE, unless it is initialised. Raises UsageError without mpi4py.
    """
    return _mpi().COMM_WORLD.Split(line, group)


def _mpi() -> Any:
    """Return mpi4py's MPI; importing it initialises MPI, so it is imported where it is used first.

    mpi4py asks for MPI_THREAD_MULTIPLE unless the user had it ask for less.
    """
    try:
        from mpi4py import MPI  # noqa: PLC0415 - optional
    except (ImportError, RuntimeError) as error:
        raise UsageError(
            "MPI", found=str(error), expected="mpi4py and an MPI library", remedy='pip install "voxload[mpi]"'
        ) from error
    return MPI


def _turn(mpi: Any) -> AbstractContextManager[Any]:
    """Return what an MPI call is made under: nothing, or a lock where one thread at a time may be in MPI."""
    level = mpi.Query_thread()
    if level < mpi.THREAD_SERIALIZED:
        raise UsageError(
            "MPI",
            found="support for one thread only",
            expected="MPI_THREAD_MULTIPLE",
            remedy="initialise it so (mpi4py does by itself), or take Cache(peers='tcp')",
        )
    return nullcontext() if level == mpi.THREAD_MULTIPLE else threading.Lock()


def _heads(line: Any, arena: Bytes | None) -> list[tuple[int, bytes]]:
    """Return size and head of every rank's tier, size 0 where it has none. Bare bytes: MPI's objects are pickles."""
    mine = np.zeros(_SIZE_BYTES + HEAD.itemsize, np.uint8)
    if arena is not None:
        mine[:_SIZE_BYTES] = np.frombuffer(len(arena).to_bytes(_SIZE_BYTES, "little"), np.uint8)
        mine[_SIZE_BYTES:] = arena[: HEAD.itemsize]
    everyone = np.empty((line.size, len(mine)), np.uint8)
    line.Allgather(mine, everyone)
    return [(int.from_bytes(one[:_SIZE_BYTES].tobytes(), "little"), one[_SIZE_BYTES:].tobytes()) for one in everyone]


def _layout(rank: int, size: int, head: bytes) -> Layout | None:
    if not size:
        return None
    try:
        return Layout.parse(head, size, f"memory tier of group {rank}")
    except VoxloadError as error:
        raise InternalError(str(error), remedy="run the same voxload on all ranks") from error


def _do_all_come(line: Any, turn: AbstractContextManager[Any], seconds: float) -> bool:
    """Wait for all ranks, at most so long; tell whether they came."""
    with turn:
        request = line.Ibarrier()

    def is_done() -> bool:
        with turn:
            return bool(request.Test())

    return _poll(is_done, time.monotonic() + seconds)


def _poll(is_done: Callable[[], bool], deadline: float) -> bool:
    """Look until something is done, at first without a pause; tell whether it was before the deadline.

    Some networks move a piece of the data in every look: pauses are a small part of what was waited already.
    """
    looks, begin = 0, time.monotonic()
    while not is_done():
        now = time.monotonic()
        if now > deadline:
            return False
        looks += 1
        if looks > _LOOKS_AT_ONCE:
            time.sleep(min(max((now - begin) * _PAUSING, _SHORTEST_PAUSE), _LONGEST_PAUSE))
    return True
