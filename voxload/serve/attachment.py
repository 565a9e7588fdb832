"""Attachment: a client's session with the service of its node, kept up by a thread of its own.

Rules of this file:

1. A service that is gone, or does not answer in time, is no error of the run: `session` is None then, that is told
   once, and whoever asks does without. It is come back to by itself.
2. Nothing here makes anybody wait but the thread, and `close`, which waits for that to end; neither waits for a service
   longer than `PATIENCE`. What a service does not take at once is not said.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from voxload.cache.warnonce import WarnOnce
from voxload.errors import DataError, NotFoundError, StorageError, VoxloadError
from voxload.serve.protocol.messages import (
    OF_SERVICE,
    VERSIONS,
    Bye,
    Hello,
    Message,
    Refused,
    Renew,
    Renewed,
    Welcome,
    build,
)
from voxload.serve.protocol.packets import PacketSocket
from voxload.serve.protocol.wire import decoded, encoded

PATIENCE = 2.0
"""Seconds that a service has for an answer."""
_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds before a service that was lost is looked for again; the last one from then on."""
_PER_LEASE = 3
"""Renewals in the time of a lease: one may come late."""


@dataclass(frozen=True, slots=True)
class Attached:
    """A session, as its client knows it."""

    boot: str
    """Of the service."""
    number: int
    generation: int


class Attachment:
    """A session with the service that listens at a path; safe to use from many threads at once.

    Parameters
    ----------
    path
        Of its socket.
    name
        What people are shown of this job.
    changed
        Called by the thread with each session that begins, and with None when one is lost.
    heard
        Called by the thread with each message that is none of the session's own, and its descriptors, which are closed
        afterwards. What it raises loses the session, as what a service says that makes no sense.

    Raises
    ------
    NotFoundError
        Where nobody listens there.
    StorageError
        Where the service refuses, does not answer, or is another user's; DataError where it speaks another language.
    """

    def __init__(
        self,
        path: Path,
        *,
        name: str = "",
        changed: Callable[[Attached | None], object] | None = None,
        heard: Callable[[Message, Sequence[int]], object] | None = None,
    ) -> None:
        self.path = path
        self._name, self._changed, self._heard = name, changed, heard
        self._owner = os.getpid()
        self._warnings = WarnOnce(f"service at {path}")
        self._packets: PacketSocket | None = None
        self._session: Attached | None = None
        self._last: Attached | None = None
        self._lease = 0.0
        self._renewed = 0.0  # when the lease began that it has, at the latest
        self._asked: float | None = None  # when it was asked to be renewed, where that was not answered yet
        self._lock = threading.Lock()
        self._is_closing = False
        self._bell, self._rope = socket.socketpair()
        try:
            self._enter()
        except BaseException:
            self._bell.close()
            self._rope.close()
            raise
        self._thread = threading.Thread(target=self._keep, name="voxload-service", daemon=True)
        self._thread.start()

    @property
    def session(self) -> Attached | None:
        """The session; None while there is none, and in a process that was forked off."""
        return self._session if os.getpid() == self._owner else None

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> bool:
        """Say something; False where there is no session, or the service does not take it now.

        Descriptors stay the caller's.
        """
        with self._lock:
            packets = self._packets if self.session is not None else None
            try:
                if packets is not None:
                    packets.send(encoded(message), descriptors)
            except OSError:  # the thread will hear of it
                return False
        return packets is not None

    def close(self) -> None:
        """End the session."""
        with self._lock:
            self._is_closing = True
            packets = self._packets
            if packets is not None:
                with suppress(OSError):
                    packets.send(encoded(Bye()))
                packets.close()
        self._rope.close()
        self._thread.join()
        self._bell.close()
        self._session = self._packets = None

    def _enter(self) -> None:
        """Connect, and go on with the last session where that is possible."""
        last = self._last or Attached("", 0, 0)
        hello = Hello(*VERSIONS, build(), self._name, last.boot, last.number, last.generation)
        packets, welcome = entered(self.path, hello)
        packets.wait_at_most(0)
        with self._lock:
            if self._is_closing:
                packets.close()
                return
            self._packets = packets
        self._lease, self._renewed, self._asked = welcome.lease, time.monotonic(), None
        self._session = self._last = Attached(welcome.boot, welcome.session, welcome.generation)

    def _keep(self) -> None:
        """Renew the session, hear what is said, and find the service again where it was lost, until the end."""
        self._tell()
        failed = 0
        while self._waits(self._pause(failed)):
            try:
                if self._session is None:
                    self._enter()
                    self._tell()
                else:
                    self._hear()
                    self._renew(self._session)
                failed = 0
            except (OSError, VoxloadError) as error:
                failed += 1
                self._lose(error)

    def _pause(self, failed: int) -> float:
        """Return the seconds until there is something to do, unless the service says something."""
        if self._session is None:
            return _PAUSES[min(failed, len(_PAUSES)) - 1]
        due = self._renewed + self._lease / _PER_LEASE if self._asked is None else self._asked + PATIENCE
        return max(0.0, due - time.monotonic())

    def _waits(self, seconds: float) -> bool:
        """Wait so long, or until the service says something; tell whether to go on."""
        waiting = select.poll()
        waiting.register(self._bell, select.POLLIN)
        with self._lock:
            if self._packets is not None and not self._is_closing:
                waiting.register(self._packets, select.POLLIN)
        waiting.poll(1000 * seconds)
        return not self._is_closing

    def _hear(self) -> None:
        """Take all that the service has said."""
        packets = self._packets
        while packets is not None and not self._is_closing:
            try:
                packet = packets.receive()
            except (BlockingIOError, InterruptedError):
                return
            if packet is None:
                raise StorageError(str(self.path), found="the end of the connection", expected="an answer")
            try:
                self._take(decoded(packet.words, OF_SERVICE), packet.descriptors)
            finally:
                packet.close()

    def _take(self, message: Message, descriptors: Sequence[int]) -> None:
        if isinstance(message, Refused):
            raise StorageError(str(self.path), found=message.reason, expected="to be let in", remedy=message.remedy)
        if isinstance(message, Renewed) and self._asked is not None:
            self._lease, self._renewed, self._asked = message.lease, self._asked, None
        elif isinstance(message, (Renewed, Welcome)):
            raise DataError(str(self.path), found=message.kind, expected="what was asked for")
        elif self._heard is not None:
            self._heard(message, descriptors)

    def _renew(self, session: Attached) -> None:
        """Ask for the next lease when it is time; raises StorageError where that was not answered in time."""
        now = time.monotonic()
        if self._asked is not None:
            if now >= self._asked + PATIENCE:
                raise StorageError(str(self.path), found="no answer", expected="a service that answers")
        elif now >= self._renewed + self._lease / _PER_LEASE:
            self._asked = now
            renew = encoded(Renew(session.boot, session.number, session.generation))
            with self._lock:
                if self._packets is not None:
                    self._packets.send(renew)

    def _lose(self, error: Exception) -> None:
        with self._lock:
            packets, self._packets = self._packets, None
        if packets is not None:
            packets.close()
        if self._session is not None and not self._is_closing:
            self._session = None
            self._tell()
            with suppress(RuntimeWarning):  # where warnings are errors: this thread goes on
                self._warnings.tell("lost", str(error), remedy="it is used again once it answers")

    def _tell(self) -> None:
        if self._changed is not None:
            self._changed(self._session)


