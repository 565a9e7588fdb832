"""Profiled: what the operators of a training step take, in one process and on ranks that share a sample."""

from __future__ import annotations

import time

import numpy as np

from bench.engining.job import ALL_TO_ALL, NONE, P2P, PLAIN, Way
from bench.engining.launch import Worlds
from bench.engining.outcome import Outcome, Sheet, milliseconds
from bench.engining.rounds import Kind, Pace
from bench.engining.shares import kinds
from voxload.benchmark.measure.turns import Bystanders, await_quiet


def profiled(worlds: Worlds, pace: Pace, kind: Kind) -> Outcome:
    """Profile steps of one process, of a part of two without the other, and of ranks with each exchange."""
    others: list[float] = []
    end = time.monotonic() + pace.patience

    def ask(count: int, way: Way) -> list[dict[str, float]]:
        world = worlds.of(count)
        await_quiet(end)
        bystanders = Bystanders()
        answers = world.ask("profile", way, steps=pace.steps, is_ddp=count > 1)
        others.append(bystanders.cores())
        return answers

    one = {"one process": ask(1, Way(PLAIN))}
    parts = {f"part of 2, {join}": ask(1, Way(NONE, join, of=2)) for join in kind.joins}
    sheets, document = [_sheet(one | parts, pace)], one | parts
    for count in kind.ranks:
        ways = (Way(NONE, kind.joins[0]), *(Way(P2P, join) for join in kind.joins), Way(ALL_TO_ALL, kind.joins[0]))
        found = {f"{count} ranks, {way.exchange}, {way.join}": ask(count, way) for way in ways}
        worlds.leave(count)
        sheets.append(_sheet(one | found, pace))
        document |= found
    return Outcome((), tuple(sheets), document, tuple(others))


def _sheet(columns: dict[str, list[dict[str, float]]], pace: Pace) -> Sheet:
    means = {
        title: {kind: float(np.mean([answer[kind] for answer in answers])) for kind in kinds()}
        for title, answers in columns.items()
    }
    rows = [(kind, *(milliseconds(mean[kind]) for mean in means.values())) for kind in kinds()]
    rows.append(("all", *(milliseconds(sum(mean.values())) for mean in means.values())))
    return Sheet(
        title=f"Profile: milliseconds of a training step on a rank, {pace.size}^3",
        caption=f"{pace.steps} steps, means over the ranks; part of 2: the first rank's, without the other; operators' "
        "own times, without those that they call",
        columns=("", *columns),
        rows=tuple(rows),
    )
