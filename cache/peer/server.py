"""PeerServer: blocks of this rank's tiers for the other ranks of its line, over TCP.

Not Arrow Flight: its server takes a whole message, of any length and from anyone, before it looks at who sends it, and
pyarrow (18 to 26) has no word to bound that. Here nobody is listened to for more than a hundred bytes before the token.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from voxload.cache.peer.acceptor import Acceptor
from voxload.cache.peer.bufferpool import BufferPool
from voxload.cache.peer.channel import Channel, check_token
from voxload.cache.peer.messages import Request, pieces, receive_request, send_head
from voxload.cache.peer.shelf import Shelf
from voxload.cache.peer.tls import Tls
from voxload.cache.protocol import Answer
from voxload.cache.warnonce import WarnOnce
from voxload.errors import DataError, StorageError, UsageError
from voxload.readers.scratch import Bytes

LENT = 2**28
"""Bytes of blocks on their way out of one server."""
CALLS = 64
"""Calls served at once, each by a thread; further ones wait for their turn in their connections."""
BUSY = 1024
"""Calls that are served or wait for their turn; the connection of a further one is closed."""
WAITERS = 48
"""Calls that may wait for a block to come; a further one is told at once that it is not there yet."""
TIMEOUT = 10.0
"""Seconds in which a peer must have sent its request, and taken each piece of a block."""
LONGEST_WAIT = 60.0
"""Seconds for which a peer may wait for a block to come, whatever it asks for."""
_LOOK = 0.1
"""Seconds between looks at whether who waits for room is still there."""


class PeerServer:
    """Lends blocks of a rank's tiers to the other ranks of its line; serves until it is closed.

    Parameters
    ----------
    shelf
        What is lent; closed with the server.
    host
        Address to listen at: loopback, or that of the interface that the job's nodes share. The port is any free one.
    token
        The job's: who does not show that it knows it gets nothing, not even whether a block exists.
    tls
        Certificate and key; None to send in the clear.
    lent
        Bytes, hard: blocks on their way out. A larger block is never lent.

    Raises
    ------
    UsageError
        When the host is every interface at once, or the token is short.
    StorageError
        When the address cannot be listened at.
    """

    def __init__(
        self, shelf: Shelf, *, token: bytes, host: str = "127.0.0.1", tls: Tls | None = None, lent: int = LENT
    ) -> None:
        address = _address(host)
        check_token(token)
        context = tls.server_context() if tls else None
        self._shelf = shelf
        self._buffers = BufferPool(lent)
        self._warnings = WarnOnce("peer server")
        self._lock = threading.Lock()
        self._served = set[Channel]()
        self._waiting = 0
        self._is_closing = False
        listener = _listen(address)
        name = f"[{host}]" if address.version == 6 else host
        self.location = f"{'tls' if tls else 'tcp'}://{name}:{listener.getsockname()[1]}"
        """Where clients find it."""
        self._calls = ThreadPoolExecutor(CALLS, thread_name_prefix="voxload-lend")
        self._door = Acceptor(listener, token, context, self._begin)

    def close(self) -> None:
        """Send away who waits, end what is being sent, and stop; nothing the second time."""
        self._shelf.close()
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
            for channel in self._served:
                channel.interrupt()
        self._door.close()
        self._calls.shutdown()

    def _begin(self, channel: Channel) -> None:
        """Serve a peer that has something to say, in a thread of its own."""
        with self._lock:
            if self._is_closing or len(self._served) >= BUSY:
                channel.close()
                return
            self._served.add(channel)
        self._calls.submit(self._serve, channel)

    def _serve(self, channel: Channel) -> None:
        is_well = False
        try:
            self._answer(channel)
            is_well = True
        except (OSError, DataError):
            pass  # gone, too slow, or no request: the peer's business
        except Exception as error:  # noqa: BLE001 - a broken tier must not cost more than the call
            self._warnings.tell("call", f"{type(error).__name__}: {error}", remedy="please report it")
        finally:
            with self._lock:
                self._served.discard(channel)
                is_kept = is_well and not self._is_closing
                if is_kept:
                    self._door.welcome(channel)
            if not is_kept:
                channel.close()

    def _answer(self, channel: Channel) -> None:
        """Answer one request; raises OSError where the peer does not take the answer."""
        request = receive_request(channel, time.monotonic() + TIMEOUT)
        answer, block = self._lend(request, channel)
        send_head(channel, answer, 0 if block is None else len(block), time.monotonic() + TIMEOUT)
        if block is not None:
            for part, crc in pieces(request.key, block):
                deadline = time.monotonic() + TIMEOUT
                channel.write(part.data, deadline)
                channel.write(crc, deadline)

    def _lend(self, request: Request, channel: Channel) -> tuple[Answer, Bytes | None]:
        """Return a copy of the block that stays as it is while it is sent."""
        if not self._comes(request, channel):
            return Answer.ABSENT, None
        if request.nbytes > self._buffers.limit:
            limit = self._buffers.limit
            self._warnings.tell(
                "size", f"a block of {request.nbytes} bytes, at most {limit} are lent", remedy="raise what it may lend"
            )
            return Answer.ABSENT, None
        block = self._room(request.nbytes, channel)
        if block is None:
            return Answer.ABSENT, None
        answer = self._shelf.get_into(request.key, block.view(request.dtype).reshape(request.shape))
        return answer, block if answer is Answer.GOT else None

    def _comes(self, request: Request, channel: Channel) -> bool:
        """Wait for a block as long as is asked for and allowed, and while who asks is there; tell whether it came."""
        with self._lock:
            may_wait = self._waiting < WAITERS
            self._waiting += may_wait
        try:
            seconds = min(request.wait, LONGEST_WAIT) if may_wait else 0.0
            return self._shelf.wait_for(request.key, seconds, is_wanted=lambda: not channel.is_gone())
        finally:
            with self._lock:
                self._waiting -= may_wait

    def _room(self, nbytes: int, channel: Channel) -> Bytes | None:
        """Return a buffer, None where there is none in time or nobody wants it any more."""
        deadline = time.monotonic() + TIMEOUT
        while (left := deadline - time.monotonic()) > 0 and not channel.is_gone():
            block = self._buffers.take(nbytes, patience=min(left, _LOOK))
            if block is not None:
                return block
        return None


def _listen(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> socket.socket:
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.bind((str(address), 0))
        listener.listen(socket.SOMAXCONN)
    except OSError as error:
        listener.close()
        raise StorageError(
            "peer server", found=f"{address}: {error.strerror}", expected="an address here", remedy="name another"
        ) from error
    return listener


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return an address; raises UsageError for one that stands for every interface."""
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        raise UsageError("host", found=repr(host), expected="an IP address", remedy="resolve the name first") from None
    if found.is_unspecified:
        raise UsageError("host", found=host, expected="the address of one interface", remedy="name the interface")
    return found
