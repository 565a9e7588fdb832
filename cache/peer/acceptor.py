"""Acceptor: who is connected to a server, from the first byte on until the token is shown, and while idle.

Stranger: who has connected to a server and not shown the job's token yet. It costs a connection and a hundred bytes,
no thread, and it has seconds. Nothing here waits: the server calls `step` whenever the connection is ready for it.

Doorkeeper: who is connected to a server: strangers, peers that say nothing, and peers that asked for something. One
thread listens to all that are not being served. Strangers are bounded in number, time and bytes, and the oldest goes
when a new one comes: peers show their token at once, so that who hangs about is none. Who asks is handed on.
"""

from __future__ import annotations

import errno
import hmac
import secrets
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

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


class Handshake:
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


STRANGERS = 128
"""Connections that have not shown the token, at most."""
GREETING = 10.0
"""Seconds in which a stranger must show it."""
PEERS = 256
"""Connections of peers that say nothing, at most: the one that was served longest ago goes, and may come again.

Who was not served yet goes only where all others were not either.
"""
_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_BREATH = 0.1
"""Seconds."""
_AT_ONCE = 16
"""Connections accepted before others are looked at."""


class Acceptor:
    """Lets peers in; its thread begins with it and ends with `close`.

    Parameters
    ----------
    listener
        Where they knock; closed with this.
    token
        The job's.
    tls
        What encrypts; None for nothing.
    serve
        Called, in this thread, with the channel of a peer that says something. It must not wait. Whoever has served the
        peer hands the channel back to `welcome`, or closes it.
    """

    def __init__(
        self, listener: socket.socket, token: bytes, tls: ssl.SSLContext | None, serve: Callable[[Channel], None]
    ) -> None:
        listener.settimeout(0)
        self._listener = listener
        self._token, self._tls, self._serve = token, tls, serve
        self._strangers: dict[Handshake, None] = {}
        self._peers: dict[Channel, bool] = {}  # whether it was served before
        self._back = deque[Channel]()
        self._is_closing = False
        self._bell, self._wake = socket.socketpair()
        self._bell.settimeout(0)
        self._wake.settimeout(0)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, READ)
        self._selector.register(self._bell, READ)
        self._thread = threading.Thread(target=self._run, name="voxload-doorkeeper", daemon=True)
        self._thread.start()

    def welcome(self, channel: Channel) -> None:
        """Listen to a peer that was served; from any thread."""
        self._back.append(channel)
        self._ring()

    def close(self) -> None:
        """Send everyone away, and stop; no channel may come back afterwards."""
        self._is_closing = True
        self._ring()
        self._thread.join()
        for channel in self._back:
            channel.close()
        self._wake.close()

    def _ring(self) -> None:
        with suppress(BlockingIOError, BrokenPipeError):  # it rings already, or has seen that it is to stop
            self._wake.send(b"!")

    def _run(self) -> None:
        try:
            while not self._is_closing:
                for key, _ in self._selector.select(self._patience()):
                    self._attend(key.fileobj)
                self._take_back()
                self._send_away_the_late()
        finally:
            for stranger in self._strangers:
                stranger.close()
            for channel in self._peers:
                channel.close()
            self._selector.close()
            self._listener.close()
            self._bell.close()

    def _attend(self, who: object) -> None:
        """Do what there is to do for one that is ready."""
        if who is self._listener:
            self._accept()
        elif who is self._bell:
            with suppress(BlockingIOError):
                self._bell.recv(2**12)
        elif isinstance(who, Handshake) and who in self._strangers:
            self._step(who)
        elif isinstance(who, Channel) and who in self._peers:
            del self._peers[who]
            self._selector.unregister(who)
            self._serve(who)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:  # nobody else
                return
            except OSError as error:
                self._could_not_accept(error.errno)
                return
            if len(self._strangers) >= STRANGERS:
                self._turn_away(next(iter(self._strangers)))
            stranger = Handshake(connection, self._token, self._tls, deadline=time.monotonic() + GREETING)
            self._strangers[stranger] = None
            self._selector.register(stranger, READ)
            self._step(stranger)

    def _could_not_accept(self, why: int | None) -> None:
        """Make room where there was none, of descriptors or of memory; one that hung up again is no trouble."""
        if why in _NO_ROOM:
            if self._strangers:
                self._turn_away(next(iter(self._strangers)))
            time.sleep(_BREATH)  # whoever knocks goes on knocking

    def _step(self, stranger: Handshake) -> None:
        try:
            found = stranger.step()
        except OSError:  # TLS's errors are too
            self._turn_away(stranger)
            return
        if isinstance(found, Channel):
            del self._strangers[stranger]
            self._selector.unregister(found)
            self._listen_to(found, was_served=False)
        else:
            self._selector.modify(stranger, found)

    def _turn_away(self, stranger: Handshake) -> None:
        del self._strangers[stranger]
        self._selector.unregister(stranger)
        stranger.close()

    def _take_back(self) -> None:
        while self._back:
            self._listen_to(self._back.popleft(), was_served=True)

    def _listen_to(self, channel: Channel, *, was_served: bool) -> None:
        if len(self._peers) >= PEERS:
            # Who has just come in is about to ask, or has asked and was not looked at yet.
            served = (each for each, served in self._peers.items() if served)
            oldest = next(served, channel if was_served else next(iter(self._peers)))
            if oldest is channel:
                channel.close()
                return
            del self._peers[oldest]
            self._selector.unregister(oldest)
            oldest.close()
        self._peers[channel] = was_served
        self._selector.register(channel, READ)

    def _patience(self) -> float | None:
        """Return the seconds until the first stranger is late."""
        first = next(iter(self._strangers), None)
        return None if first is None else max(0.0, first.deadline - time.monotonic())

    def _send_away_the_late(self) -> None:
        now = time.monotonic()
        while (first := next(iter(self._strangers), None)) is not None and first.deadline <= now:
            self._turn_away(first)
