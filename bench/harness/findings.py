"""Findings: what measurements found, beside what was asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from voxload.benchmark.measure.turns import QUIET


@dataclass(frozen=True, slots=True)
class Finding:
    """One goal and its figures, one for each round."""

    name: str
    wanted: float
    is_least: bool
    """Whether more is better."""
    figures: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle figure."""
        return float(np.median(self.figures))

    @property
    def is_met(self) -> bool:
        """Whether the median meets it."""
        return self.median >= self.wanted if self.is_least else self.median <= self.wanted

    def document(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self) | {"median": self.median, "is_met": self.is_met}


def at_most(name: str, wanted: float, figures: tuple[float, ...]) -> Finding:
    """Return a goal of which less is better."""
    return Finding(name, wanted, is_least=False, figures=figures)


def at_least(name: str, wanted: float, figures: tuple[float, ...]) -> Finding:
    """Return a goal of which more is better."""
    return Finding(name, wanted, is_least=True, figures=figures)


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table as text; its first column is a name."""

    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def show(self, console: Console) -> None:
        """Print it; what is no name stands to the right."""
        table = Table(title=self.title, caption=self.caption, title_justify="left", caption_justify="left")
        table.add_column(self.columns[0], no_wrap=True)
        for name in self.columns[1:]:
            table.add_column(name, justify="right")
        for row in self.rows:
            table.add_row(*row)
        console.print(table)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Figures of one measurement, and what was asked of them."""

    findings: tuple[Finding, ...] = ()
    sheets: tuple[Sheet, ...] = ()
    document: dict[str, Any] = field(default_factory=dict)
    """Every figure as plain values."""
    others: tuple[float, ...] = ()
    """Cores that others used while the clock ran."""
    wrong: tuple[str, ...] = ()
    """Results that should have been others."""

    def show(self, console: Console) -> None:
        """Print the tables, and a warning where others disturbed the clock."""
        for sheet in self.sheets:
            sheet.show(console)
        if not self.others:
            return
        mean = sum(self.others) / len(self.others)
        each = " ".join(f"{cores:.2f}" for cores in self.others)
        console.print(f"others used {mean:.2f} cores on average, by round {each}", highlight=False)
        if mean > QUIET:
            console.print(f"[bold yellow]more than {QUIET:g}: times are doubtful[/]", highlight=False)


def show_findings(console: Console, found: Sequence[Finding], wrong: Sequence[str] = ()) -> None:
    """Print what was asked for beside what was measured, and results that should have been others."""
    rows = tuple(
        (
            each.name,
            f"{'>=' if each.is_least else '<='} {each.wanted:.3f}",
            f"{each.median:.3f} ({min(each.figures):.3f} to {max(each.figures):.3f})",
            "[green]PASS[/]" if each.is_met else "[red]short[/]",
        )
        for each in found
    )
    if found:
        caption = "median (least to most of all rounds)"
        Sheet("What was asked for", caption, ("what", "asked", "measured", ""), rows).show(console)
    for line in wrong:
        console.print(f"[bold red]other results:[/] {line}", highlight=False)


def conclude(console: Console, outcomes: Mapping[str, Outcome], about: Mapping[str, Any], path: Path | None) -> int:
    """Print what was asked for, and return the exit status: 1 where it was not reached, or results should be others.

    Parameters
    ----------
    console
        Where it is printed.
    outcomes
        What was found, by name of the measurement.
    about
        What a document says of the run.
    path
        File for that and every figure, as JSON; None for no file.
    """
    found = [finding for outcome in outcomes.values() for finding in outcome.findings]
    wrong = [line for outcome in outcomes.values() for line in outcome.wrong]
    show_findings(console, found, wrong)
    if path:
        measured = {
            name: {"figures": outcome.document, "others": outcome.others, "wrong": outcome.wrong}
            for name, outcome in outcomes.items()
        }
        document = {**about, "goals": [finding.document() for finding in found], "measured": measured}
        path.write_text(json.dumps(document, indent=1))
    return int(bool(wrong) or not all(finding.is_met for finding in found))
