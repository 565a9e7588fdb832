"""Finding: what was asked for, beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table


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


def show_findings(console: Console, found: Sequence[Finding], wrong: Sequence[str] = ()) -> None:
    """Print what was asked for beside what was measured, and results that should have been others."""
    table = Table(
        title="What was asked for",
        caption="median (least to most of all rounds)",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("what")
    for name in ("asked", "measured", ""):
        table.add_column(name, justify="right")
    for each in found:
        table.add_row(
            each.name,
            f"{'>=' if each.is_least else '<='} {each.wanted:.3f}",
            f"{each.median:.3f} ({min(each.figures):.3f} to {max(each.figures):.3f})",
            "[green]PASS[/]" if each.is_met else "[red]short[/]",
        )
    if found:
        console.print(table)
    for line in wrong:
        console.print(f"[bold red]other results:[/] {line}", highlight=False)
