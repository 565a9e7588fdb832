"""Service: the door, what is kept behind it, and how both begin and end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from voxload.serve.door import Door
from voxload.serve.keeping.keeper import Keeper
from voxload.serve.reception import Reception
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
    ready: Callable[[], object],
    disk: tuple[Path, int] | None = None,
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
        Called once clients are let in.
    disk
        Folder on a disk of this node, and bytes of all that lies there; None for no disk.

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
    with ExitStack() as stack:
        keeper = stack.enter_context(closing(Keeper(memory, threads=threads, sessions=sessions, disk=disk)))
        reception = stack.enter_context(closing(Reception(sessions, work=keeper)))
        door = stack.enter_context(closing(Door(path, reception)))
        ready()
        await _either(ending, keeper.draining)
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
