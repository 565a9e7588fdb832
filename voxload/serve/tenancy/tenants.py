"""Tenants: the processes that serve the users of a node, and what each of them may use.

1. Nothing that a user says is looked at here: the kernel says who connected, and the connection goes to the process
   that has their rights, with all that was said on it.
2. What tenants may use together is never more than the service has: what one gives up is used by others only once it
   was given back to the system. Who does not give it back in time is ended, and theirs is taken.
3. Whatever a tenant's process does, or has done to it by its user, others are served.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from voxload.cache.memory.handed import memory_to_hand, punch
from voxload.cache.memory.layout import Layout
from voxload.errors import DataError, VoxloadError
from voxload.serve.protocol.bulk import only, taken
from voxload.serve.protocol.packets import PacketSocket
from voxload.serve.protocol.wire import decoded, encoded
from voxload.serve.tenancy.allotment import Allotted, Need, Quota, Quotas, allotted
from voxload.serve.tenancy.exchange import Exchange, File, shown
from voxload.serve.tenancy.identity import Identity
from voxload.serve.tenancy.nursery import Nursery
from voxload.serve.tenancy.orders import (
    OF_TENANT,
    Admit,
    Allot,
    Fits,
    Give,
    Given,
    Has,
    Jobs,
    Lost,
    Order,
    Tell,
    Told,
    Wants,
)

PATIENCE = 10.0
"""Seconds in which a tenant gives up what it has to."""
_ANSWER = 1.0
"""Seconds in which a tenant says what it keeps: who asks waits twice as long for all of them."""
MOST = 64
"""Tenants at once: each is a process."""
_LEAST = 2**20
"""Bytes of memory that a tenant has at least, beside its table."""
_OF_USER = 4
"""Tenants of one user: sets of groups that they use at once."""
_FIGURES = 2**24
"""Bytes of what a tenant says of itself, at most."""
_PARTS = 4
"""Tenants are never so many that what each has at least is more than such a part of all."""
_TAKEN, _GIVEN = 2**30, 2**30
"""Bytes that a tenant takes or gives up at once: the system needs some tenths of a second for them."""
_PAGE = os.sysconf("SC_PAGESIZE")
_TICKETS = 4096
"""Blocks that tenants wait for from others, at most: a block in memory that nobody takes is somebody's memory."""


@dataclass(eq=False)
class Tenant:
    """A process that serves a user."""

    identity: Identity
    packets: PacketSocket
    process: int
    """Its descriptor."""
    writable: int
    """Of its memory, which is root's to take."""
    wanted: Allotted
    """What it is to have."""
    memory: int
    """Bytes that it may use now; while some are being given up, those before."""
    target: int = 0
    """Bytes that it may use after the step under way."""
    reads: int = 1
    number: int = 0
    """Of its last step."""
    jobs: int = 0
    since: float = field(default_factory=time.monotonic)
    late: asyncio.TimerHandle | None = None
    asked: list[asyncio.Future[dict[str, Any]]] = field(default_factory=list)


