"""Where a service tells of itself by HTTP, and what that takes: libraries that a service without it does not need."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from voxload.errors import UsageError
from voxload.serve.seen.advice import Advice

Tenants = Mapping[str, Mapping[str, Any]]
"""Figures of a service's tenants, by name."""


@dataclass(frozen=True, slots=True)
class Where:
    """Where HTTP is served, and to whom."""

    host: str = ""
    port: int = 0
    path: Path | None = None
    """Of a Unix socket, in the place of an address."""
    token: str = ""
    """Empty where none is asked for: who gets to the socket is known."""

    @classmethod
    def parse(cls, text: str, *, token: str = "") -> Where:
        """Return what ``127.0.0.1:9640`` or a path means; a port gets a token, a new one where none is given.

        Raises UsageError where it is neither.
        """
        if "/" in text:
            return cls(path=Path(text))
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isdecimal() or int(port) >= 2**16:
            raise UsageError("--http", found=repr(text), expected="an address with its port, or a path")
        return cls(host.strip("[]"), int(port), token=token or secrets.token_urlsafe(24))


class Telling(Protocol):
    """What serves HTTP; see `voxload.serve.seen.http.Seen`."""

    @property
    def address(self) -> str:
        """What people open."""
        ...

    async def close(self) -> None:
        """Listen no more."""
        ...


def told_at(
    where: Where,
    *,
    figures: Callable[[], Awaitable[Tenants]],
    is_ready: Callable[[], bool],
    advice: Callable[[str], Advice | None],
) -> Telling:
    """Serve HTTP from now on; see `Seen`.

    Raises UsageError where the libraries are not there, and what listening raises.
    """
    try:
        seen = import_module("voxload.serve.seen.http").Seen
    except ImportError as error:
        raise UsageError(
            "--http",
            found=str(error),
            expected="prometheus-client, starlette and uvicorn",
            remedy="install voxload[serve]",
        ) from error
    found: Telling = seen(where, figures=figures, is_ready=is_ready, advice=advice)
    return found
