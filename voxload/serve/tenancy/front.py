"""Front: the sockets of a service for all users of a node: theirs, and root's."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, closing, suppress
from pathlib import Path

from voxload.errors import DataError, UsageError, VoxloadError
from voxload.files.memory_left import memory_left
from voxload.serve.door import Door, listening, locked
from voxload.serve.notify import notify
from voxload.serve.protocol.bulk import lent
from voxload.serve.protocol.messages import Done, Figures, Limit, Look, Message
from voxload.serve.reception import Reception
from voxload.serve.seen.where import Where, told_at
from voxload.serve.service import LEASE
from voxload.serve.sessions import Sessions
from voxload.serve.tenancy.allotment import Quota, Quotas
from voxload.serve.tenancy.identity import identity_of
from voxload.serve.tenancy.tenants import Tenants

ADMIN = "admin"
"""Name of root's socket, beside the users'."""
_MOST = 64
"""Visits of root's at once."""
_BREATH = 0.1
"""Seconds until the next connection is taken where the process has no descriptor for one."""
_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

Say = Callable[[Message, Sequence[int]], None]


class Front:
    """Lets all users in until `close`; made and used within one running event loop.

    Parameters
    ----------
    path
        Of the socket that all may connect to; its folder is made where it is not there.
    tenants
        Whom they are handed to.

    Raises
    ------
    UsageError, StorageError
        As `Door` raises.
    """

    def __init__(self, path: Path, tenants: Tenants) -> None:
        self.path, self._tenants = path, tenants
        self._loop = asyncio.get_running_loop()
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._lock = locked(path)
        try:
            self._listener = listening(path, mode=0o666)
        except BaseException:
            os.close(self._lock)
            raise
        self._listen()

    def close(self) -> None:
        """Let nobody in any more."""
        self._loop.remove_reader(self._listener)
        self._listener.close()
        with suppress(FileNotFoundError):
            self.path.unlink()
        os.close(self._lock)

    def _listen(self) -> None:
        if self._listener.fileno() >= 0:  # not closed meanwhile
            self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno in _NO_ROOM:
                self._loop.remove_reader(self._listener)
                self._loop.call_later(_BREATH, self._listen)
            return
        try:
            identity = identity_of(connection)
        except (OSError, VoxloadError):
            connection.close()
            return
        self._tenants.admit(identity, connection)


class Governing:
    """What root is told, and says, of all tenants; see `Work`."""

    def __init__(self, tenants: Tenants, *, memory: int) -> None:
        self._tenants, self._memory, self._since = tenants, memory, time.monotonic()
        self._loop = asyncio.get_running_loop()
        self._says: dict[int, Say] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def began(self, session: int, say: Say) -> None:
        """See Work."""
        self._says[session] = say

    def heard(self, session: int, message: Message, _descriptors: Sequence[int]) -> None:
        """See Work."""
        match message:
            case Look():
                task = self._loop.create_task(self._show(self._says[session]))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case Limit(memory, user, share):
                if user < 0 or memory < 0 or share <= 0:
                    found = f"user {user}, {memory} bytes, share {share}"
                    raise DataError("limit", found=found, expected="a user, 0 bytes or more, a share above 0")
                self._tenants.set_quota(user, Quota(memory, share))
                self._says[session](Done(), ())
            case _:
                raise DataError("message", found=message.kind, expected="look or limit, of a service for all users")

    def ended(self, session: int) -> None:
        """See Work."""
        self._says.pop(session, None)

    async def _show(self, say: Say) -> None:
        words = {
            "seconds": time.monotonic() - self._since,
            "memory": {"capacity": self._memory},
            "tenants": await self._tenants.figures(),
        }
        descriptor = lent("figures", json.dumps(words).encode())
        try:
            say(Figures(), (descriptor,))
        finally:
            os.close(descriptor)


async def serve_all(
    path: Path,
    *,
    memory: int,
    threads: int,
    quota: int,
    ready: Callable[[str], object],
    http: Where | None = None,
) -> None:
    """Keep blocks for all users of a node, until SIGTERM or SIGINT comes; for root.

    Parameters
    ----------
    path
        Of the socket that all may connect to; root's own lies beside it.
    memory
        Bytes, of all users together.
    threads
        Reads at once, of all users together.
    quota
        Bytes that a user may have of whom nothing else was said.
    ready
        Called once clients are let in, with where people look at it; empty for nowhere.
    http
        Where metrics and the page of all users are served, for root's eyes; None for nowhere.

    Raises
    ------
    UsageError
        Where this is not root, the machine has not so much memory, or a service listens there already.
    StorageError
        Where others may write into the socket's folder.
    """
    if os.geteuid():
        raise UsageError("service for all users", found=f"user {os.geteuid()}", expected="root, who may act for them")
    if memory > memory_left():
        raise UsageError(
            "service's memory", found=f"{memory} bytes", expected=f"at most {memory_left()}", remedy="give it less"
        )
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    async with AsyncExitStack() as stack:
        tenants = stack.enter_context(closing(Tenants(memory, reads=threads, quotas=Quotas(Quota(quota)))))
        stack.enter_context(closing(Front(path, tenants)))
        sessions = Sessions(lease=LEASE, most=_MOST, most_of_user=_MOST)
        governing = Governing(tenants, memory=memory)
        reception = stack.enter_context(closing(Reception(sessions, work=governing)))
        stack.enter_context(closing(Door(path.with_name(ADMIN), reception)))
        address = ""
        if http is not None:
            told = told_at(http, figures=tenants.kept, is_ready=lambda: True, advice=lambda _tenant: None)
            stack.push_async_callback(told.close)
            address = told.address
        ready(address)
        notify("READY=1")
        await ending.wait()
        notify("STOPPING=1")
