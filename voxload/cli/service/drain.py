"""``voxload serve drain``: let a service end, and keep what it has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from voxload.cli.terminal import Screen
from voxload.serve.asking import Visit
from voxload.serve.place import service_path

EPILOG = "Example: voxload serve drain, as in the ExecStop of a unit of systemd"
"""Shown at the end of the command's help."""


def drain(*, socket: Annotated[str, typer.Option(help="Path of the service's socket.")] = "auto") -> None:
    """Let a service end: no job is let in any more, and what is in memory is written to its disk first."""
    with Visit(Path(service_path(socket)), "drain") as visit:
        count = visit.drain()
    Screen().print(f"drained; {count} blocks lie on disk")
