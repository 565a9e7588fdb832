"""Door: the Unix socket of a service, and all who are connected to it, in one thread of asyncio.

Rules of this file:

1. Who connects is a stranger until a `Hello` came that both sides understand: bounded in number, and in time. The
   oldest goes when a new one comes: clients say theirs at once, so that who hangs about is none.
2. Nobody is waited for. Who does not take an answer is sent away, and who says much is heard a packet at a time.
3. Who hangs up, or whose process ends, has ended its session. Who only says nothing ends with its lease.
4. What clients say of their work goes to who does it, as long as their session lasts; who says what makes no sense is
   sent away.
5. The socket lies in a folder that its user alone may write into, and other users, but root, are not let in.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import secrets
import socket
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from voxload.errors import DataError, StorageError, UsageError, VoxloadError
from voxload.files.private import PrivateFolder
from voxload.serve.protocol.messages import (
    LONGEST_NAME,
    OF_CLIENTS,
    VERSIONS,
    Bye,
    Hello,
    Message,
    Refused,
    Renew,
    Renewed,
    Welcome,
    agreed,
    build,
    decoded,
    encoded,
)
from voxload.serve.protocol.packets import Credentials, PacketSocket
from voxload.serve.sessions import Session, Sessions

STRANGERS = 128
"""Connections that have not said who they are, at most."""
GREETING = 10.0
"""Seconds in which a stranger has to."""
_BREATH = 0.1
"""Seconds until the next connection is taken where the process has no descriptor for one."""
_LONGEST_PATH = 107
"""Bytes of a socket's (unix(7))."""
_LONGEST_REASON = 2000
"""Characters of a refusal."""
_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Work(Protocol):
    """What a service does for those who are in; its methods are called by the loop's thread."""

    def began(self, session: int, say: Callable[[Message, Sequence[int]], None], /) -> None:
        """Take in a client; `say` sends it a message with descriptors, or sends it away where it does not listen."""
        ...

    def heard(self, session: int, message: Message, descriptors: Sequence[int], /) -> None:
        """Do what it says; raises VoxloadError where that makes no sense. Descriptors are closed afterwards."""
        ...

    def ended(self, session: int, /) -> None:
        """Forget it; nothing happens where it is not known."""
        ...


@dataclass(eq=False, slots=True)
class _Guest:
    """A connection."""

    packets: PacketSocket
    who: Credentials
    late: asyncio.TimerHandle | None = None
    """Sends a stranger away."""
    session: Session | None = None