class Tenants:
    """All tenants of a node's service; used by one thread, that of the running event loop.

    Parameters
    ----------
    memory
        Bytes for all of them together.
    reads
        Of the storage at once, of all of them together.
    quotas
        What users may have.
    """

    def __init__(self, memory: int, *, reads: int, quotas: Quotas) -> None:
        self._memory, self._reads, self._quotas = memory, reads, quotas
        self._least = Layout.within(memory, None).data_at + _LEAST
        self._most = max(1, min(MOST, memory // (_PARTS * self._least)))
        self._loop = asyncio.get_running_loop()
        self._nursery = Nursery()
        self._tenants: dict[Identity, Tenant] = {}
        self._exchange = Exchange()
        self._tickets: dict[int, tuple[Tenant, int]] = {}  # who waits for a block, and their number of that
        self._numbers = 0
        self._taken_back = 0  # bytes of tenants that are gone, which the system does not have again yet

    def admit(self, identity: Identity, connection: socket.socket) -> None:
        """Hand a connection to who serves its user; closed here where nobody can."""
        tenant = self._tenants.get(identity)
        try:
            if tenant is None:
                tenant = self._made(identity)
            tenant.packets.send(encoded(Admit()), [connection.fileno()])
        except BlockingIOError:  # it does not keep up; the client comes again
            pass
        except (OSError, VoxloadError):
            if tenant is not None:
                self._end(tenant)
        finally:
            connection.close()

    def set_quota(self, user: int, quota: Quota) -> None:
        """Let a user have another quota from now on."""
        self._quotas = Quotas(self._quotas.default, {**self._quotas.of, user: quota})
        self._allot()

    async def figures(self) -> list[dict[str, Any]]:
        """Return what each tenant keeps, and for whom; of one that does not answer, only what is known here."""
        return list(await asyncio.gather(*map(self._figures_of, list(self._tenants.values()))))

    async def _figures_of(self, tenant: Tenant) -> dict[str, Any]:
        words: dict[str, Any] = {
            "uid": tenant.identity.uid,
            "gid": tenant.identity.gid,
            "groups": list(tenant.identity.groups),
            "quota": self._quotas.find(tenant.identity.uid).memory,
            "share": self._quotas.find(tenant.identity.uid).share,
            "memory": tenant.memory,
            "reads_at_once": tenant.reads,
            "jobs": tenant.jobs,
        }
        with suppress(TimeoutError, VoxloadError):
            words["keeps"] = await asyncio.wait_for(self._asked(tenant), _ANSWER)
        return words

    async def kept(self) -> dict[str, dict[str, Any]]:
        """Return what each tenant keeps, by its rights; of those that answer."""
        found = await self.figures()
        return {
            str(Identity(one["uid"], one["gid"], tuple(one["groups"]))): one["keeps"] for one in found if "keeps" in one
        }

    def close(self) -> None:
        """End all tenants, and take what they have."""
        for tenant in list(self._tenants.values()):
            self._end(tenant)
        self._nursery.close()

    def _made(self, identity: Identity) -> Tenant:
        """Make a tenant, in the place of one that has no jobs where there are too many."""
        if sum(one.uid == identity.uid for one in self._tenants) >= _OF_USER:
            raise DataError("tenants", found=f"{_OF_USER} of user {identity.uid}", expected="fewer sets of groups")
        if len(self._tenants) >= self._most:
            idle = [one for one in self._tenants.values() if not one.jobs]
            if not idle:
                raise DataError("tenants", found=f"{len(self._tenants)}", expected=f"at most {self._most} with jobs")
            self._end(min(idle, key=lambda one: one.since))
        with ExitStack() as stack:
            writable, readable = memory_to_hand("service", self._memory)
            stack.callback(os.close, readable)
            kept = stack.enter_context(ExitStack())
            kept.callback(os.close, writable)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
            stack.callback(theirs.close)
            ours.settimeout(0)
            packets = kept.enter_context(closing(PacketSocket(ours)))
            process = self._nursery.bear(
                identity,
                memory=self._memory,
                usable=self._least,
                threads=self._reads,
                descriptors=(theirs.fileno(), writable, readable),
            )
            kept.pop_all()
        tenant = Tenant(identity, packets, process, writable, Allotted(self._least, 1), self._least, jobs=1)
        self._tenants[identity] = tenant
        self._loop.add_reader(packets, self._hear, tenant)
        self._allot()
        return tenant

    def _allot(self) -> None:
        """Work out what tenants may have from now on, and begin to let them have it."""
        tenants = list(self._tenants.values())
        needs = [Need(one.identity.uid, one.jobs > 0, one.memory) for one in tenants]
        left = max(0, self._memory - self._least * len(tenants))  # each has the least in any case
        found = allotted(needs, memory=left, reads=self._reads, quotas=self._quotas)
        for tenant, mine in zip(tenants, found, strict=True):
            tenant.wanted = replace(mine, memory=max(self._least, mine.memory))
        self._move()

    def _move(self) -> None:
        """Let each tenant take a step to what it may have, unless one is under way: each is bounded in time."""
        for tenant in list(self._tenants.values()):
            left = self._memory - self._taken_back - sum(one.memory for one in self._tenants.values())
            memory, wanted = tenant.memory, tenant.wanted.memory
            if wanted < memory:
                memory = max(wanted, memory - _GIVEN)
            else:
                memory = min(wanted, memory + max(0, min(left, _TAKEN)))
            if tenant.late is None and (memory, tenant.wanted.reads) != (tenant.memory, tenant.reads):
                tenant.number += 1
                tenant.reads, tenant.target = tenant.wanted.reads, memory
                tenant.memory = max(memory, tenant.memory)
                tenant.late = self._loop.call_later(PATIENCE, self._end, tenant)
                self._say(tenant, Allot(tenant.number, memory, tenant.reads))

    def _fits(self, tenant: Tenant, memory: int) -> None:
        """Note that a tenant took its step, or less of it where the system does not give so much."""
        if tenant.late is not None:
            tenant.late.cancel()
            tenant.late = None
        if tenant.target < tenant.memory:
            # That it says so is not believed; it had the time.
            punch(tenant.writable, -(-tenant.target // _PAGE) * _PAGE, self._memory)
            tenant.memory = tenant.target
        elif memory < tenant.target:
            tenant.memory = max(self._least, memory)
            tenant.wanted = replace(tenant.wanted, memory=tenant.memory)
        self._move()

    def _say(self, tenant: Tenant, order: Order, descriptors: Sequence[int] = ()) -> None:
        try:
            tenant.packets.send(encoded(order), descriptors)
        except OSError:  # gone, or it hears nothing
            self._end(tenant)

    def _hear(self, tenant: Tenant) -> None:
        try:
            packet = tenant.packets.receive()
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, DataError):
            packet = None
        if packet is None:
            self._end(tenant)
            return
        with closing(packet):
            try:
                self._take(tenant, decoded(packet.words, OF_TENANT), packet.descriptors)
            except VoxloadError:
                self._end(tenant)

    def _take(self, tenant: Tenant, order: Order, descriptors: Sequence[int]) -> None:
        match order:
            case Fits(number, memory):
                if number == tenant.number:
                    self._fits(tenant, memory)
            case Jobs(count):
                was_active, tenant.jobs = tenant.jobs > 0, max(0, count)
                tenant.since = time.monotonic()
                if was_active != (tenant.jobs > 0):
                    self._allot()
            case Told() if tenant.asked and len(descriptors) == 1:
                words = _parsed(taken("figures", descriptors[0], most=_FIGURES))
                asked = tenant.asked.pop(0)
                if not asked.done():
                    asked.set_result(words)
            case _:
                self._exchanged(tenant, order, descriptors)

    def _exchanged(self, tenant: Tenant, order: Order, descriptors: Sequence[int]) -> None:
        """Take in what a tenant says of blocks that others may have, too."""
        match order:
            case Has(digest):
                self._exchange.has(tenant.identity, digest, shown(only(descriptors)))
            case Lost(digest):
                self._exchange.lost(tenant.identity, digest)
            case Wants(number, digest, nbytes):
                self._pass_on(tenant, number, shown(only(descriptors)), digest=digest, nbytes=nbytes)
            case Given(number):
                self._bring(number, descriptors)
            case _:
                raise DataError("order", found=order.kind, expected="one that was asked for")

    def _pass_on(self, tenant: Tenant, number: int, file: File, *, digest: str, nbytes: int) -> None:
        """Have a block given to who showed its file; who has it, and not this process, looks for it."""
        who = self._exchange.find(digest, file, besides=tenant.identity)
        giver = None if who is None else self._tenants.get(who)
        if giver is None or len(self._tickets) >= _TICKETS:
            self._say(tenant, Given(number))
            return
        self._numbers += 1
        self._tickets[self._numbers] = (tenant, number)
        self._loop.call_later(PATIENCE, self._tickets.pop, self._numbers, None)
        self._say(giver, Give(self._numbers, digest, nbytes))

    def _bring(self, ticket: int, descriptors: Sequence[int]) -> None:
        tenant, number = self._tickets.pop(ticket, (None, 0))
        if tenant is not None and self._tenants.get(tenant.identity) is tenant:
            self._say(tenant, Given(number), descriptors)

    def _asked(self, tenant: Tenant) -> asyncio.Future[dict[str, Any]]:
        asked: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        tenant.asked.append(asked)
        self._say(tenant, Tell())
        return asked

    def _end(self, tenant: Tenant) -> None:
        """End a tenant's process, and take its memory, whoever has that still."""
        if self._tenants.get(tenant.identity) is not tenant:
            return
        del self._tenants[tenant.identity]
        self._exchange.gone(tenant.identity)
        if tenant.late is not None:
            tenant.late.cancel()
        for asked in tenant.asked:
            if not asked.done():
                asked.set_exception(DataError("tenant", found="its end", expected="an answer"))
        self._loop.remove_reader(tenant.packets)
        tenant.packets.close()
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(tenant.process, signal.SIGKILL)
        os.close(tenant.process)
        self._taken_back += tenant.memory
        # By a thread: the system takes seconds for what a large service has.
        taking = self._loop.run_in_executor(None, _take_back, tenant.writable, self._memory)
        taking.add_done_callback(lambda _: self._took_back(tenant.memory))

    def _took_back(self, nbytes: int) -> None:
        self._taken_back -= nbytes
        self._allot()


def _take_back(descriptor: int, nbytes: int) -> None:
    """Give memory back to the system, whoever has it mapped, and close it."""
    try:
        with suppress(OSError):
            punch(descriptor, 0, nbytes)
    finally:
        os.close(descriptor)


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        words = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DataError("figures", found=str(error), expected="JSON") from error
    if not isinstance(words, dict):
        raise DataError("figures", found=type(words).__name__, expected="an object")
    return words
