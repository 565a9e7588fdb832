"""TcpPeers: blocks of other ranks over TCP, with the job's token and, where asked, TLS."""

from __future__ import annotations

import hmac
import secrets
import socket
import threading
import time
from collections.abc import Mapping

import numpy as np

from voxload.cache.form import bytes_of
from voxload.cache.peer.channel import CHALLENGE, MAGIC, NONCE, PROOF, Channel, check_token, client_proof, server_proof
from voxload.cache.peer.messages import Request, receive_block, receive_head, send_request
from voxload.cache.peer.tls import Tls
from voxload.cache.protocol import Answer, BlockKey
from voxload.errors import UsageError
from voxload.readers.protocol import Volume
from voxload.readers.scratch import Bytes, Scratch

TIMEOUT = 10.0
"""Seconds in which a block must have come, or be given up."""

_KEPT = 4
"""Connections to each group that are kept for the next call."""
_whole = Scratch()
"""Each thread's buffer for a block that its taker wants in pieces."""


class TcpPeers:
    """Fetches blocks from the servers of other ranks; a `Peers`.

    Parameters
    ----------
    addresses
        Locations of the servers, by sample group: ``tcp://ADDRESS:PORT``, or ``tls://`` with certificates.
    token
        The job's.
    timeout
        Seconds in which a block must have come, on top of what a call waits for one that is to come.
    tls
        Root certificates, and the name that certificates bear; None where servers send in the clear.
    """

    def __init__(
        self, addresses: Mapping[int, str], *, token: bytes, timeout: float = TIMEOUT, tls: Tls | None = None
    ) -> None:
        check_token(token)
        if not 0 < timeout < float("inf"):
            raise UsageError("timeout", found=str(timeout), expected="seconds, more than 0")
        self._timeout = timeout
        self._token = token
        self._tls = tls.client_context() if tls else None
        self._name = tls.name if tls else ""
        self._places = {group: _place(location) for group, location in addresses.items()}
        self._lock = threading.Lock()
        self._idle: dict[int, list[Channel]] = {group: [] for group in addresses}
        self._is_closed = False

    def get_into(self, group: int, key: BlockKey, out: Volume, *, wait: float) -> Answer:
        """Fill `out` with a block out of a group's tiers; see `Peers`. Raises UsageError for an unknown group."""
        if group not in self._places:
            raise UsageError("group", found=str(group), expected=f"one of {sorted(self._places)}")
        target = bytes_of(out) if out.flags.c_contiguous else _whole.stored(out.nbytes)
        deadline = time.monotonic() + wait + self._timeout
        try:
            answer = self._ask(group, Request(key, out.dtype, out.shape, wait), target, deadline)
        except OSError:
            return Answer.LOST
        if answer is Answer.GOT and not out.flags.c_contiguous:
            np.copyto(out, target.view(out.dtype).reshape(out.shape))
        return answer

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self._is_closed = True
            idle = [channel for channels in self._idle.values() for channel in channels]
            self._idle = {group: [] for group in self._idle}
        for channel in idle:
            channel.close()

    def _ask(self, group: int, request: Request, target: Bytes, deadline: float) -> Answer:
        """Return what a server answers, with the block in `target`; raises OSError."""
        channel, (answer, nbytes) = self._begin(group, request, deadline)
        is_whole = False
        try:
            if answer is Answer.GOT:
                if nbytes != len(target) or not receive_block(channel, request.key, target, deadline):
                    return Answer.WRONG
            elif nbytes:
                return Answer.WRONG
            is_whole = True
        finally:
            if is_whole:
                self._keep(group, channel)
            else:
                channel.close()
        return answer

    def _begin(self, group: int, request: Request, deadline: float) -> tuple[Channel, tuple[Answer, int]]:
        """Ask over a connection that was kept, or a fresh one; return it, and the head of the answer."""
        while True:
            with self._lock:
                idle = self._idle[group].pop() if self._idle[group] else None
            if idle is not None and idle.is_gone():  # the server hung up since, or said more than it was asked
                idle.close()
                continue
            channel = idle or self._connect(group, deadline)
            try:
                send_request(channel, request, deadline)
                return channel, receive_head(channel, deadline)
            except ConnectionError:
                channel.close()
                if idle is None:
                    raise
                # It hung up at this very moment: it keeps so many connections, and no more. Another one.
            except BaseException:
                channel.close()
                raise

    def _connect(self, group: int, deadline: float) -> Channel:
        """Return a new connection, whose ends have shown each other that they know the token."""
        host, port = self._places[group]
        connection = socket.create_connection((host, port), timeout=max(deadline - time.monotonic(), 1e-3))
        try:
            if self._tls is not None:
                # The handshake ends within the connection's time-out as a whole.
                connection = self._tls.wrap_socket(connection, server_hostname=self._name or host)
            channel = Channel(connection)
            _greet(channel, self._token, deadline)
        except BaseException:
            connection.close()
            raise
        return channel

    def _keep(self, group: int, channel: Channel) -> None:
        with self._lock:
            if not self._is_closed and len(self._idle[group]) < _KEPT:
                self._idle[group].append(channel)
                return
        channel.close()


def _greet(channel: Channel, token: bytes, deadline: float) -> None:
    """Show that this end knows the token, and see that the other does; raises OSError where it does not."""
    challenge = channel.read(CHALLENGE, deadline)
    if not challenge.startswith(MAGIC):
        raise ConnectionAbortedError("another language")
    challenge, nonce = challenge[len(MAGIC) :], secrets.token_bytes(NONCE)
    channel.write(MAGIC + nonce + client_proof(token, challenge, nonce), deadline)
    if not hmac.compare_digest(channel.read(PROOF, deadline), server_proof(token, challenge, nonce)):
        raise ConnectionAbortedError("a server that does not know the token")


def _place(location: str) -> tuple[str, int]:
    """Return address and port; raises UsageError where they are none."""
    host, _, port = location.partition("://")[2].rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError("peer server", found=repr(location), expected="tcp://ADDRESS:PORT, or tls://")
    return host.strip("[]"), int(port)
