"""Table: what became of each network on each grid, as a file keeps it, and how many of each library are exact."""

from __future__ import annotations

import enum
import importlib.metadata
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.documented import table_row
from voxload.files.atomic import replacing

VALUES, GRADIENTS = 1e-10, 1e-8
"""Largest relative differences in float64 that are rounding."""


class Verdict(enum.Enum):
    """What became of it."""

    EXACT = "exact"
    """Equal to one process, forward and backward, in training and in evaluation."""
    RANDOM = "not compared"
    """Its forward draws random numbers in both modes."""
    REFUSED = "refused"
    """Not run, with a reason."""
    WRONG = "wrong"
    """Anything else than one process gives."""
    CRASHED = "crashed"
    """Neither a result nor a refusal."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One network on one grid."""

    spatial: tuple[int, ...]
    verdict: Verdict
    result: float = 0.0
    """Worst relative error of results and buffers."""
    gradient: float = 0.0
    """Of gradients."""
    why: str = ""
    """The reason of a refusal, or the last line of a crash."""

    def document(self) -> dict[str, Any]:
        """Return it for a file."""
        return asdict(self) | {"verdict": self.verdict.value}

    @classmethod
    def read(cls, document: dict[str, Any]) -> Outcome:
        """Return what a file says."""
        return cls(**document | {"spatial": tuple(document["spatial"]), "verdict": Verdict(document["verdict"])})


_COLUMNS = ("network", "verdict", "results", "gradients", "whole at 128^3")


def head(columns: Sequence[str] = _COLUMNS) -> str:
    """Return the first two lines of a table."""
    return "\n".join((table_row(list(columns)), table_row(["---"] * len(columns))))


def worst(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome that counts: that of the worst grid."""
    order = list(Verdict)
    return max(outcomes, key=lambda each: order.index(each.verdict))


def row(title: str, outcomes: Sequence[Outcome], whole: str) -> str:
    """Return the line of a network: the worst of its grids."""
    counts = worst(outcomes)
    exact = [each for each in outcomes if each.verdict in {Verdict.EXACT, Verdict.WRONG}]
    figures = [f"{max((getattr(each, name) for each in exact), default=0.0):.0e}" for name in ("result", "gradient")]
    verdict = counts.verdict.value + (f": {counts.why}" if counts.why else "")
    return table_row([title, verdict, *(figures if exact else ("", "")), whole])


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
        lines = [
            head(("library", "version", "networks", *(each.value for each in Verdict), "of the exact, 128^3 runs"))
        ]
        for library in libraries:
            of_it = [entry for title, entry in self.entries.items() if title.startswith(f"{library} ")]
            if of_it:
                lines.append(table_row([library, self.versions[library], *_numbers(of_it)]))
        return "\n".join([*lines, table_row(["all", "", *_numbers(list(self.entries.values()))])])

    def rows(self, titles: Iterable[str]) -> str:
        """Return a line for each network of which something is known."""
        known = [(title, self.entries[title]) for title in titles if title in self.entries]
        lines = [row(title, entry.outcomes, entry.whole) for title, entry in known]
        return "\n".join([head(), *lines])


def _numbers(entries: list[Entry]) -> list[str]:
    by_verdict = [sum(entry.verdict is verdict for entry in entries) for verdict in Verdict]
    fits = sum(entry.fits and entry.verdict is Verdict.EXACT for entry in entries)
    return [str(number) for number in (len(entries), *by_verdict, fits)]


def _version(library: str) -> str:
    names = importlib.metadata.packages_distributions().get(library, [library])
    return importlib.metadata.version(names[0])
