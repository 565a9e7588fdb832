"""Server: files over HTTP with byte ranges, by way of a link that all clients share, and a log of what was served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from tests.support.throttle.link import Link

PIECE = 1 << 16
"""Bytes that a client gets before the next one has its turn."""
LOG = "/-/log"
"""Where the log is: GET returns it, DELETE begins a new one."""
_GATEWAY = "127.0.0.1"


@dataclass
class Server:
    """Serves a folder on the loopback interface.

    Parameters
    ----------
    folder
        What is served.
    bandwidth
        Bytes of bodies per second, all clients together.
    latency
        Seconds that each request waits before its first byte; requests wait side by side.
    """

    folder: Path
    bandwidth: float
    latency: float
    _log: list[tuple[str, int, int]] = field(default_factory=list)
    _link: Link = field(init=False)

    def __post_init__(self) -> None:
        self._link = Link(self.bandwidth)

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[str]:
        """Listen on a free port, as long as the context lasts; gives the URL."""
        application = web.Application()
        application.router.add_get(LOG, self._tell)
        application.router.add_delete(LOG, self._forget)
        application.router.add_get("/{path:.*}", self._answer)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        try:
            site = web.TCPSite(runner, _GATEWAY, 0)
            await site.start()
            yield f"http://{_GATEWAY}:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    async def _tell(self, _request: web.Request) -> web.Response:
        return web.json_response(self._log)

    async def _forget(self, _request: web.Request) -> web.Response:
        self._log = []
        return web.Response(status=204)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        """Answer GET and HEAD; every request is logged, with the bytes that were sent."""
        name = request.match_info["path"]
        path = self.folder / name
        await asyncio.sleep(self.latency)
        log = self._log
        if not path.resolve().is_relative_to(self.folder.resolve()) or not path.is_file():
            log.append((name, 0, 0))
            return web.Response(status=404)
        status = path.stat()
        tag = f'"{status.st_size:x}-{status.st_mtime_ns:x}"'
        if request.headers.get("If-Match", tag) != tag:
            log.append((name, 0, 0))
            return web.Response(status=412)
        start, stop = _span(request, status.st_size)
        if start >= stop and status.st_size:
            log.append((name, 0, 0))
            return web.Response(status=416, headers={"Content-Range": f"bytes */{status.st_size}"})
        response = web.StreamResponse(headers={"ETag": tag, "Accept-Ranges": "bytes"})
        response.content_length = stop - start
        if "Range" in request.headers:
            response.set_status(206)
            response.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{status.st_size}"
        await response.prepare(request)
        if request.method == "HEAD":
            log.append((name, 0, 0))
            return response
        at = start
        try:
            with path.open("rb", buffering=0) as file:
                file.seek(start)
                while at < stop:
                    piece = file.read(min(PIECE, stop - at))
                    await self._pass(len(piece))
                    await response.write(piece)
                    at += len(piece)
        finally:  # also where the client hung up
            log.append((name, start, at))
        await response.write_eof()
        return response

    async def _pass(self, nbytes: int) -> None:
        loop = asyncio.get_running_loop()
        seconds = self._link.take(nbytes, now=loop.time()) - loop.time()
        if seconds > 0:
            await asyncio.sleep(seconds)


def _span(request: web.Request, size: int) -> tuple[int, int]:
    """Return the first byte that is asked for, and the one behind the last."""
    try:
        span = request.http_range
    except ValueError as error:
        raise web.HTTPRequestRangeNotSatisfiable from error
    return slice(span.start, span.stop).indices(size)[:2]
