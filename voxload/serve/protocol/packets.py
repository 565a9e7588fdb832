"""Packets: what goes over the service's socket, a JSON object each, with descriptors of files and memory.

The socket is one of SOCK_SEQPACKET (unix(7)): a packet comes whole or not at all, its descriptors with it, and what is
too long is known for that before anything of it is kept. So nobody can have more than one packet's bytes looked at, and
no half of a packet is ever waited for.
"""

from __future__ import annotations

import array
import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from voxload.errors import DataError, UsageError

LONGEST = 2**16
"""Bytes of a packet, at most."""
DESCRIPTORS = 8
"""That come with a packet, at most."""
_INT = array.array("i").itemsize
_CREDENTIALS = struct.Struct("3i")
"""``struct ucred`` (unix(7))."""


@dataclass(frozen=True, slots=True)
class Packet:
    """What came; its descriptors belong to who received it."""

    words: Mapping[str, Any]
    descriptors: tuple[int, ...] = ()

    def close(self) -> None:
        """Close its descriptors."""
        for descriptor in self.descriptors:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who is at the other end, as the kernel noted when they connected."""

    pid: int
    uid: int
    gid: int


class PacketSocket:
    """One end of a connection; its packets may be sent by many threads, each of them whole, and received by one.

    Parameters
    ----------
    connection
        Of SOCK_SEQPACKET; closed with this.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    @classmethod
    def connect(cls, path: str, timeout: float) -> PacketSocket:
        """Return a connection to who listens at a path, on which nothing waits longer; raises OSError."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        try:
            connection.settimeout(timeout)
            connection.connect(path)
        except BaseException:
            connection.close()
            raise
        return cls(connection)

    @property
    def credentials(self) -> Credentials:
        """Who is at the other end (SO_PEERCRED)."""
        return credentials_of(self._connection)

    def wait_at_most(self, seconds: float) -> None:
        """Let nothing on it wait longer; with 0 nothing waits, and BlockingIOError says where it would have to."""
        self._connection.settimeout(seconds)

    def fileno(self) -> int:
        """Return the connection's descriptor, for who waits for it."""
        return self._connection.fileno()

    def send(self, words: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send a packet, whole.

        Raises OSError: BlockingIOError or TimeoutError where the other end does not take it; UsageError where it is too
        long.
        """
        data = json.dumps(words, separators=(",", ":"), allow_nan=False).encode()
        if len(data) > LONGEST or len(descriptors) > DESCRIPTORS:
            raise UsageError(
                "packet",
                found=f"{len(data)} bytes, {len(descriptors)} descriptors",
                expected=f"at most {LONGEST} and {DESCRIPTORS}",
            )
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        self._connection.sendmsg([data], rights, socket.MSG_NOSIGNAL)

    def receive(self) -> Packet | None:
        """Return the next packet; None where the other end has hung up.

        Raises OSError: BlockingIOError or TimeoutError where there is none; DataError at what is no packet, of which no
        descriptor is kept.
        """
        data, others, flags, _ = self._connection.recvmsg(
            LONGEST, socket.CMSG_SPACE(DESCRIPTORS * _INT), socket.MSG_CMSG_CLOEXEC
        )
        descriptors = _descriptors(others)
        if not data and not descriptors:
            return None
        try:
            return Packet(_parsed(data, is_whole=not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC)), descriptors)
        except BaseException:
            Packet({}, descriptors).close()
            raise

    def close(self) -> None:
        """Hang up; who waits for a packet meanwhile is told so."""
        with suppress(OSError):  # the other end has gone
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def credentials_of(connection: socket.socket) -> Credentials:
    """Return who is at the other end of a Unix socket (SO_PEERCRED)."""
    return Credentials(
        *_CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    )


def _descriptors(others: Sequence[tuple[int, int, bytes]]) -> tuple[int, ...]:
    found = array.array("i")
    for level, kind, data in others:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(data[: len(data) - len(data) % _INT])
    return tuple(found)


def _parsed(data: bytes, *, is_whole: bool) -> Mapping[str, Any]:
    if not is_whole:
        what = f"at most {LONGEST} bytes and {DESCRIPTORS} descriptors"
        raise DataError("packet", found="a longer one", expected=what)
    try:
        # Decoded here: json would guess at UTF-16 and UTF-32, too.
        words = json.loads(data.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise DataError("packet", found=str(error), expected="JSON") from error
    if not isinstance(words, dict):
        raise DataError("packet", found=type(words).__name__, expected="a JSON object")
    return words


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"the number {name}")