class Door:
    """Lets clients in until `close`; made and used within one running event loop.

    Parameters
    ----------
    path
        Of the socket; its folder is made, for this user alone, where it is not there.
    sessions
        Who is in.
    work
        What is done for them; None where they are only let in.

    Raises
    ------
    UsageError
        Where another service listens there, something else than a socket lies there, or the path is too long for one.
    StorageError
        Where the folder is not this user's alone, or cannot be written to.
    """

    def __init__(self, path: Path, sessions: Sessions, *, work: Work | None = None) -> None:
        self.path, self.sessions, self._work = path, sessions, work
        self.boot = secrets.token_hex(16)
        """Tells this service from any that listened at the path before."""
        self._loop = asyncio.get_running_loop()
        self._lock = _locked(path)
        try:
            self._listener = _listening(path)
        except BaseException:
            os.close(self._lock)
            raise
        self._strangers: dict[_Guest, None] = {}
        self._guests: set[_Guest] = set()
        self._loop.add_reader(self._listener, self._accept)
        self._ticking = self._loop.call_soon(self._tick)

    def shut(self) -> None:
        """Let nobody in any more; who is in stays. The socket is removed, so that nobody knocks in vain."""
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            with suppress(FileNotFoundError):
                self.path.unlink()
        for guest in list(self._strangers):
            self._part(guest, Refused("the service is about to end", "start another one"))

    def close(self) -> None:
        """Send everyone away and remove the socket."""
        self.shut()
        self._ticking.cancel()
        for guest in list(self._guests):
            self._part(guest)
        os.close(self._lock)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno in _NO_ROOM:
                if self._strangers:
                    self._part(next(iter(self._strangers)))
                self._loop.remove_reader(self._listener)
                self._loop.call_later(_BREATH, self._listen)
            return
        connection.settimeout(0)
        packets = PacketSocket(connection)
        guest = _Guest(packets, packets.credentials)
        if guest.who.uid not in (os.geteuid(), 0):
            self._refuse(guest, f"user {guest.who.uid} is not the service's", "start one of your own")
            packets.close()
            return
        if len(self._strangers) >= STRANGERS:
            self._part(next(iter(self._strangers)))
        self._strangers[guest] = None
        guest.late = self._loop.call_later(GREETING, self._part, guest)
        self._loop.add_reader(packets, self._hear, guest)

    def _listen(self) -> None:
        if self._listener.fileno() >= 0:  # not closed meanwhile
            self._loop.add_reader(self._listener, self._accept)

    def _hear(self, guest: _Guest) -> None:
        """Take one packet; whoever sends what is none is sent away."""
        try:
            packet = guest.packets.receive()
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, DataError) as error:
            self._part(guest, Refused(str(error)) if isinstance(error, DataError) else None)
            return
        if packet is None:
            self._part(guest)
            return
        try:
            self._answer(guest, decoded(packet.words, OF_CLIENTS), packet.descriptors)
        except VoxloadError as error:
            self._part(guest, Refused(str(error)[:_LONGEST_REASON]))
        finally:
            packet.close()

    def _answer(self, guest: _Guest, message: Message, descriptors: Sequence[int]) -> None:
        if isinstance(message, Bye):
            self._part(guest)
        elif isinstance(message, Hello) and guest.session is None:
            self._greet(guest, message)
        elif isinstance(message, Renew) and guest.session is not None:
            self._renew(guest, message)
        elif not isinstance(message, (Hello, Renew)) and guest.session is not None and self._work is not None:
            self._work.heard(guest.session.number, message, descriptors)
        else:
            self._part(guest, Refused(f"{message.kind} out of turn"))

    def _greet(self, guest: _Guest, hello: Hello) -> None:
        version = agreed(hello.first, hello.last)
        if version is None:
            spoken = f"this service speaks versions {VERSIONS[0]} to {VERSIONS[1]} of the protocol"
            found = f"{spoken}, the client (voxload {hello.build[:LONGEST_NAME]}) {hello.first} to {hello.last}"
            self._part(guest, Refused(found, "use releases of voxload that are closer to each other"))
            return
        session = None
        if hello.boot == self.boot:
            session = self.sessions.resume(hello.session, hello.generation, guest.who.uid, guest.who.pid)
        try:
            opened = session or self.sessions.open(guest.who.uid, guest.who.pid, hello.name[:LONGEST_NAME])
        except UsageError as error:
            self._part(guest, Refused(str(error)))
            return
        if session is not None:
            self._replace(session)
        guest.session = opened
        del self._strangers[guest]
        self._guests.add(guest)
        if guest.late is not None:
            guest.late.cancel()
        lease = self.sessions.lease
        self._say(guest, Welcome(version, build(), self.boot, opened.number, opened.generation, lease))
        if self._work is not None and guest in self._guests:  # it took the welcome
            self._work.began(opened.number, partial(self._say, guest))

    def _replace(self, session: Session) -> None:
        """Send away who spoke for a session before."""
        for guest in [one for one in self._guests if one.session is not None and one.session.number == session.number]:
            guest.session = None  # it is somebody else's now
            if self._work is not None:
                self._work.ended(session.number)
            self._part(guest)

    def _renew(self, guest: _Guest, renew: Renew) -> None:
        session = guest.session
        mine = session is not None and (self.boot, session.number, session.generation)
        renewed = None
        if mine == (renew.boot, renew.session, renew.generation):
            renewed = self.sessions.renew(renew.session, renew.generation)
        if renewed is None:
            self._part(guest, Refused("the session has ended", "begin another one"))
            return
        guest.session = renewed
        self._say(guest, Renewed(self.boot, renewed.number, renewed.generation, self.sessions.lease))

    def _say(self, guest: _Guest, message: Message, descriptors: Sequence[int] = ()) -> None:
        if guest.packets.fileno() < 0:  # it was sent away
            return
        try:
            guest.packets.send(encoded(message), descriptors)
        except OSError:  # gone, or it does not listen
            self._part(guest)

    def _refuse(self, guest: _Guest, reason: str, remedy: str) -> None:
        with suppress(OSError):
            guest.packets.send(encoded(Refused(reason, remedy)))

    def _part(self, guest: _Guest, last: Refused | None = None) -> None:
        """End a connection, and its session with it."""
        if last is not None:
            self._refuse(guest, last.reason, last.remedy)
        if guest.late is not None:
            guest.late.cancel()
        self._strangers.pop(guest, None)
        self._guests.discard(guest)
        session, guest.session = guest.session, None
        if session is not None:
            self.sessions.close(session.number, session.generation)
            if self._work is not None:
                self._work.ended(session.number)
        if guest.packets.fileno() >= 0:
            self._loop.remove_reader(guest.packets)
            guest.packets.close()

    def _tick(self) -> None:
        """Let time pass; end the sessions whose lease did."""
        ended = {(one.number, one.generation) for one in self.sessions.tick(time.monotonic())}
        for guest in list(self._guests):
            if guest.session is not None and (guest.session.number, guest.session.generation) in ended:
                self._part(guest, Refused("the lease ended", "begin another session"))
        self._ticking = self._loop.call_later(self.sessions.lease / 4, self._tick)


def _locked(path: Path) -> int:
    """Make the socket's folder where it is not there, and return the lock of who may listen in it."""
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise UsageError(
            str(path),
            found=f"{len(os.fsencode(path))} bytes",
            expected=f"at most {_LONGEST_PATH}, as sockets' paths are",
        )
    try:
        folder = PrivateFolder.make(path.parent)
        try:
            lock, _ = folder.file(f"{path.name}.lock", os.O_RDWR | os.O_CREAT)
        finally:
            folder.close()
    except OSError as error:
        raise StorageError(str(path.parent), found=str(error), expected="a folder of this user's alone") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise UsageError(str(path), found="a service that listens there", expected="none", remedy="stop it") from None
    return lock


def _listening(path: Path) -> socket.socket:
    """Return a socket that listens; one that a killed service left is removed."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise UsageError(str(path), found="something else", expected="a socket, or nothing", remedy="name another")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        with suppress(FileNotFoundError):
            path.unlink()
        listener.bind(os.fspath(path))
        path.chmod(0o600)
        listener.listen(socket.SOMAXCONN)
        listener.settimeout(0)
    except OSError as error:
        listener.close()
        raise StorageError(str(path), found=os.strerror(error.errno or 0), expected="a place for a socket") from error
    return listener
