"""Run: what one contender did and held, once; and what the runs of a case come to, beside what was asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from bench.harness import script
from bench.harness.findings import Finding, Outcome, Sheet, at_least, at_most
from bench.loading.cases import MAIN, OWN, OWN_CACHE, SINGLE, WHOLE, WORKERS, Case, Contender
from voxload.benchmark.measure.record import Record
from voxload.benchmark.measure.turns import Turns

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Run:
    """One contender's epochs, once."""

    first: float
    """Seconds from building the loader to the first batch."""
    epochs: tuple[float, ...]
    """Seconds of each epoch flat out; the first begins where the loader is built."""
    batches: int
    """Of an epoch."""
    steps: tuple[float, ...]
    """Seconds of each step with a consumer that computes, from one request to the next, without the first."""
    base: int
    """Bytes that all processes held, together, when everything was imported and nothing was built."""
    peak: int
    """Most bytes that they held at any time."""
    wrong: tuple[str, ...] = ()
    """What was found where blocks were compared with the voxels that were generated; empty where all were right."""

    @property
    def rate(self) -> float:
        """Batches a second in all epochs, from the building of the loader on."""
        return self.batches * len(self.epochs) / sum(self.epochs)

    @property
    def later_rate(self) -> float:
        """Batches a second from the second epoch on."""
        return self.batches * len(self.epochs[1:]) / sum(self.epochs[1:])

    @property
    def held(self) -> int:
        """Bytes that loading took, beyond those held before."""
        return self.peak - self.base

    @property
    def pause(self) -> float | None:
        """The 99th percentile of the steps, over their median; None where no consumer computed."""
        return float(np.percentile(self.steps, 99) / np.median(self.steps)) if self.steps else None


def epoch_seconds(record: Record) -> tuple[float, ...]:
    """Return how long each epoch took; the first begins where the loader was built."""
    begin = record.epochs[0].steps.begin[0]
    return tuple(epoch.wall + (0.0 if number else begin) for number, epoch in enumerate(record.epochs))


def step_seconds(record: Record) -> tuple[float, ...]:
    """Return the time from each request for a batch to the next, over the ends of epochs, without the first."""
    begins = np.concatenate([epoch.steps.begin for epoch in record.epochs])
    return tuple(np.diff(begins)[1:].tolist())


Runs = Turns[Contender, Run]
"""Of all contenders of a case, in turns."""


def outcome(case: Case, runs: Runs, *, threads: int) -> Outcome:
    """Return what the runs of a case come to; `threads` is how many threads or processes contenders had."""
    return Outcome(
        findings=tuple(findings(case.name, runs)),
        sheets=(_sheet(case, runs, threads=threads),),
        document={
            "case": asdict(case),
            "contenders": {each.name: [script.document(run) for run in found] for each, found in runs.results.items()},
        },
        others=runs.others,
        wrong=tuple(other_voxels(case.name, runs)),
    )


def _sheet(case: Case, runs: Runs, *, threads: int) -> Sheet:
    """Return a line for each contender."""
    caption = (
        f"{len(runs.others)} rounds, medians; first: seconds from building the loader to the first batch; all: from "
        "building it on, over all epochs; later: from epoch 2 on; spread: half the range of that over the median; "
        "memory: peak of all processes, and that beyond what was held once all was imported; p99/median: steps with a "
        "consumer that computes"
    )
    columns = ("contender", "first s", "all 1/s", "later 1/s", "spread", "MB/s", "memory MiB", "beyond", "p99/median")
    lines = tuple((each.title.format(n=threads), *_cells(case, each, runs)) for each in runs.results)
    return Sheet(case.title, caption, columns, lines)


def _cells(case: Case, contender: Contender, runs: Runs) -> tuple[str, ...]:
    """Return a contender's medians as text."""

    def middle(figure: Callable[[Run], float]) -> float:
        return runs.figures(figure).median(contender)

    rates, pauses = [run.later_rate for run in runs.results[contender]], _pauses(runs, contender)
    rate = middle(lambda run: run.later_rate)
    return (
        f"{middle(lambda run: run.first):.3f}",
        f"{middle(lambda run: run.rate):.1f}",
        f"{rate:.1f}",
        f"{(max(rates) - min(rates)) / 2 / rate:.0%}",
        f"{rate * case.batch * case.block_bytes / 1e6:.0f}",
        f"{middle(lambda run: run.peak) / _MIB:.0f}",
        f"{middle(lambda run: run.held) / _MIB:.0f}",
        f"{np.median(pauses):.2f}" if pauses else "-",
    )


def findings(case: str, runs: Runs) -> list[Finding]:
    """Return the goals of a case whose contenders took part; cores are the same, so that speed is by core as well.

    Ratios are those of each round: what else the machine did in it slowed both.
    """
    field = {each.name: each for each in runs.results}
    found = []
    for name, when, rate, wanted in (
        (OWN, "later epochs", runs.figures(lambda run: run.later_rate), 3.0 if case == MAIN else 1.0),
        (OWN_CACHE, "all epochs", runs.figures(lambda run: run.rate), 1.0),
    ):
        own = field.get(name)
        peers = [each for each in runs.results if own and each.is_peer and each.keeps_blocks == own.keeps_blocks]
        if own and peers:
            best = max(peers, key=rate.median)
            ratios = rate.ratios(own, best)
            found.append(at_least(f"{case}: {name} times faster than {best.name}, {when}", wanted, ratios))
    for what, other, figure, wanted in (
        ("memory beyond imports", WORKERS, runs.figures(lambda run: run.held), 0.5),
        ("memory beyond imports", WHOLE, runs.figures(lambda run: run.held), 0.5),
        ("first batch", SINGLE, runs.figures(lambda run: run.first), 1.0),
    ):
        if OWN in field and other in field:
            ratios = figure.ratios(field[OWN], field[other])
            found.append(at_most(f"{case}: {what}, to {other}", wanted, ratios))
    pauses = _pauses(runs, field[OWN]) if OWN in field else ()
    if pauses:
        found.append(at_most(f"{case}: 99th percentile of steps, to the median", 2.0, pauses))
    return found


def other_voxels(case: str, runs: Runs) -> list[str]:
    """Return the contenders that gave other voxels than were generated, each with what was found first."""
    return [
        f"{contender.name}, {case}: {found.wrong[0]}"
        for contender, rounds in runs.results.items()
        for found in rounds
        if found.wrong
    ]


def _pauses(runs: Runs, contender: Contender) -> tuple[float, ...]:
    """Return the pause of each round; none where no consumer computed."""
    return tuple(run.pause for run in runs.results[contender] if run.pause is not None)
