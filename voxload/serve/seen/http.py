"""HTTP: metrics, health and the page of a service, for who may see them.

1. It listens where it is told to: a Unix socket in a folder of its user's alone, or a port of an address.
2. A port of this machine is every user's to connect to: nothing but whether all is well is told there without the
   token, which is asked for in the header ``Authorization: Bearer`` or, for people, as ``?token=``.
3. Nothing can be changed by way of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import socket
from collections.abc import Awaitable, Callable, Iterator

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from voxload.errors import StorageError
from voxload.files.private import PrivateFolder
from voxload.serve.door import listening
from voxload.serve.seen.advice import Advice
from voxload.serve.seen.history import History
from voxload.serve.seen.metrics import registry_of
from voxload.serve.seen.page import page
from voxload.serve.seen.where import Tenants, Where

_EVERY = 2.0
"""Seconds from one look to the next."""
_SPANS = 900
"""Looks that are remembered: half an hour."""
_CONNECTIONS = 32
"""At once; one more is told to come later."""


class Seen:
    """Serves HTTP until `close`; made and used within one running event loop.

    Parameters
    ----------
    where
        It listens.
    figures
        Returns what is told.
    is_ready
        Tells whether clients are let in.
    advice
        Returns what is worth telling a tenant, by name; may take long, and is called in a thread.
    """

    def __init__(
        self,
        where: Where,
        *,
        figures: Callable[[], Awaitable[Tenants]],
        is_ready: Callable[[], bool],
        advice: Callable[[str], Advice | None] = lambda _: None,
    ) -> None:
        self._where, self._figures, self._is_ready, self._advice = where, figures, is_ready, advice
        self._history: dict[str, History] = {}
        self._last: Tenants = {}
        routes = [
            Route("/health", self._health),
            Route("/ready", self._ready),
            Route("/metrics", self._metrics),
            Route("/figures", self._told),
            Route("/", self._page),
        ]
        self._registry = registry_of(lambda: self._last)
        self._listener = _listening(where)
        config = uvicorn.Config(
            Starlette(routes=routes),
            log_level="warning",
            access_log=False,
            lifespan="off",
            limit_concurrency=_CONNECTIONS,
            timeout_keep_alive=5,
            server_header=False,
        )
        self._server = _Server(config)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._look()), loop.create_task(self._server.serve(sockets=[self._listener]))]

    @property
    def address(self) -> str:
        """What people open, with the token."""
        if self._where.path is not None:
            return f"{self._where.path} (curl --unix-socket)"
        host, port = self._listener.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/?token={self._where.token}"

    async def close(self) -> None:
        """Listen no more."""
        self._server.should_exit = True
        looking, serving = self._tasks
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking
        await serving
        self._listener.close()
        if self._where.path is not None:
            self._where.path.unlink(missing_ok=True)

    async def _look(self) -> None:
        while True:
            await self._seen()
            await asyncio.sleep(_EVERY)

    async def _seen(self) -> Tenants:
        self._last = await self._figures()
        for gone in self._history.keys() - self._last.keys():
            del self._history[gone]
        for tenant, figures in self._last.items():
            self._history.setdefault(tenant, History(_SPANS)).look(figures)
        return self._last

    def _refused(self, request: Request) -> Response | None:
        """Return what somebody is told who may not see more; None where they may."""
        token = self._where.token
        if not token:
            return None
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        given = given if kind.lower() == "bearer" else request.query_params.get("token", "")
        if hmac.compare_digest(given.encode(), token.encode()):
            return None
        return PlainTextResponse("a token is asked for\n", 401, {"WWW-Authenticate": "Bearer"})

    async def _health(self, _request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _ready(self, _request: Request) -> Response:
        is_ready = self._is_ready()
        return PlainTextResponse("ready\n" if is_ready else "not ready\n", 200 if is_ready else 503)

    async def _metrics(self, request: Request) -> Response:
        refused = self._refused(request)
        if refused is not None:
            return refused
        self._last = await self._figures()
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)

    async def _told(self, request: Request) -> Response:
        return self._refused(request) or JSONResponse(await self._figures())

    async def _page(self, request: Request) -> Response:
        refused = self._refused(request)
        if refused is not None:
            return refused
        tenants = self._last or await self._seen()
        advice = {name: await asyncio.to_thread(self._advice, name) for name in tenants}
        spans = {name: history.spans for name, history in self._history.items()}
        headers = {
            "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
            "Referrer-Policy": "no-referrer",  # which would tell the token
            "X-Content-Type-Options": "nosniff",
        }
        return HTMLResponse(page(tenants, spans, advice), headers=headers)


class _Server(uvicorn.Server):
    """One whose process hears its signals itself."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them alone."""
        yield


def _listening(where: Where) -> socket.socket:
    """Return a socket that listens; raises StorageError where it cannot, UsageError where something else lies there."""
    if where.path is not None:
        PrivateFolder.make(where.path.parent).close()
        return listening(where.path, kind=socket.SOCK_STREAM)
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    try:
        listener = socket.create_server((where.host, where.port), family=family)
    except OSError as error:
        raise StorageError(f"{where.host}:{where.port}", found=str(error), expected="a port to listen at") from error
    listener.settimeout(0)
    return listener
