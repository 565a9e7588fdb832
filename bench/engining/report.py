"""Report: the tables."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from bench.engining.outcome import Outcome, Sheet
from voxload.benchmark.measure.turns import QUIET


def show(console: Console, outcome: Outcome) -> None:
    """Print what one measurement found, and a warning where others disturbed it."""
    for sheet in outcome.sheets:
        _show_sheet(console, sheet)
    if not outcome.others:
        return
    mean = sum(outcome.others) / len(outcome.others)
    each = " ".join(f"{cores:.2f}" for cores in outcome.others)
    console.print(f"others used {mean:.2f} cores on average, by round {each}", highlight=False)
    if mean > QUIET:
        console.print(f"[bold yellow]more than {QUIET:g}: times are doubtful[/]", highlight=False)


def _show_sheet(console: Console, sheet: Sheet) -> None:
    table = Table(title=sheet.title, caption=sheet.caption, title_justify="left", caption_justify="left")
    table.add_column(sheet.columns[0], no_wrap=True)
    for name in sheet.columns[1:]:
        table.add_column(name, justify="right")
    for row in sheet.rows:
        table.add_row(*row)
    console.print(table)
