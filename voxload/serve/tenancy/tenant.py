"""Tenant: the process of one user's, which hears their clients and keeps blocks for them with their rights.

It is what a service of that user's own would be, but that connections are handed to it, and memory with them.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial

from voxload.cache.memory.handed import HandedMemory
from voxload.errors import DataError, StorageError, VoxloadError
from voxload.serve.keeping.keeper import Keeper
from voxload.serve.protocol.bulk import lent
from voxload.serve.protocol.packets import PacketSocket
from voxload.serve.protocol.wire import decoded, encoded
from voxload.serve.reception import Reception
from voxload.serve.service import LEASE
from voxload.serve.sessions import Sessions
from voxload.serve.tenancy.neighbours import Neighbours, answer, copied
from voxload.serve.tenancy.orders import (
    TO_TENANT,
    Admit,
    Allot,
    Bear,
    Fits,
    Give,
    Given,
    Jobs,
    Order,
    Tell,
    Told,
)

_MOST = 1024
"""Clients at once."""
_BREATH = 0.05
"""Seconds until something is said again that was not taken."""
_LOOK = 0.25
"""Seconds between two looks at how many jobs there are."""


def tenant(order: Bear, descriptors: Sequence[int]) -> None:
    """Be a tenant's process until the parent hangs up; `descriptors` as in `Nursery.bear`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asyncio.run(_Tenant(order).run(*descriptors))


class _Tenant:
    def __init__(self, order: Bear) -> None:
        self._order = order
        self._ended = asyncio.Event()

    async def run(self, control: int, writable: int, readable: int) -> None:
        self._loop = loop = asyncio.get_running_loop()
        connection = socket.socket(fileno=os.dup(control))
        connection.settimeout(0)
        self._packets = PacketSocket(connection)
        self._sessions = Sessions(lease=LEASE, most=_MOST, most_of_user=_MOST)
        self._neighbours = Neighbours(self._say_from_any)
        make = partial(HandedMemory, writable=writable, readable=readable, usable=self._order.usable)
        with ExitStack() as stack:
            stack.callback(self._packets.close)
            self._keeper = stack.enter_context(
                closing(
                    Keeper(
                        self._order.memory,
                        threads=self._order.threads,
                        sessions=self._sessions,
                        make=make,
                        elsewhere=self._neighbours,
                    )
                )
            )
            self._reception = stack.enter_context(closing(Reception(self._sessions, work=self._keeper)))
            loop.add_reader(self._packets, self._hear)
            stack.callback(loop.remove_reader, self._packets)
            counting = loop.create_task(self._count())
            stack.callback(counting.cancel)
            await self._ended.wait()

    def _hear(self) -> None:
        try:
            packet = self._packets.receive()
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, DataError):
            packet = None
        if packet is None:
            self._ended.set()
            return
        with closing(packet):
            self._obey(decoded(packet.words, TO_TENANT), packet.descriptors)

    def _obey(self, order: Order, descriptors: Sequence[int]) -> None:
        match order:
            case Admit() if descriptors:
                self._reception.admit(socket.socket(fileno=os.dup(descriptors[0])))
            case Allot(number, memory, reads):
                with suppress(StorageError):  # the system does not give so much: what is said is what is used
                    self._keeper.limit(memory)
                self._keeper.read_at_once(reads)
                self._say(Fits(number, self._keeper.limited))
            case Tell():
                descriptor = lent("figures", json.dumps(self._keeper.figures()).encode())
                try:
                    self._say(Told(), [descriptor])
                finally:
                    os.close(descriptor)
            case Give(number, digest, nbytes):
                self._loop.run_in_executor(None, self._give, number, bytes.fromhex(digest), nbytes)
            case Given(number):
                self._neighbours.given(number, descriptors)
            case _:
                raise DataError("order", found=order.kind, expected="one with what belongs to it")

    def _give(self, number: int, digest: bytes, nbytes: int) -> None:
        answer(number, copied(self._keeper.memory, digest, nbytes), self._say_from_any)

    def _say(self, order: Order, descriptors: Sequence[int] = ()) -> None:
        try:
            self._packets.send(encoded(order), descriptors)
        except BlockingIOError:
            if not descriptors:  # what comes with one is asked for again
                self._loop.call_later(_BREATH, self._say, order)
        except (OSError, VoxloadError):  # a parent that does not listen is none
            self._ended.set()

    def _say_from_any(self, order: Order, descriptors: Sequence[int]) -> None:
        """Say something from any thread; what is not taken at once is not said."""
        with suppress(OSError):
            self._packets.send(encoded(order), descriptors)

    async def _count(self) -> None:
        """Say how many jobs there are, whenever that changes."""
        said = -1
        while True:
            count = len(self._sessions)
            if count != said:
                self._say(Jobs(count))
                said = count
            await asyncio.sleep(_LOOK)
