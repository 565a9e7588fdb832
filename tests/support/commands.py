"""Commands: how each is called."""

from __future__ import annotations

from voxload.cli.commands import COMMANDS, GROUPS

CALLS = (
    *COMMANDS,
    *(f"{name} {inner}" for name, group in GROUPS.items() for inner in group.commands),
    *(f"{name} {group.word}".strip() for name, group in GROUPS.items() if group.own is not None),
)
"""The words that name each command, such as ``bench run``."""
