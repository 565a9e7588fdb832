"""Table: what became of all networks, as a file keeps it, and how many of each library are exact."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.documented import table_row
from bench.networking.outcome import HEADER, Outcome, Verdict, row, worst
from voxload.files.atomic import replacing


@dataclass(frozen=True, slots=True)
class Entry:
    """One network."""

    outcomes: tuple[Outcome, ...]
    """One for each grid."""
    whole: str
    """What it makes whole of a large volume, as text."""

    @property
    def verdict(self) -> Verdict:
        """That of its worst grid."""
        return worst(self.outcomes).verdict

    @property
    def fits(self) -> bool:
        """Whether the large volume runs, and so nothing beyond the engine's limit is gathered."""
        return not self.whole.startswith(("refused", "not told"))


@dataclass(frozen=True, slots=True)
class Table:
    """Networks by their titles, which begin with their library, and the libraries' versions."""

    entries: dict[str, Entry] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Table:
        """Return what a file holds; nothing where there is none. Raises ValueError where it holds something else."""
        if not path.exists():
            return cls()
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            entries = {
                title: Entry(tuple(map(Outcome.read, each["grids"])), each["whole"])
                for title, each in found["networks"].items()
            }
            return cls(entries, found["versions"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path} holds no table of networks ({error!r}): remove it, or name another file"
            ) from error

    def write(self, path: Path) -> None:
        """Write it, whole or not at all."""
        networks: dict[str, Any] = {
            title: {"grids": [one.document() for one in entry.outcomes], "whole": entry.whole}
            for title, entry in self.entries.items()
        }
        document = {"versions": self.versions, "networks": networks}
        with replacing(path) as beside:
            beside.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

    def with_entry(self, library: str, title: str, entry: Entry) -> Table:
        """Return the table with a network in the place of what it had, and its library's version now."""
        return Table(self.entries | {title: entry}, self.versions | {library: _version(library)})

    def counts(self, libraries: Iterable[str]) -> str:
        """Return how many networks of each library there are by verdict, and of how many a large volume runs."""
        head = ["library", "version", "networks", *(verdict.value for verdict in Verdict), "of the exact, 128^3 runs"]
        lines = [table_row(head), table_row(["---"] * len(head))]
        for library in libraries:
            of_it = [entry for title, entry in self.entries.items() if title.startswith(f"{library} ")]
            if of_it:
                lines.append(table_row([library, self.versions[library], *_numbers(of_it)]))
        return "\n".join([*lines, table_row(["all", "", *_numbers(list(self.entries.values()))])])

    def rows(self, titles: Iterable[str]) -> str:
        """Return a line for each network of which something is known."""
        known = [(title, self.entries[title]) for title in titles if title in self.entries]
        lines = [row(title, entry.outcomes, entry.whole) for title, entry in known]
        return "\n".join([table_row(list(HEADER)), table_row(["---"] * len(HEADER)), *lines])


def _numbers(entries: list[Entry]) -> list[str]:
    by_verdict = [sum(entry.verdict is verdict for entry in entries) for verdict in Verdict]
    fits = sum(entry.fits and entry.verdict is Verdict.EXACT for entry in entries)
    return [str(number) for number in (len(entries), *by_verdict, fits)]


def _version(library: str) -> str:
    names = importlib.metadata.packages_distributions().get(library, [library])
    return importlib.metadata.version(names[0])
