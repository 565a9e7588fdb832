"""``voxload serve quota``: how much of its memory a service uses."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from voxload.cli.terminal import Screen
from voxload.serve.asking import Visit
from voxload.serve.place import service_path
from voxload.units import parse_bytes

EPILOG = "Example: voxload serve quota 16GiB"
"""Shown at the end of the command's help."""


def quota(
    memory: Annotated[str, typer.Argument(help="Bytes of its memory that are used from now on, such as 16GiB.")],
    *,
    socket: Annotated[str, typer.Option(help="Path of the service's socket.")] = "auto",
) -> None:
    """Let a service use less of its memory, or all of it again; what has to go for that goes at once."""
    with Visit(Path(service_path(socket)), "quota") as visit:
        visit.limit(parse_bytes(memory))
        found = visit.figures()["memory"]
    Screen().print(f"{found['limit']} of {found['capacity']} bytes are used at most, {found['used']} are")
