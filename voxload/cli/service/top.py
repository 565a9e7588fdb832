"""``voxload serve top``: what a service does now, again and again."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.live import Live

from voxload.cli.service.status import shown
from voxload.cli.terminal import Screen
from voxload.serve.asking import Visit
from voxload.serve.place import service_path

EPILOG = "Example: voxload serve top --every 5"
"""Shown at the end of the command's help."""


def top(
    *,
    every: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1)] = 2.0,
    count: Annotated[int, typer.Option(help="Looks; 0 for no end.", min=0)] = 0,
    socket: Annotated[str, typer.Option(help="Path of the service's socket.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each look.")] = False,
) -> None:
    """Show what the service of this node keeps, reads and is asked for, until interrupted."""
    path, screen = Path(service_path(socket)), Screen()
    before, looks = _look(path), 0
    if as_json:
        while looks < (count or looks + 1):
            looks += 1
            print(json.dumps(before), flush=True)
            if looks != count:
                time.sleep(every)
                before = _look(path)
        return
    with Live(shown(before), console=screen, auto_refresh=False) as live:
        while (looks := looks + 1) != count:
            time.sleep(every)
            now = _look(path)
            live.update(shown(now, before=before), refresh=True)
            before = now


def _look(path: Path) -> dict[str, Any]:
    with Visit(path, "top") as visit:
        return visit.figures()
