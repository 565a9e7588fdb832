"""Report: the tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench.harness.findings import Finding
from bench.loading.contender import WORKERS
from bench.loading.results import Result

_MIB = 1 << 20


def show_results(console: Console, results: Sequence[Result], *, workers: int) -> None:
    """Print one line for each contender."""
    first = results[0]
    rounds = max(len(result.runs) for result in results)
    table = Table(
        title=first.case.title,
        caption=f"{rounds} rounds, medians; first: seconds from making the data set to the first batch; all: from "
        "there over all epochs; later: from epoch 2 on; spread: half the range of that over the median; memory: peak "
        "of all processes, and that beyond what was held once all was imported; p99/median: steps with a consumer that "
        "computes",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("contender", no_wrap=True)
    right = ("first s", "all 1/s", "later 1/s", "spread", "MB/s", "memory MiB", "beyond", "p99/median")
    for name in right:
        table.add_column(name, justify="right")
    for result in results:
        rate = result.median(lambda run: run.later_rate)
        batch = result.case.batch * result.case.block_bytes
        steps = result.runs[0].account.steps
        table.add_row(
            result.contender.title.format(n=workers),
            f"{result.median(lambda run: run.first):.3f}",
            f"{result.median(lambda run: run.rate):.1f}",
            f"{rate:.1f}",
            f"{result.spread(lambda run: run.later_rate):.0%}",
            f"{rate * batch / 1e6:.0f}",
            f"{result.median(lambda run: run.weight.peak) / _MIB:.0f}",
            f"{result.median(lambda run: run.held) / _MIB:.0f}",
            f"{result.median(lambda run: run.pause):.2f}" if steps else "-",
        )
    console.print(table)


def show_findings(console: Console, found: Sequence[Finding], wrong: Sequence[str]) -> None:
    """Print what was asked for beside what was measured."""
    table = Table(
        title="What was asked for",
        caption=f"median (least to most of all rounds); memory and the first batch are compared as shares of those of "
        f"torch's loader, {WORKERS} and with no workers",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("what")
    for name in ("asked", "measured", ""):
        table.add_column(name, justify="right")
    for each in found:
        color = "green" if each.is_met else "red"
        table.add_row(
            each.name,
            f"{'>=' if each.is_least else '<='} {each.wanted:.1f}",
            f"{each.median:.2f} ({min(each.figures):.2f} to {max(each.figures):.2f})",
            f"[{color}]{'ok' if each.is_met else 'short'}[/]",
        )
    console.print(table)
    for line in wrong:
        console.print(f"[bold red]other voxels:[/] {line}", highlight=False)
