"""Commands: those of the program, each loaded when it is called.

Loading all of them takes seconds, most of it for torch and for what draws: too long for a conversion of many tasks,
each of which would fetch these libraries from the file system that it is to read from.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

import typer

COMMANDS = ("convert", "info", "verify", "simulate", "train", "infer", "demo")
"""Commands, in the order of the help; each is the function of its name in the module of its name."""
GROUPS = ("bench", "catalog")
"""Commands that have commands; each is the ``app`` of the module of its name."""


def wanted(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the commands that a call needs: all of them, unless it begins with one or asks for the version."""
    known = (*COMMANDS, *GROUPS)
    if arguments and arguments[0] in known:
        return (arguments[0],)
    return () if list(arguments) == ["--version"] else known


def add_command(app: typer.Typer, name: str) -> None:
    """Load a command and add it to the program."""
    module = import_module(f"voxload.cli.{name}")
    if name in GROUPS:
        app.add_typer(module.app)
    else:
        app.command(name, epilog=module.EPILOG)(getattr(module, name))
