"""Service: the door, what is kept behind it, and how both begin and end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

from voxload.serve.door import Door
from voxload.serve.keeper import Keeper
from voxload.serve.sessions import Sessions

LEASE = 10.0
"""Seconds; a client asks for the next lease after a third of one, and has then waited long where it is not answered."""
_MOST = 1024
"""Clients at once: the ranks of some hundred jobs on a node."""


async def serve(path: Path, *, memory: int, threads: int, ready: Callable[[], object]) -> None:
    """Keep blocks for all who connect to a socket, until SIGTERM or SIGINT comes.

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

    Raises
    ------
    UsageError
        Where there is not so much memory, or a service listens there already.
    StorageError
        Where the socket's folder is not this user's alone.
    """
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    sessions = Sessions(lease=LEASE, most=_MOST, most_of_user=_MOST)
    keeper = Keeper(memory, threads=threads, sessions=sessions)
    try:
        door = Door(path, sessions, work=keeper)
        try:
            ready()
            await ending.wait()
        finally:
            door.close()
    finally:
        keeper.close()
