"""Report: the tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench.reading.goals import Goal
from bench.reading.results import Result, thread_counts

BUSY = 0.25
"""Cores that others may use before a ratio of two threads says little."""
_TEXTS = ("contender", "case", "threads", "times faster than", "format", "dtype", "chunk", "fastest peer")
"""Columns that stand to the left."""


def _table(title: str, columns: Sequence[str], caption: str | None = None) -> Table:
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for name in columns:
        table.add_column(name, justify="left" if name in _TEXTS else "right")
    return table


def show_result(console: Console, result: Result, title: str) -> None:
    """Print the table of one sample and case."""
    low, high = result.resident
    state = f"{'cold' if result.case == 'cold' else 'warm'}, {low:.1%} to {high:.1%} of its pages in memory (mincore)"
    stored = f"stored in {result.stored_share:.0%} of its bytes"
    times = next((len(row.seconds) for row in result.contenders), 0)
    own = result.timings("voxload")
    table = _table(
        f"{title}, {result.case}",
        ("contender", "median ms", "spread", "GB/s", *(f"voxload\n{row.threads}T faster" for row in own)),
        f"{result.useful_bytes / 2**20:.1f} MiB; {stored}; {state};\n"
        f"{times} rounds; others used {result.bystander_cores:.2f} cores",
    )
    for row in result.contenders:
        ratios = [f"{row.median_s / mine.median_s:.2f}x" for mine in own]
        speed = f"{result.useful_bytes / row.median_s / 1e9:.2f}"
        style = "bold" if row.peer == "voxload" else ""
        table.add_row(row.title, f"{row.median_s * 1e3:.2f}", f"{row.spread:.0%}", speed, *ratios, style=style)
    for wrong in result.wrong:
        table.add_row(wrong, "WRONG RESULT", style="bold red")
    console.print(table)


def show_goals(console: Console, goals: Sequence[Goal], results: Sequence[Result]) -> None:
    """Print what was asked for beside what was measured."""
    pairs: list[tuple[str, int | None]] = list({(result.dtype, result.chunk) for result in results if result.chunk})
    pairs = sorted(pairs or {(result.dtype, None) for result in results}, key=_order)
    shown = [f"{dtype}\n{chunk}^3" if chunk else dtype for dtype, chunk in pairs]
    table = _table(
        "What was asked for",
        ("case", "threads", "times faster than", "asked", *shown),
        f"< less than asked; * others used {BUSY:.2f} cores or more meanwhile: run it again",
    )
    for goal in goals:
        found = [goal.find(results, dtype, chunk) for dtype, chunk in pairs]
        if any(found):
            cells = [_mark(goal, result) for result in found]
            table.add_row(f"{goal.layout}, {goal.case}", f"{goal.threads}", goal.versus, f"{goal.wanted:.1f}", *cells)
    console.print(table)


def _mark(goal: Goal, result: Result | None) -> str:
    """Return a cell: the ratio, ``<`` where it falls short, ``*`` where others kept the machine busy."""
    ratio = goal.ratio(result) if result else None
    if result is None or ratio is None:
        return "not run"
    is_met = ratio >= goal.wanted
    signs = ("" if is_met else " <") + (" *" if result.bystander_cores >= BUSY else "")
    return f"[{'green' if is_met else 'red'}]{ratio:.2f}{signs}[/]"


def _order(pair: tuple[str, int | None]) -> tuple[bool, str, int]:
    """Put the counts first: the ratios were set for them."""
    dtype, chunk = pair
    return dtype != "int16", dtype, chunk or 0


def show_overview(console: Console, results: Sequence[Result]) -> None:
    """Print one line for each table: voxload's time and its ratio to the fastest peer and to memcpy."""
    threads = max(thread_counts(results), default=1)
    table = _table(
        f"All cases, voxload with {threads} threads",
        ("format", "dtype", "chunk", "case", "median ms", "GB/s", "memcpy takes", "fastest peer", "faster"),
    )
    for result in results:
        own, peer = result.own(threads), result.fastest_peer(threads)
        limit = result.ratio(threads, "memcpy")
        if own and peer:
            place = (result.layout, result.dtype, f"{result.chunk or '-'}", result.case)
            speed = (f"{own.median_s * 1e3:.2f}", f"{result.useful_bytes / own.median_s / 1e9:.2f}")
            ratio = f"{peer.median_s / own.median_s:.2f}x"
            table.add_row(*place, *speed, f"{limit:.2f}" if limit else "-", peer.title, ratio)
    console.print(table)
