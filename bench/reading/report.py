"""Report: the tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench.reading.goals import Goal
from bench.reading.results import Result, thread_counts

BUSY = 0.25
"""Cores that others may use before a ratio of two threads says little."""


def show_result(console: Console, result: Result, title: str) -> None:
    """Print the table of one sample and case."""
    low, high = result.measurement.resident
    state = f"{'cold' if result.case == 'cold' else 'warm'}, {low:.1%} to {high:.1%} of its pages in memory (mincore)"
    others = f"others used {result.measurement.bystanders:.2f} cores"
    stored = f"stored in {result.stored_share:.0%} of its bytes"
    times = next((len(row.seconds) for row in result.measurement.timings), 0)
    table = Table(
        title=f"{title}, {result.case}",
        caption=f"{result.useful_bytes / 2**20:.1f} MiB; {stored}; {state};\n{times} rounds; {others}",
        title_justify="left",
        caption_justify="left",
    )
    own = result.timings("voxload")
    table.add_column("contender")
    for name in ("median ms", "spread", "GB/s", *(f"voxload\n{row.threads}T faster" for row in own)):
        table.add_column(name, justify="right")
    for row in result.measurement.timings:
        ratios = [f"{row.median / mine.median:.2f}x" for mine in own]
        speed = f"{result.useful_bytes / row.median / 1e9:.2f}"
        style = "bold" if row.peer == "voxload" else ""
        table.add_row(row.title, f"{row.median * 1e3:.2f}", f"{row.spread:.0%}", speed, *ratios, style=style)
    for title_ in result.measurement.wrong:
        table.add_row(title_, "WRONG RESULT", style="bold red")
    console.print(table)


def show_goals(console: Console, goals: Sequence[Goal], results: Sequence[Result]) -> None:
    """Print what was asked for beside what was measured."""
    pairs: list[tuple[str, int | None]] = list({(result.dtype, result.chunk) for result in results if result.chunk})
    pairs = sorted(pairs or {(result.dtype, None) for result in results}, key=_order)
    table = Table(
        title="What was asked for",
        caption=f"< less than asked; * others used {BUSY:.2f} cores or more meanwhile: run it again",
        title_justify="left",
        caption_justify="left",
    )
    for name in ("case", "threads", "times faster than"):
        table.add_column(name)
    table.add_column("asked", justify="right")
    for dtype, chunk in pairs:
        table.add_column(f"{dtype}\n{chunk}^3" if chunk else dtype, justify="right")
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
    signs = ("" if is_met else " <") + (" *" if result.measurement.bystanders >= BUSY else "")
    return f"[{'green' if is_met else 'red'}]{ratio:.2f}{signs}[/]"


def _order(pair: tuple[str, int | None]) -> tuple[bool, str, int]:
    """Put the counts first: the ratios were set for them."""
    dtype, chunk = pair
    return dtype != "int16", dtype, chunk or 0


def show_overview(console: Console, results: Sequence[Result]) -> None:
    """Print one line for each table: voxload's time and its ratio to the fastest peer and to memcpy."""
    threads = max(thread_counts(results), default=1)
    table = Table(title=f"All cases, voxload with {threads} threads", title_justify="left")
    for name in ("format", "dtype", "chunk", "case"):
        table.add_column(name)
    for name in ("median ms", "GB/s", "memcpy takes"):
        table.add_column(name, justify="right")
    table.add_column("fastest peer")
    table.add_column("faster", justify="right")
    for result in results:
        own, peer = result.own(threads), result.fastest_peer(threads)
        limit = result.ratio(threads, "memcpy")
        if own and peer:
            table.add_row(
                result.layout,
                result.dtype,
                f"{result.chunk or '-'}",
                result.case,
                f"{own.median * 1e3:.2f}",
                f"{result.useful_bytes / own.median / 1e9:.2f}",
                f"{limit:.2f}" if limit else "-",
                peer.title,
                f"{peer.median / own.median:.2f}x",
            )
    console.print(table)
