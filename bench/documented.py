"""Documented: a section of a document that a script makes, between two marks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Documented:
    """One section."""

    document: Path
    """Where it stands."""
    script: str
    """What makes it, below the root; the marks name it."""
    section: Callable[[], str]
    """Gives what stands between the marks."""

    def filled(self, text: str) -> str:
        """Return a document with the section between its marks, in the place of what is there."""
        begin, end = f"<!-- begin: {self.script} -->", f"<!-- end: {self.script} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        return f"{before}{begin}\n\n{self.section()}\n\n{end}{after}"

    def offer(self, parser: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
        """Add the options of `run` to a command line, and return their group."""
        how = parser.add_mutually_exclusive_group()
        how.add_argument("--write", action="store_true", help=f"write the section into {self._name}")
        how.add_argument("--check", action="store_true", help=f"tell whether {self._name} holds the section")
        return how

    def run(self, words: argparse.Namespace) -> int:
        """Print the section, write or check it; returns 1 when a document that is checked holds something else."""
        text = self.document.read_text(encoding="utf-8")
        if words.write:
            self.document.write_text(self.filled(text), encoding="utf-8")
        elif words.check and self.filled(text) != text:
            print(f"{self._name}: found other tables, expected these; run it with --write", file=sys.stderr)
            return 1
        elif not words.check:
            print(self.section())
        return 0

    def main(self, description: str | None) -> int:
        """Parse the command line and run."""
        parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        self.offer(parser)
        return self.run(parser.parse_args())

    @property
    def _name(self) -> str:
        return self.document.relative_to(ROOT).as_posix()


def table_row(cells: list[str]) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(cells)} |"
