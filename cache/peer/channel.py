"""Channel: bytes over one connection, in the clear or encrypted, each step of it with a deadline.

Two ends prove to each other that they know the job's token before anything else is said. The token itself does not
travel: each end answers the other's random bytes by an HMAC-SHA256 (RFC 2104) of both ends' bytes under the token.
"""

from __future__ import annotations

import hmac
import select
import socket
import ssl
import time
from contextlib import suppress

from voxload.errors import UsageError

MAGIC = b"voxload peers 1\n"
"""What either end says first: whoever speaks another language is seen at once."""
NONCE = 32
PROOF = 32
CHALLENGE = len(MAGIC) + NONCE
"""Bytes of what a server says to whoever connects."""
RESPONSE = len(MAGIC) + NONCE + PROOF
"""Bytes of what a client answers: all that a stranger is listened to for."""
_SHORTEST_TOKEN = 16
_MOST_AT_ONCE = 2**18
"""Bytes that are given to the system in one piece, so that the deadline is looked at in between."""


class Channel:
    """One connection; used by one thread at a time, but for `interrupt`. Raises OSError when it breaks or is late."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self._connection.fileno()

    def read_into(self, target: memoryview, deadline: float) -> None:
        """Fill `target`; `deadline` is one of `time.monotonic`."""
        place = 0
        while place < len(target):
            self._arm(deadline)
            count = self._connection.recv_into(target[place : place + _MOST_AT_ONCE])
            if not count:
                raise ConnectionResetError("the other end hung up")
            place += count

    def read(self, count: int, deadline: float) -> bytes:
        """Return so many bytes; the caller sees to it that there is memory for them."""
        target = bytearray(count)
        self.read_into(memoryview(target), deadline)
        return bytes(target)

    def write(self, data: memoryview | bytes, deadline: float) -> None:
        """Send all of it."""
        left = memoryview(data)
        while left:
            self._arm(deadline)
            left = left[self._connection.send(left[:_MOST_AT_ONCE]) :]

    def is_gone(self) -> bool:
        """Tell whether the other end, whose turn to speak it is not, hung up or speaks all the same."""
        waiting = select.poll()
        waiting.register(self._connection, select.POLLIN)
        return bool(waiting.poll(0)) or (
            isinstance(self._connection, ssl.SSLSocket) and bool(self._connection.pending())
        )

    def interrupt(self) -> None:
        """End it under the hands of the thread that uses it, which gets an error."""
        with suppress(OSError):
            socket.socket.shutdown(self._connection, socket.SHUT_RDWR)  # an SSLSocket's own forgets its keys, too

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def _arm(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the other end is late")
        self._connection.settimeout(left)


def client_proof(token: bytes, challenge: bytes, nonce: bytes) -> bytes:
    """Return what shows a server that a client knows the token."""
    return hmac.digest(token, b"client" + challenge + nonce, "sha256")


def server_proof(token: bytes, challenge: bytes, nonce: bytes) -> bytes:
    """Return what shows a client that a server knows the token."""
    return hmac.digest(token, b"server" + challenge + nonce, "sha256")


def check_token(token: bytes) -> None:
    """Raise UsageError where a token could be guessed."""
    if len(token) < _SHORTEST_TOKEN:
        raise UsageError(
            "token",
            found=f"{len(token)} bytes",
            expected=f"at least {_SHORTEST_TOKEN}, random",
            remedy="make it with job_token()",
        )
