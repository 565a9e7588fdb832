"""RangeServer: a server of byte ranges that fails, stalls and counts as a test tells it to."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support import processes

Trouble = Callable[[int, str], str]
"""Given the number of a request, from 1, and its path, what goes wrong: "", a status, "reset", "short" or "hang"."""


@dataclass
class RangeServer:
    """A folder served over HTTP with byte ranges, entity tags and preconditions, as object stores do."""

    folder: Path
    """What is served."""
    url: str = ""
    """Where."""
    trouble: Trouble = lambda _number, _path: ""
    """What goes wrong."""
    knows_ranges: bool = True
    """Whether ranges are answered with ranges, or ignored."""
    tag: str = '"{}"'
    """Form of the entity tags; none are sent when empty."""
    age: float | None = None
    """Seconds since files with tags were written, as the server says; it says nothing when None."""
    crowd: int = 0
    """The first so many requests are not answered before as many are under way, or all but one for half a second."""
    paths: list[str] = field(default_factory=list)
    """Paths that were asked for, in the order of coming."""
    failed: int = 0
    """Requests that something went wrong with."""
    present: int = 0
    """Requests under way."""
    most: int = 0
    """The most that ever were under way at once."""
    changed: threading.Condition = field(default_factory=threading.Condition)
    """Guards the counts."""
    connections: set[socket.socket] = field(default_factory=set)
    """Those that clients keep open for their next request."""
    is_over: threading.Event = field(default_factory=threading.Event)
    """Set when the test is over: ends what hangs."""

    def forget(self) -> None:
        """Count from zero."""
        with self.changed:
            self.paths.clear()
            self.failed = self.most = 0

    def enter(self, path: str) -> str:
        """Count a request in; return what goes wrong with it."""
        with self.changed:
            self.paths.append(path)
            self.present += 1
            self.most = max(self.most, self.present)
            self.changed.notify_all()
            if len(self.paths) <= self.crowd:
                self.changed.wait_for(lambda: self.most >= self.crowd - 1, timeout=processes.LIMIT)
                self.changed.wait_for(lambda: self.most >= self.crowd, timeout=0.5)
            kind = self.trouble(len(self.paths), path)
            self.failed += bool(kind)
            return kind

    def leave(self) -> None:
        """Count a request out."""
        with self.changed:
            self.present -= 1

    def end(self) -> None:
        """End what hangs and what is kept open, so that no thread outlives the test."""
        self.is_over.set()
        for connection in tuple(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet: else the kernel delays the second one
    site: RangeServer

    def setup(self) -> None:
        """Note the connection."""
        super().setup()
        self.site.connections.add(self.connection)

    def finish(self) -> None:
        """Forget the connection."""
        self.site.connections.discard(self.connection)
        with contextlib.suppress(OSError):  # of a client that is gone
            super().finish()

    def do_GET(self) -> None:
        """Answer with what the file holds, or with trouble."""
        kind = self.site.enter(self.path)
        try:
            self._answer(kind)
        finally:
            self.site.leave()

    def do_HEAD(self) -> None:
        """Answer without the body."""
        self.do_GET()

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def _answer(self, kind: str) -> None:
        path = self.site.folder / self.path.lstrip("/")
        if kind.isdigit():
            self._send(int(kind), b"trouble")
        elif kind == "hang":
            self.site.is_over.wait(30)
            self.close_connection = True
        elif kind == "reset":
            # Linger zero makes closing a reset.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.shutdown(socket.SHUT_RD)
            self.close_connection = True
        elif not path.is_file():
            self._send(404, b"")
        else:
            self._send_file(path.read_bytes(), is_short=kind == "short")

    def _send_file(self, data: bytes, *, is_short: bool) -> None:
        tag = self.site.tag.format(hashlib.sha256(data).hexdigest()[:16])
        headers = {"ETag": tag} if tag else {"Last-Modified": formatdate(len(data), usegmt=True)}
        if tag and self.site.age is not None:
            headers["Last-Modified"] = formatdate(time.time() - self.site.age, usegmt=True)
        condition = self.headers.get("If-Match")
        if condition is not None and (condition != tag or tag.startswith("W/")):
            self._send(412, b"")
            return
        span = self.headers.get("Range") if self.site.knows_ranges else None
        if span is None:
            self._send(200, data, headers, is_short=is_short)
            return
        first, last = span.removeprefix("bytes=").split("-")
        start = int(first) if first else max(0, len(data) - int(last))
        stop = min(int(last) + 1, len(data)) if first and last else len(data)
        if start >= stop:
            self._send(416, b"")
            return
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        self._send(206, data[start:stop], headers, is_short=is_short)

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None, *, is_short: bool = False) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[: len(body) // 2] if is_short else body)
        if is_short:
            self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that are gone."""


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[RangeServer]:
    """Serve a folder on the loopback interface until the block ends."""
    site = RangeServer(folder)
    handler = type("Handler", (_Handler,), {"site": site})
    with _Server(("127.0.0.1", 0), handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        site.url = f"http://127.0.0.1:{listening.server_port}"
        try:
            yield site
        finally:
            listening.shutdown()
            site.end()
            thread.join()
