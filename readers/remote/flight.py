"""Flight: the requests of one read that are in flight, within the process's budget of bytes."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Self

from voxload.errors import InternalError, UsageError
from voxload.readers.pasting.pasteplan import Place
from voxload.readers.remote.coalesce import Get, Piece
from voxload.readers.remote.fetchers import fetchers
from voxload.readers.scratch import Bytes

BYTES_IN_FLIGHT = 2**28
"""For all reads of a process: twice what a connection of 10 Gbit/s carries in 0.1 s, so that it never idles while
chunks are decoded."""


class ByteBudget:
    """Bytes that may be reserved before they are asked for; safe to use from many threads at once.

    Whoever waits is served in the order of coming. More than the whole budget is granted to one who is alone: a chunk
    has to be held in one piece, however large it is.
    """

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise UsageError("bytes in flight", found=str(limit), expected="1 or more")
        self._limit = limit
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self.held = 0

    def reserve(self, size: int) -> None:
        """Reserve bytes; waits until others have released enough."""
        turn = object()
        with self._changed:
            self._waiting.append(turn)
            try:
                self._changed.wait_for(lambda: self._waiting[0] is turn and self._fits(size))
                self.held += size
            finally:
                self._waiting.remove(turn)
                self._changed.notify_all()

    def try_reserve(self, size: int) -> bool:
        """Reserve bytes if that needs no waiting; tell whether it was done."""
        with self._changed:
            if self._waiting or not self._fits(size):
                return False
            self.held += size
            return True

    def release(self, size: int) -> None:
        """Give bytes back."""
        with self._changed:
            self.held -= size
            self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        return not self.held or self.held + size <= self._limit


_budget = ByteBudget(BYTES_IN_FLIGHT)


def budget() -> ByteBudget:
    """Return the process's budget."""
    return _budget


def _forget() -> None:
    """Start with nothing held in a forked child: the reads that held it are not there."""
    global _budget  # noqa: PLW0603 - the bytes belong to the process
    _budget = ByteBudget(BYTES_IN_FLIGHT)


os.register_at_fork(after_in_child=_forget)


Load = Callable[[Get], Bytes | None]
"""Returns the bytes of a request, or None where there is no such object; called from many threads at once."""


class _Sent:
    """A request on its way, or arrived and not used up."""

    def __init__(self, request: Get, future: Future[Bytes | None]) -> None:
        self.request = request
        self.future = future
        self.left = len(request.pieces)


class Flight:
    """Fetches ahead what a read will take; used in a ``with`` statement, `take` from many threads at once.

    Groups of requests are sent in order, as far as the process's budget of bytes allows. A thread that needs a chunk
    of a later group waits until that group is allowed. This cannot last for ever: a group is allowed as a whole, and
    all chunks of the groups before it have been taken by threads that wait for nothing but their own requests.

    Parameters
    ----------
    groups
        What `plan_requests` returned.
    load
        How a request's bytes are fetched.
    held
        The budget; the process's by default.
    """

    def __init__(self, groups: Sequence[tuple[Get, ...]], load: Load, *, held: ByteBudget | None = None) -> None:
        self._groups = groups
        self._load = load
        self._budget = held or budget()
        self._where: dict[Place, tuple[int, Piece]] = {
            piece.place: (number, piece)
            for number, group in enumerate(groups)
            for request in group
            for piece in request.pieces
        }
        self._sending = threading.Condition()
        self._sent_groups = 0
        self._is_reserving = False
        self._counting = threading.Lock()
        self._sent: dict[Place, _Sent] = {}
        self._is_over = False

    def __enter__(self) -> Self:
        self._send_allowed()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give up what was not taken; requests that are being answered end by themselves, and nobody waits for them."""
        with self._counting:
            self._is_over = True
            left = {id(sent): sent for sent in self._sent.values()}
            self._sent.clear()
        for sent in left.values():
            sent.future.cancel()
            # Bytes that still arrive are held until then. Of a request that was cancelled or is done: at once.
            sent.future.add_done_callback(partial(self._release, sent.request.size))

    def take(self, place: Place) -> Bytes | None:
        """Return a chunk's bytes once they arrived, each chunk once; None for one not planned, or not there."""
        found = self._where.get(place)
        if found is None:
            return None
        number, piece = found
        if number >= self._sent_groups:
            self._send_up_to(number)
        with self._counting:
            sent = self._sent.pop(place)
        try:
            data = sent.future.result()
        finally:
            self._count_down(sent)
        start = piece.start - sent.request.start
        return None if data is None else data[start : start + piece.stop - piece.start]

    def taken(self, place: Place) -> Bytes:
        """Return the bytes of a chunk that was planned, and whose file must hold it."""
        data = self.take(place)
        if data is None:
            raise InternalError(f"chunk {place} was not asked for, or twice")
        return data

    def _release(self, size: int, _future: Future[Bytes | None]) -> None:
        self._budget.release(size)

    def _count_down(self, sent: _Sent) -> None:
        """Count a chunk of a request as taken; with the last one its bytes are no longer this read's."""
        with self._counting:
            sent.left -= 1
            is_used_up = not sent.left and not self._is_over
        if is_used_up:
            self._budget.release(sent.request.size)
            self._send_allowed()

    def _send_up_to(self, number: int) -> None:
        """Send all groups up to one, waiting for the budget."""
        while True:
            with self._sending:
                self._sending.wait_for(lambda: self._sent_groups > number or not self._is_reserving)
                if self._sent_groups > number:
                    return
                self._is_reserving = True
            # Without the lock: what is waited for may be a chunk that another thread of this read is about to take.
            try:
                self._budget.reserve(_size(self._groups[self._sent_groups]))
                with self._sending:
                    self._send_next()
            finally:
                with self._sending:
                    self._is_reserving = False
                    self._sending.notify_all()

    def _send_allowed(self) -> None:
        """Send as many groups as the budget allows at once."""
        with self._sending:
            while not self._is_reserving and self._sent_groups < len(self._groups):
                if not self._budget.try_reserve(_size(self._groups[self._sent_groups])):
                    return
                self._send_next()

    def _send_next(self) -> None:
        """Send one group, whose bytes are reserved; with the lock."""
        group = self._groups[self._sent_groups]
        for request in group:
            sent = _Sent(request, fetchers().submit(self._load, request))
            with self._counting:
                self._sent.update((piece.place, sent) for piece in request.pieces)
        self._sent_groups += 1
        self._sending.notify_all()


def _size(group: tuple[Get, ...]) -> int:
    return sum(request.size for request in group)
