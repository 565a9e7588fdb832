"""``voxload plan diff``: what differs between two plans."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from voxload.cli.planning.tables import diff_table
from voxload.cli.terminal import Screen
from voxload.plan import load

EPILOG = "Example: voxload plan diff before.json after.json"
"""Shown at the end of the command's help."""


def diff(
    one: Annotated[Path, typer.Argument(help="A plan that voxload plan --output wrote.", show_default=False)],
    other: Annotated[Path, typer.Argument(help="Another.", show_default=False)],
) -> None:
    """Say what differs between two plans, and what they were said to take."""
    console = Screen()
    plans = load(one), load(other)
    if plans[0] == plans[1]:
        console.print("The plans are equal.")
        return
    console.print(diff_table((one.name, other.name), plans))
