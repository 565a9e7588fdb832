"""An owner of blocks in a process of its own: does what it is told over a local socket.

    python owner.py SOCKET            lends over TCP
    mpiexec ... python owner.py SOCKET mpi    lies open to one-sided gets

It never calls MPI while it waits for orders, so that a get succeeds without it or not at all.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from multiprocessing.connection import Client, Connection
from typing import Any

import numpy.typing as npt

from voxload.cache.memory.tier import MemoryTier
from voxload.cache.peer.address import PeerAddress, host_identity
from voxload.cache.peer.mpi import MpiPeers, split_world
from voxload.cache.peer.server import PeerServer
from voxload.cache.peer.shelf import Shelf
from voxload.cache.protocol import BlockKey

CAPACITY = 2**23
"""Bytes of an owner's memory: three ranks and what MPI takes fit 64 MiB of shared memory, as containers have."""
SOON = 0.1
"""Seconds."""


class Orders:
    """What an owner can be told to do."""

    def __init__(self, memory: MemoryTier, shelf: Shelf) -> None:
        self._memory = memory
        self._shelf = shelf

    def put(self, key: BlockKey, block: npt.NDArray[Any]) -> bool:
        """Store a block and say so."""
        is_kept = self._memory.put(key, block)
        self._shelf.notify()
        return is_kept

    def put_soon(self, key: BlockKey, block: npt.NDArray[Any]) -> None:
        """Store a block a moment later."""
        threading.Timer(SOON, self.put, (key, block)).start()

    def drop(self, key: BlockKey) -> None:
        """Forget a block."""
        self._memory.drop(key)


def obey(link: Connection, memory: MemoryTier, shelf: Shelf) -> None:
    """Carry out orders until there are no more."""
    orders = Orders(memory, shelf)
    while (order := link.recv()) is not None:
        name, *arguments = order
        link.send(getattr(orders, name)(*arguments))


def connect(socket: str) -> Connection:
    """Return a connection to who gives orders, once it listens."""
    deadline = time.monotonic() + 600
    while True:
        try:
            return Client(socket)
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def main(socket: str, transport: str = "tcp") -> None:
    """Make a tier, lend from it, and obey."""
    with connect(socket) as link:
        token = link.recv()
        memory = MemoryTier(CAPACITY, job="test-peers")
        shelf = Shelf([memory])
        server = PeerServer(shelf, token=token) if transport == "tcp" else None
        address = PeerAddress(host_identity(), arena=memory.path, location=server.location if server else "")
        link.send((address, os.getpid()))
        peers = MpiPeers(split_world(0, 0), memory.memory) if transport == "mpi" else None
        obey(link, memory, shelf)
        for thing in (peers, server):
            if thing is not None:
                thing.close()
        memory.close()
        link.send(threading.active_count())


if __name__ == "__main__":
    main(*sys.argv[1:])
