"""Reception: all who are connected to a service, from strangers to guests whose sessions last.

Rules of this file:

1. Who connects is a stranger until a `Hello` came that both sides understand: bounded in number, and in time. The
   oldest goes when a new one comes: clients say theirs at once, so that who hangs about is none.
2. Nobody is waited for. Who does not take an answer is sent away, and who says much is heard a packet at a time.
3. Who hangs up, or whose process ends, has ended its session. Who only says nothing ends with its lease.
4. What clients say of their work goes to who does it, as long as their session lasts; who says what makes no sense is
   sent away.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from voxload.errors import DataError, UsageError, VoxloadError
from voxload.serve.protocol.messages import (
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
)
from voxload.serve.protocol.packets import Credentials, PacketSocket
from voxload.serve.protocol.wire import LONGEST_NAME, decoded, encoded
from voxload.serve.sessions import Session, Sessions

STRANGERS = 128
"""Connections that have not said who they are, at most."""
GREETING = 10.0
"""Seconds in which a stranger has to."""
_LONGEST_REASON = 2000
"""Characters of a refusal."""


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


class Reception:
    """Hears all who are connected, until `close`; made and used within one running event loop.

    Parameters
    ----------
    sessions
        Who is in.
    work
        What is done for them; None where they are only let in.
    """

    def __init__(self, sessions: Sessions, *, work: Work | None = None) -> None:
        self.sessions, self._work = sessions, work
        self.boot = secrets.token_hex(16)
        """Tells this service from any before it."""
        self._loop = asyncio.get_running_loop()
        self._strangers: dict[_Guest, None] = {}
        self._guests: set[_Guest] = set()
        self._is_open = True
        self._ticking = self._loop.call_soon(self._tick)

    def admit(self, connection: socket.socket) -> None:
        """Hear who connected; whether they may, the caller knows. The connection is closed with this."""
        connection.settimeout(0)
        packets = PacketSocket(connection)
        guest = _Guest(packets, packets.credentials)
        if not self._is_open:
            self._part(guest, Refused("the service is about to end", "start another one"))
            return
        if len(self._strangers) >= STRANGERS:
            self.relieve()
        self._strangers[guest] = None
        guest.late = self._loop.call_later(GREETING, self._part, guest)
        self._loop.add_reader(packets, self._hear, guest)

    def refuse(self, connection: socket.socket, reason: str, remedy: str) -> None:
        """Tell who connected why they are not let in, and hang up."""
        connection.settimeout(0)
        self._part(_Guest(PacketSocket(connection), Credentials(0, 0, 0)), Refused(reason, remedy))

    def relieve(self) -> None:
        """Send the oldest stranger away, where there is one."""
        if self._strangers:
            self._part(next(iter(self._strangers)))

    def shut(self) -> None:
        """Let nobody in any more; who is in stays."""
        self._is_open = False
        for guest in list(self._strangers):
            self._part(guest, Refused("the service is about to end", "start another one"))

    def close(self) -> None:
        """Send everyone away."""
        self._ticking.cancel()
        for guest in [*self._strangers, *self._guests]:
            self._part(guest)

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
