"""Speed: what the engine costs on one rank, and what two ranks gain."""

from __future__ import annotations

import numpy as np

from bench.engining.job import NONE, P2P, PLAIN, SHARD, Way
from bench.engining.launch import Worlds
from bench.engining.outcome import Outcome, Sheet, milliseconds
from bench.engining.rounds import Pace, Rounds, Trial, cpu, longest_wait, run_rounds, shortest_wait
from bench.harness.findings import Finding, at_least, at_most

ONE_RANK = {"cpu": 1.03, "cuda": 1.02}
"""Most times of plain torch's step, by device."""
TWO_RANKS = 1.7
"""Least times the speed of one process."""
_PLAIN, _SHARD, _ENGINE = "plain torch", "shard(model, grid): the model itself", "through the engine"
_ONE, _PART, _TOGETHER = "one process, plain torch", "a rank's part, the other core idle", "both ranks at once"
_NO_MESSAGES, _TWO = "and gradients summed", "and messages: two ranks"


def one_rank(worlds: Worlds, pace: Pace, *, wanted: float) -> Outcome:
    """Time forward and backward passes in one process, with and without the engine."""
    trials = (
        Trial(_PLAIN, 1, Way(PLAIN), updates=False),
        Trial(_SHARD, 1, Way(SHARD), updates=False),
        Trial(_ENGINE, 1, Way(NONE), updates=False),
    )
    found = run_rounds(worlds, trials, pace)
    findings = tuple(at_most(f"one rank: {name}", wanted, found.ratios(name, _PLAIN)) for name in (_SHARD, _ENGINE))
    sheet = Sheet(
        title=f"One rank: forward and backward, {pace.size}^3",
        caption=_caption(pace) + "; the model itself shows how far equal things are apart",
        columns=("", "ms", "cpu ms", "to plain", "by cpu"),
        rows=tuple(_times(found, trial.name) for trial in trials),
    )
    return _outcome(found, findings, sheet)


def two_ranks(worlds: Worlds, pace: Pace, join: str) -> Outcome:
    """Time training steps in one process and on two ranks, and two ranks with ever less of what they do."""
    trials = (
        Trial(_ONE, 1, Way(PLAIN)),
        Trial(_PART, 1, Way(NONE, join, of=2)),
        Trial(_TOGETHER, 2, Way(NONE, join)),
        Trial(_NO_MESSAGES, 2, Way(NONE, join), is_ddp=True),
        Trial(_TWO, 2, Way(P2P, join), is_ddp=True),
    )
    found = run_rounds(worlds, trials, pace)
    findings = (at_least("two ranks: speed to one process", TWO_RANKS, found.ratios(_ONE, _TWO)),)
    sheet = Sheet(
        title=f"Two ranks, join={join}: a training step, {pace.size}^3, each line with all that is above it",
        caption=_caption(pace) + "; speed: to one process; exchange: time in it, of the rank that waits least and most",
        columns=("", "ms", "cpu ms", "speed", "by cpu", "exchange ms", "to"),
        rows=tuple(_speeds(found, trial.name) for trial in trials),
    )
    return _outcome(found, findings, sheet)


def _outcome(found: Rounds, findings: tuple[Finding, ...], sheet: Sheet) -> Outcome:
    return Outcome(findings, (sheet,), found.document(), found.turns.others, found.wrong)


def _caption(pace: Pace) -> str:
    return f"{pace.rounds} rounds of {pace.steps} steps in a row, medians; cpu: the busiest rank's threads"


def _times(found: Rounds, name: str) -> tuple[str, ...]:
    """Return a row with times, and how many times longer than plain torch."""
    return (
        name,
        milliseconds(found.median(name)),
        milliseconds(found.median(name, cpu)),
        f"{np.median(found.ratios(name, _PLAIN)):.3f}",
        f"{np.median(found.ratios(name, _PLAIN, cpu)):.3f}",
    )


def _speeds(found: Rounds, name: str) -> tuple[str, ...]:
    """Return a row with times, and how many times faster than one process."""
    return (
        name,
        milliseconds(found.median(name)),
        milliseconds(found.median(name, cpu)),
        f"{np.median(found.ratios(_ONE, name)):.3f}",
        f"{np.median(found.ratios(_ONE, name, cpu)):.3f}",
        milliseconds(found.median(name, shortest_wait)),
        milliseconds(found.median(name, longest_wait)),
    )
