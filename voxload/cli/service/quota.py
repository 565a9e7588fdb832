"""``voxload serve quota``: how much of its memory a service uses."""

from __future__ import annotations

import pwd
from pathlib import Path
from typing import Annotated

import typer

from voxload.cli.terminal import Screen
from voxload.errors import UsageError
from voxload.serve.asking import Visit
from voxload.serve.place import OF_ALL, service_path
from voxload.serve.tenancy.front import ADMIN
from voxload.units import parse_bytes

EPILOG = "Example: voxload serve quota 16GiB"
"""Shown at the end of the command's help."""


def quota(
    memory: Annotated[str, typer.Argument(help="Bytes of its memory that are used from now on, such as 16GiB.")],
    *,
    user: Annotated[
        str, typer.Option(help="Name or number of the user whose quota it is, of a service for all of them.")
    ] = "",
    share: Annotated[
        float, typer.Option(help="Of the reads of the storage, beside the shares of others.", min=0.01)
    ] = 1.0,
    socket: Annotated[str, typer.Option(help="Path of the service's socket, or of root's beside it.")] = "auto",
) -> None:
    """Let a service use less of its memory, or all of it again; what has to go for that goes at once."""
    if user:
        path = OF_ALL.with_name(ADMIN) if socket == "auto" else Path(socket)
        with Visit(path, "quota") as visit:
            visit.limit(parse_bytes(memory), user=_number(user), share=share)
        Screen().print(f"user {user} may have {memory}")
        return
    with Visit(Path(service_path(socket)), "quota") as visit:
        visit.limit(parse_bytes(memory))
        found = visit.figures()["memory"]
    Screen().print(f"{found['limit']} of {found['capacity']} bytes are used at most, {found['used']} are")


def _number(user: str) -> int:
    try:
        return int(user) if user.isdecimal() else pwd.getpwnam(user).pw_uid
    except KeyError:
        raise UsageError("--user", found=user, expected="a user of this machine") from None
