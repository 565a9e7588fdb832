"""Goals: what was asked for, beside what was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.harness.findings import Finding
from bench.loading.contender import OWN, OWN_CACHE, SINGLE, WHOLE, WORKERS
from bench.loading.results import Result, Run

_MAIN = "hdf5-gzip"
"""The case of which most is asked."""


def findings(results: Sequence[Result]) -> list[Finding]:
    """Return all goals whose contenders took part."""
    cases = list(dict.fromkeys(result.case.name for result in results))
    found = []
    for name in cases:
        rows = {result.contender.name: result for result in results if result.case.name == name}
        own, cached = rows.get(OWN), rows.get(OWN_CACHE)
        peers = [row for row in rows.values() if row.contender.is_peer]
        wanted = 3.0 if name == _MAIN else 1.0
        if own is not None:
            readers = [row for row in peers if not row.contender.keeps_blocks]
            found += _faster(name, own, readers, wanted, "later epochs", lambda run: run.later_rate)
        if cached is not None:
            keepers = [row for row in peers if row.contender.keeps_blocks]
            found += _faster(name, cached, keepers, 1.0, "all epochs", lambda run: run.rate)
        for other in (WORKERS, WHOLE):
            if own is not None and other in rows:
                memory = _ratios(own, rows[other], lambda run: run.held)
                found.append(Finding(f"{name}: memory beyond imports, to {other}", 0.5, is_least=False, figures=memory))
        if own is not None and SINGLE in rows:
            first = _ratios(own, rows[SINGLE], lambda run: run.first)
            found.append(Finding(f"{name}: first batch, to {SINGLE}", 1.0, is_least=False, figures=first))
        if own is not None and own.runs[0].account.steps:
            pauses = tuple(run.pause for run in own.runs)
            found.append(
                Finding(f"{name}: 99th percentile of steps, to the median", 2.0, is_least=False, figures=pauses)
            )
    return found


def other_voxels(results: Sequence[Result]) -> list[str]:
    """Return the contenders whose batches held other voxels than most of a case's did, as text."""
    wrong = []
    for name in dict.fromkeys(result.case.name for result in results):
        rows = [result for result in results if result.case.name == name]
        streams = [stream for row in rows for stream in row.voxels]
        most = max(streams, key=streams.count, default=())
        wrong += [f"{row.contender.name}, {name}" for row in rows if row.voxels != {most}]
    return wrong


def _faster(
    case: str, own: Result, peers: Sequence[Result], wanted: float, when: str, rate: Callable[[Run], float]
) -> list[Finding]:
    """Return how many times faster than the fastest peer; cores are the same, so it is by core as well."""
    if not peers:
        return []
    best = max(peers, key=lambda peer: peer.median(rate))
    name = f"{case}: {own.contender.name} times faster than {best.contender.name}, {when}"
    return [Finding(name, wanted, is_least=True, figures=_ratios(own, best, rate))]


def _ratios(own: Result, other: Result, figure: Callable[[Run], float]) -> tuple[float, ...]:
    """Return the ratio of each round: what else the machine did in it slowed both."""
    return tuple(figure(mine) / figure(theirs) for mine, theirs in zip(own.runs, other.runs, strict=True))
