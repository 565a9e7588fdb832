"""``voxload serve status``: what a service keeps, and for whom."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from voxload.cli.terminal import Screen
from voxload.serve.asking import figures
from voxload.serve.place import service_path
from voxload.units import format_bytes

EPILOG = "Example: voxload serve status --json"
"""Shown at the end of the command's help."""


def status(
    *,
    socket: Annotated[str, typer.Option(help="Path of the service's socket.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what the service of this node keeps, what it read, and who is connected."""
    found = figures(service_path(socket))
    if as_json:
        print(json.dumps(found, indent=2))
        return
    memory, reads = found["memory"], found["reads"]
    table = Table(
        title=f"service {found['boot'][:8]}, up {found['seconds']:.0f} s",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for name in ("job", "user", "process", "blocks", "uses to come"):
        table.add_column(name, justify="left" if name == "job" else "right")
    for job in found["jobs"]:
        table.add_row(job["name"], *(str(job[name]) for name in ("uid", "pid", "blocks", "ahead")))
    screen = Screen()
    screen.print(table)
    screen.print(
        f"{format_bytes(memory['used'])} of {format_bytes(memory['capacity'])} in {memory['blocks']} blocks; "
        f"{reads['done']} reads of {format_bytes(reads['storage_bytes'])}, {reads['failed']} failed, "
        f"{reads['waited_for']} waited for"
    )
