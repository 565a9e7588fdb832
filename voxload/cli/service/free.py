"""``voxload serve free``: let go what was kept near."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from voxload.cli.terminal import Screen
from voxload.errors import UsageError
from voxload.serve.asking import Visit
from voxload.serve.place import service_path

EPILOG = "Example: voxload serve free universes, or voxload serve free --unused"
"""Shown at the end of the command's help."""


def free(
    name: Annotated[str, typer.Argument(help="What was given to warm or pin.")] = "",
    *,
    unused: Annotated[
        bool, typer.Option("--unused", help="Forget all that no job will use and nothing keeps, on disk too.")
    ] = False,
    socket: Annotated[str, typer.Option(help="Path of the service's socket.")] = "auto",
) -> None:
    """Let go what was warmed or pinned by a name, or forget all that nobody will use."""
    if bool(name) == unused:
        raise UsageError("free", found=f"{name!r}, --unused {unused}", expected="a name or --unused")
    with Visit(Path(service_path(socket)), "free") as visit:
        if name:
            visit.let_go(name)
            Screen().print(f"{name!r} is kept no more")
        else:
            Screen().print(f"{visit.clear()} blocks are forgotten")
