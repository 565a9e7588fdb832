"""Report: the tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench.prefetching.goals import Finding
from bench.prefetching.results import Result


def show_results(console: Console, results: Sequence[Result], *, title: str, data_bytes: int) -> None:
    """Print one line for each contender."""
    rounds = max(len(result.runs) for result in results)
    others = max(result.bystanders for result in results)
    table = Table(
        title=title,
        caption=f"{rounds} rounds, medians; spread: half the range over the median; wait: time in next(), stall: that "
        f"without the ranks' comparing of samples, both from epoch 2 on; read: bytes of voxels that the server sent, "
        f"over those of the data set; others used up to {others:.2f} cores",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("contender", no_wrap=True)
    right = (
        "step ms",
        "seconds",
        "spread",
        "bound",
        "simulated",
        "epoch 1",
        "later",
        "wait",
        "stall",
        "read",
        "requests",
    )
    for name in right:
        table.add_column(name, justify="right")
    for result in results:
        later = result.epochs[1:]
        table.add_row(
            result.contender.name,
            f"{result.compute * 1e3:.0f}",
            f"{result.seconds:.2f}",
            f"{result.spread:.0%}",
            f"{result.forecast.bound:.2f}",
            f"{result.forecast.seconds:.2f}",
            f"{result.epochs[0]:.2f}",
            f"{sum(later) / len(later):.2f}" if later else "-",
            f"{result.wait:.1%}",
            "-" if result.contender.is_torch else f"{result.stall:.2%}",
            f"{result.data_bytes / data_bytes:.3f}",
            f"{result.requests}",
        )
    console.print(table)


def show_findings(console: Console, findings: Sequence[Finding]) -> None:
    """Print what was asked for beside what was measured."""
    table = Table(
        title="What was asked for",
        caption="median (least to most of all rounds)",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("what")
    table.add_column("asked", justify="right")
    table.add_column("measured", justify="right")
    for finding in findings:
        table.add_row(finding.name, finding.wanted, f"[{'green' if finding.is_met else 'red'}]{finding.text}[/]")
    console.print(table)
