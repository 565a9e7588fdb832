"""Completion: what was typed before a shell asks how it may go on.

A shell calls the program with the typed words in variables of the environment, as typer's scripts for bash, zsh and
fish have it.
"""

from __future__ import annotations

from collections.abc import Mapping

VARIABLE = "_VOXLOAD_COMPLETE"
"""Variable that a shell's script sets when it asks."""


def words_before(environ: Mapping[str, str]) -> list[str] | None:
    """Return the words before the one that is completed, without the program; None where no shell asks.

    Quotes in them are left as typed: only the names of commands are looked for among them.
    """
    if not environ.get(VARIABLE):
        return None
    if "COMP_WORDS" in environ:
        return environ["COMP_WORDS"].split()[1 : int(environ.get("COMP_CWORD") or 0)]
    typed = environ.get("_TYPER_COMPLETE_ARGS", "")
    words = typed.split()[1:]
    return words if typed.endswith(" ") else words[:-1]
