"""Shell blocks, and sessions on a console, which show what commands print."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block
from tests.support import processes, scripts

_LAUNCHERS = ("RANK", "WORLD_SIZE", "PMI", "OMPI", "SLURM", "MASTER_", "LOCAL_", "TORCHELASTIC")
_PLAIN = re.compile(r"voxload( |$)[^|&;<>$`(){}*?~\"'\\]*")
"""A command of voxload's that needs no shell, once what is quoted is left out."""
_QUOTED = re.compile(r"'[^']*'|\"[^\"$`\\]*\"")
_MAIN = "from voxload.cli.start import main\nmain()\n"
_IMPORTED = (
    "pandas",
    "pydantic",
    "rich.console",
    "rich.table",
    "voxload.catalog",
    "voxload.cli.start",
    "voxload.convert",
    "voxload.loader.dataloader",
)
"""What most commands import, imported once."""
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def environ(place: Path) -> dict[str, str]:
    """Return what a user's shell has set, without what a launcher around the tests has; passing files go to `place`."""
    theirs = {key: value for key, value in os.environ.items() if not key.startswith(_LAUNCHERS)}
    theirs["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), theirs["PATH"]))
    theirs["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), theirs.get("PYTHONPATH"))))
    own = {"TMPDIR": str(place), "XDG_RUNTIME_DIR": str(place)}
    return theirs | own | {"MPLBACKEND": "Agg", "COLUMNS": "120", "NO_COLOR": "1"}


class Shell:
    """Where commands of one page run; what they leave in the background ends with it."""

    def __init__(self, folder: Path, environ: Mapping[str, str], stack: ExitStack) -> None:
        self._folder = folder
        self._environ = environ
        self._stack = stack

    def run(self, block: Block) -> None:
        """Run a block of commands; each must end well."""
        commands = _commands(block.source)
        if all(map(_is_plain, commands)):
            for command in commands:
                self._run(block, command)
        else:
            self._run(block, block.source)

    def run_console(self, block: Block) -> None:
        """Run the commands behind dollar signs and compare what they print with what stands below them.

        ``...`` stands for anything, in a line or for lines; white space is not compared.
        """
        sessions = re.split(r"^\$ ", block.source, flags=re.MULTILINE)
        if sessions[0].strip():
            pytest.fail(f"{block}: found text before the first command: {sessions[0]!r}", pytrace=False)
        for session in sessions[1:]:
            command, printed = _split(session)
            told = self._run(block, command)
            if printed.strip():
                _compare(block, doctest.Example(command, printed), told)

    def _run(self, block: Block, command: str) -> str:
        """Run one command, or several, and return what they print and say."""
        plain = _commands(command)
        if len(plain) == 1 and _is_plain(plain[0]):
            words = shlex.split(plain[0])[1:]
            done = scripts.run(_MAIN, *words, imports=_IMPORTED, cwd=self._folder, environ=self._environ, check=False)
            status, told = done.returncode, done.stdout + done.stderr
        else:
            status, told = self._bash(command)
        if status:
            pytest.fail(f"{block}: status {status}\n{command}\n{told}", pytrace=False)
        return told

    def _bash(self, command: str) -> tuple[int, str]:
        """Let a shell of its own run it."""
        printed = self._stack.enter_context(tempfile.TemporaryFile("w+"))  # noqa: SIM115 - the stack closes it
        words = ["bash", "-euo", "pipefail", "-c", command]
        shell = processes.started(
            words, cwd=self._folder, env=self._environ, stdin=subprocess.DEVNULL, stdout=printed, stderr=printed
        )
        status = self._stack.enter_context(shell).wait(timeout=processes.LIMIT)
        printed.seek(0)
        return status, printed.read()


def _compare(block: Block, example: doctest.Example, told: str) -> None:
    checker = doctest.OutputChecker()
    if not checker.check_output(example.want, told, _FLAGS):
        difference = checker.output_difference(example, told, _FLAGS)
        pytest.fail(f"{block}: {example.source}\n{difference}", pytrace=False)


def _split(session: str) -> tuple[str, str]:
    """Part a command, which a backslash continues on the next line, from what is printed below it."""
    lines = session.splitlines(keepends=True)
    count = 1
    while lines[count - 1].rstrip("\n").endswith("\\"):
        count += 1
    return "".join(lines[:count]), "".join(lines[count:])


def _is_plain(command: str) -> bool:
    return _PLAIN.fullmatch(_QUOTED.sub("", command)) is not None


def _commands(source: str) -> list[str]:
    """Return the commands of a block, without comments, each on one line."""
    joined = source.replace("\\\n", " ")
    lines = [re.sub(r"(^|\s+)#.*", "", line).strip() for line in joined.splitlines()]
    return [line for line in lines if line]
