"""Stranger: who has connected to a server and not shown the job's token yet.

It costs a connection and a hundred bytes, no thread, and it has seconds. Nothing here waits: the server calls `step`
whenever the connection is ready for it.
"""

from __future__ import annotations

import hmac
import secrets
import selectors
import socket
import ssl

from voxload.cache.peer.channel import (
    MAGIC,
    NONCE,
    PROOF,
    RESPONSE,
    Channel,
    client_proof,
    server_proof,
)

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Stranger:
    """A connection on its way to be a peer's; used by one thread.

    Parameters
    ----------
    connection
        Fresh; from now on it does not block.
    token
        The job's.
    tls
        What encrypts; None for nothing.
    deadline
        When it is sent away, by the clock of whoever asks.
    """

    def __init__(self, connection: socket.socket, token: bytes, tls: ssl.SSLContext | None, *, deadline: float) -> None:
        connection.settimeout(0)
        self._raw = connection
        self._token = token
        self._tls = tls
        self._challenge = b""
        self._heard = b""
        self.deadline = deadline

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self._raw.fileno()

    def step(self) -> int | Channel:
        """Do what can be done now; return what to wait for, `READ` or `WRITE`, or the channel of a peer.

        Raises OSError, TLS's errors among them, at anything else than a peer.
        """
        try:
            return self._step()
        except (ssl.SSLWantReadError, BlockingIOError):
            return READ
        except ssl.SSLWantWriteError:
            return WRITE

    def _step(self) -> int | Channel:
        if not self._challenge:
            self._begin()
        while len(self._heard) < RESPONSE:
            came = self._raw.recv(RESPONSE - len(self._heard))
            if not came:
                raise ConnectionResetError("hung up")
            self._heard += came
            if not MAGIC.startswith(self._heard[: len(MAGIC)]):
                raise ConnectionAbortedError("another language")
        nonce, proof = self._heard[len(MAGIC) : -PROOF], self._heard[-PROOF:]
        # As long for any wrong one.
        if not hmac.compare_digest(proof, client_proof(self._token, self._challenge, nonce)):
            raise ConnectionAbortedError("no token, or a wrong one")
        self._say(server_proof(self._token, self._challenge, nonce))
        return Channel(self._raw)

    def _begin(self) -> None:
        """Encrypt, where that is asked for, and say what to answer to."""
        if self._tls is not None and not isinstance(self._raw, ssl.SSLSocket):
            self._raw = self._tls.wrap_socket(self._raw, server_side=True, do_handshake_on_connect=False)
        if isinstance(self._raw, ssl.SSLSocket):
            self._raw.do_handshake()
        self._challenge = secrets.token_bytes(NONCE)
        self._say(MAGIC + self._challenge)

    def _say(self, data: bytes) -> None:
        # So few bytes find room in any fresh connection.
        try:
            sent = self._raw.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            sent = 0
        if sent != len(data):
            raise ConnectionAbortedError("does not listen")

    def close(self) -> None:
        """Hang up."""
        self._raw.close()
