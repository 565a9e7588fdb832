"""Service: the door, what is kept behind it, and how both begin and end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, closing
from pathlib import Path

from voxload.serve.door import Door
from voxload.serve.keeping.keeper import Keeper
from voxload.serve.notify import notify
from voxload.serve.reception import Reception
from voxload.serve.ring.members import meeting_at
from voxload.serve.ring.ring import Home, Ring, RingOptions
from voxload.serve.seen.advice import advise
from voxload.serve.seen.where import Tenants, Where, told_at
from voxload.serve.sessions import Sessions

LEASE = 10.0
"""Seconds; a client asks for the next lease after a third of one, and has then waited long where it is not answered."""
_MOST = 1024
"""Clients at once: the ranks of some hundred jobs on a node."""


async def serve(
    path: Path,
    *,
    memory: int,
    threads: int,
    ready: Callable[[str], object],
    disk: tuple[Path, int] | None = None,
    http: Where | None = None,
    ring: tuple[str, RingOptions] | None = None,
) -> None:
    """Keep blocks for all who connect to a socket, until SIGTERM or SIGINT comes, or all is stored after `Drain`.

    Parameters
    ----------
    path
        Of the socket.
    memory
        Bytes.
    threads
        Reads at once.
    ready
        Called once clients are let in, with where people look at it; empty for nowhere.
    disk
        Folder on a disk of this node, and bytes of all that lies there; None for no disk.
    http
        Where metrics and the page are served; None for nowhere.
    ring
        By what services of several nodes meet, as `meeting_at` takes it, and how this is one of them; None for no ring.

    Raises
    ------
    UsageError
        Where there is not so much memory or room on disk, or a service listens there already.
    StorageError
        Where the socket's folder is not this user's alone, or that on disk cannot be written to.
    """
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    sessions = Sessions(lease=LEASE, most=_MOST, most_of_user=_MOST)
    async with AsyncExitStack() as stack:
        keeper = stack.enter_context(closing(Keeper(memory, threads=threads, sessions=sessions, disk=disk)))
        reception = stack.enter_context(closing(Reception(sessions, work=keeper)))
        door = stack.enter_context(closing(Door(path, reception)))
        if ring is not None:
            # By a thread: what it does first is to be let in here.
            joined = await asyncio.to_thread(_joined, path, *ring, keeper)
            stack.push_async_callback(asyncio.to_thread, joined.close)
            keeper.join(joined, lambda: joined.members)
        address = ""
        if http is not None:
            told = told_at(
                http,
                figures=_figures_of(keeper),
                is_ready=lambda: not keeper.draining.is_set(),
                advice=lambda _tenant: advise(keeper.used()),
            )
            stack.push_async_callback(told.close)
            address = told.address
        ready(address)
        notify("READY=1")
        await _either(ending, keeper.draining)
        notify("STOPPING=1")
        if not ending.is_set():
            door.shut()
            reception.shut()
            await _either(ending, keeper.drained)


async def _either(one: asyncio.Event, other: asyncio.Event) -> None:
    """Wait for one of two events."""
    waits = [asyncio.create_task(event.wait()) for event in (one, other)]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _figures_of(keeper: Keeper) -> Callable[[], Awaitable[Tenants]]:
    name = str(os.geteuid())

    async def figures() -> Tenants:
        return {name: keeper.figures()}

    return figures


def _joined(path: Path, place: str, options: RingOptions, keeper: Keeper) -> Ring:
    """Be one of several services; blocks until they are met."""
    meeting = meeting_at(place)
    with ExitStack() as stack:
        stack.callback(meeting.close)
        home = Home(path)
        stack.callback(home.close)
        found = Ring(meeting, home, options, stall=lambda: keeper.stalled)
        stack.pop_all()
    return found
