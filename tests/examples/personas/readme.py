"""The commands of a README: run as they stand, and their output compared with what the README shows.

A block of ``console`` holds commands behind ``$ ``, each followed by what it prints. In that, ``...`` and spaces around
it stand for anything within a line, and a line of just ``...`` for any lines. Spaces at the ends of lines do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support import processes

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ANY = re.compile(r" *\.\.\. *")


@dataclass(frozen=True)
class Step:
    """One command and what the README shows of it."""

    command: str
    """As it stands."""
    shown: tuple[str, ...]
    """Lines of its output."""

    def run(self, folder: Path, environ: dict[str, str]) -> str:
        """Run the command in a shell, and return what it prints; it must succeed."""
        done = processes.run(
            ["bash", "-c", self.command], cwd=folder, env=environ, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{self.command}\n{done.stdout}\n{done.stderr[-3000:]}"
        return str(done.stdout)

    def is_shown(self, printed: str) -> bool:
        """Return whether the README shows what was printed."""
        lines = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
        return re.fullmatch("".join(map(_pattern, self.shown)), lines) is not None


def _pattern(line: str) -> str:
    """Return the expression of a line that is shown."""
    if line == "...":
        return r"(?:.*\n)*?"
    return ".*".join(map(re.escape, _ANY.split(line))) + r"\n"


def steps(readme: Path) -> Iterator[Step]:
    """Yield the commands of a README in their order."""
    for block in _BLOCK.findall(readme.read_text(encoding="utf-8")):
        before, *parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
        assert not before.strip(), f"{readme}: {before!r} stands before the first command of its block"
        for part in parts:
            command, *shown = part.removesuffix("\n").split("\n")
            yield Step(command, tuple(line.rstrip() for line in shown))
