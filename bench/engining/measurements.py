"""Measurements: what steps take in one process and on ranks that share a sample, in seconds, in bytes, by operator."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from bench.engining.messages import received_bytes
from bench.engining.rounds import Kind, Pace, Rounds, Trial, milliseconds, run_rounds
from bench.engining.step_profile import KINDS
from bench.engining.world import ALL_TO_ALL, NONE, P2P, PLAIN, SHARD, Way, Worlds
from bench.harness.findings import Finding, Outcome, Sheet, at_least, at_most
from voxload.benchmark.measure.turns import Bystanders, await_quiet

ONE_RANK = {"cpu": 1.03, "cuda": 1.02}
"""Most times of plain torch's step, by device."""
TWO_RANKS = 1.7
"""Least times the speed of one process."""
_ROOM = 1.1
"""Most times the least that is possible."""
_WHAT = ("saved", "peak")
_PLAIN, _SHARD, _ENGINE = "plain torch", "shard(model, grid): the model itself", "through the engine"
_ONE, _PART, _TOGETHER = "one process, plain torch", "a rank's part, the other core idle", "both ranks at once"
_NO_MESSAGES, _TWO = "and gradients summed", "and messages: two ranks"
_MIB = 1 << 20


def one_rank(worlds: Worlds, pace: Pace) -> Outcome:
    """Time forward and backward passes in one process, with and without the engine."""
    trials = (
        Trial(_PLAIN, 1, Way(PLAIN), updates=False),
        Trial(_SHARD, 1, Way(SHARD), updates=False),
        Trial(_ENGINE, 1, Way(NONE), updates=False),
    )
    found = run_rounds(worlds, trials, pace)
    wanted = ONE_RANK[worlds.device]
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
    return (
        f"{pace.rounds} rounds, medians of the shortest of {pace.steps} steps; cpu: means, the busiest rank's threads"
    )


def _times(found: Rounds, name: str) -> tuple[str, ...]:
    """Return a row with times, and how many times longer than plain torch."""
    return (
        name,
        milliseconds(found.median(name)),
        milliseconds(found.median(name, "cpu")),
        _middle(found.ratios(name, _PLAIN)),
        _middle(found.ratios(name, _PLAIN, "cpu")),
    )


def _speeds(found: Rounds, name: str) -> tuple[str, ...]:
    """Return a row with times, and how many times faster than one process."""
    return (
        name,
        milliseconds(found.median(name)),
        milliseconds(found.median(name, "cpu")),
        _middle(found.ratios(_ONE, name)),
        _middle(found.ratios(_ONE, name, "cpu")),
        milliseconds(found.median(name, "shortest_wait")),
        milliseconds(found.median(name, "longest_wait")),
    )


def _middle(ratios: tuple[float, ...]) -> str:
    return f"{np.median(ratios):.3f}"


def memory(worlds: Worlds, pace: Pace, kind: Kind) -> Outcome:
    """Weigh the activations of a step in one process, and of ranks that share a sample."""
    one = worlds.of(1).ask("weigh", Way(PLAIN))[0]
    rows = [("one process", *(f"{one[what] / _MIB:.1f}" for what in _WHAT), "-", "1", "1", "-")]
    findings: list[Finding] = []
    document: dict[str, Any] = {"one process": one}
    for count in kind.ranks:
        halos = received_bytes(pace.size, count, itemsize=kind.itemsize)
        wanted = {what: _ROOM * (1 / count + max(halos) / one[what]) for what in _WHAT}
        for join in kind.joins:
            shares = worlds.of(count).ask("weigh", Way(P2P, join))
            most = {what: max(share[what] for share in shares) for what in _WHAT}
            ratios = {what: most[what] / one[what] for what in _WHAT}
            title = f"{count} ranks, {join}"
            findings += [
                at_most(f"memory: {title}: {what} to one process", wanted[what], (ratios[what],)) for what in _WHAT
            ]
            document[title] = {"ranks": shares, "received": halos}
            sizes = (most["saved"], most["peak"], max(halos))
            rows.append(
                (
                    title,
                    *(f"{size / _MIB:.1f}" for size in sizes),
                    *(f"{ratio:.3f}" for ratio in ratios.values()),
                    f"{wanted['saved']:.3f}",
                )
            )
        worlds.leave(count)
    sheet = Sheet(
        title=f"Memory of a step, {pace.size}^3: the rank that has most",
        caption="saved: distinct storages kept for the backward pass, without weights; peak: most bytes given out by "
        "torch's allocator in forward and backward pass beyond those before; weights' gradients are there by then; "
        f"halos: received in a forward pass, by the plan; allowed: {_ROOM:g} (1 / ranks + halos / saved)",
        columns=("", "saved MiB", "peak MiB", "halos MiB", "saved to one", "peak to one", "allowed"),
        rows=tuple(rows),
    )
    return Outcome(tuple(findings), (sheet,), document)


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
    sheets, document = [_profile(one | parts, pace)], one | parts
    for count in kind.ranks:
        ways = (Way(NONE, kind.joins[0]), *(Way(P2P, join) for join in kind.joins), Way(ALL_TO_ALL, kind.joins[0]))
        found = {f"{count} ranks, {way.exchange}, {way.join}": ask(count, way) for way in ways}
        worlds.leave(count)
        sheets.append(_profile(one | found, pace))
        document |= found
    return Outcome((), tuple(sheets), document, tuple(others))


def _profile(columns: dict[str, list[dict[str, float]]], pace: Pace) -> Sheet:
    means = {
        title: {kind: float(np.mean([answer[kind] for answer in answers])) for kind in KINDS}
        for title, answers in columns.items()
    }
    rows = [(kind, *(milliseconds(mean[kind]) for mean in means.values())) for kind in KINDS]
    rows.append(("all", *(milliseconds(sum(mean.values())) for mean in means.values())))
    return Sheet(
        title=f"Profile: milliseconds of a training step on a rank, {pace.size}^3",
        caption=f"{pace.steps} steps, means over the ranks; part of 2: the first rank's, without the other; operators' "
        "own times, without those that they call",
        columns=("", *columns),
        rows=tuple(rows),
    )