def entered(path: Path, hello: Hello) -> tuple[PacketSocket, Welcome]:
    """Connect to a service, say hello, and return the connection with the welcome.

    Raises NotFoundError where nobody listens there; StorageError where it does not answer in time, refuses, or is
    another user's, who might make up what it says and gives; DataError where it answers something else.
    """
    try:
        packets = PacketSocket.connect(os.fspath(path), PATIENCE)
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise NotFoundError(
            str(path), found="nobody", expected="a service that listens there", remedy="start one by voxload serve"
        ) from error
    except OSError as error:
        raise StorageError(str(path), found=str(error), expected="a service that answers") from error
    try:
        _check(path, packets.credentials.uid)
        return packets, _greeted(packets, hello, path)
    except BaseException:
        packets.close()
        raise


def _check(path: Path, uid: int) -> None:
    if uid not in (os.geteuid(), 0):
        expected = "one of this user's, or of root's"
        raise StorageError(str(path), found=f"a service of user {uid}", expected=expected)


def _greeted(packets: PacketSocket, message: Hello, path: Path) -> Welcome:
    """Send a message and return the answer.

    Raises StorageError where there is none in time, or a refusal; DataError where it is another one.
    """
    try:
        packets.send(encoded(message))
        packet = packets.receive()
    except OSError as error:
        found = "no answer" if isinstance(error, TimeoutError) else str(error)
        raise StorageError(str(path), found=found, expected="a service that answers") from error
    if packet is None:
        raise StorageError(str(path), found="the end of the connection", expected="an answer")
    packet.close()
    answer = decoded(packet.words, OF_SERVICE)
    if isinstance(answer, Refused):
        raise StorageError(str(path), found=answer.reason, expected="to be let in", remedy=answer.remedy)
    if not isinstance(answer, Welcome):
        raise DataError(str(path), found=answer.kind, expected=Welcome.kind)
    return answer
