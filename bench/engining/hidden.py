"""Hidden: what a step takes beyond one whose messages are free, and how much of their own time that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.engining.job import ALL_TO_ALL, NONE, P2P, Way
from bench.engining.launch import Worlds
from bench.engining.outcome import Outcome, Sheet, milliseconds
from bench.engining.planned import received_bytes
from bench.engining.rounds import Kind, Pace, Rounds, Trial, longest_wait, run_rounds, shortest_wait

_REPEATS = 10
"""Times that the messages of a step are sent in a row, to time them alone."""
_EXCHANGES = {NONE: "NoExchange", P2P: "P2P", ALL_TO_ALL: "AllToAll"}
_UNRESOLVED = "unresolved"
"""What the table says instead of a share that noise alone would make."""
_FEW = 3
"""Fewer rounds tell nothing of how far they are apart."""
_KIB = 1 << 10


def hidden(worlds: Worlds, pace: Pace, kind: Kind) -> Outcome:
    """Time training steps with each exchange and way of joining, and the messages alone."""
    sheets: list[Sheet] = []
    document: dict[str, Any] = {}
    others: list[float] = []
    wrong: list[str] = []
    ways = [*(Way(P2P, join) for join in kind.joins), Way(ALL_TO_ALL, kind.joins[0])]
    for count in kind.ranks:
        trials = [Trial(_title(way), count, way, is_ddp=True) for way in (*_ceilings(kind), *ways)]
        found = run_rounds(worlds, trials, pace)
        alone = {_title(way): worlds.of(count).ask("serial", way, repeats=_REPEATS) for way in ways}
        worlds.leave(count)
        planned = received_bytes(pace.size, count, itemsize=kind.itemsize)
        for title, answers in alone.items():
            received = [answer["received"] for answer in answers]
            if received != planned:
                wrong.append(f"{title}, {count} ranks: received {received} bytes, planned {planned}")
        rows = [_row(found, way, alone.get(_title(way), [])) for way in (*_ceilings(kind), *ways)]
        sheets.append(_sheet(rows, pace, count))
        document[str(count)] = found.document() | {"alone": alone, "planned": planned}
        others += found.turns.others
        wrong += found.wrong
    return Outcome((), tuple(sheets), document, tuple(others), tuple(wrong))


def _title(way: Way) -> str:
    return f"{_EXCHANGES[way.exchange]}, {way.join}"


def _ceilings(kind: Kind) -> list[Way]:
    return [Way(NONE, join) for join in kind.joins]


def _row(found: Rounds, way: Way, alone: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Return a step's times beside the same step's without messages."""
    name, ceiling = _title(way), _title(Way(NONE, way.join))
    if not alone:
        return (name, milliseconds(found.median(name)), *("-",) * 7)
    serial = max(answer["seconds"] for answer in alone)
    results = found.turns.results
    beyond = [one.seconds - free.seconds for one, free in zip(results[name], results[ceiling], strict=True)]
    exposed = 1 - 1 / np.array(found.ratios(name, ceiling))
    return (
        name,
        milliseconds(found.median(name)),
        f"{np.median(exposed):.2%}",
        f"{exposed.min():.2%} to {exposed.max():.2%}",
        milliseconds(found.median(name, shortest_wait)),
        milliseconds(found.median(name, longest_wait)),
        milliseconds(serial),
        f"{max(answer['received'] for answer in alone) / _KIB:.0f}",
        _share(beyond, serial),
    )


def _sheet(rows: Sequence[tuple[str, ...]], pace: Pace, ranks: int) -> Sheet:
    return Sheet(
        title=f"Messages, {ranks} ranks: a training step, {pace.size}^3",
        caption=f"{pace.rounds} rounds of {pace.steps} steps in a row, medians; NoExchange, the ceiling: messages do "
        "not travel; exposed: 1 - ceiling / step, with its range; exchange: time in it, of the rank that waits least "
        "and most; alone: the same messages one after the other without a step; KiB: received in a forward pass; "
        f"hidden: 1 - (step - ceiling) / alone, or {_UNRESOLVED} where rounds differ by more than the messages take or "
        f"are fewer than {_FEW}",
        columns=("", "ms", "exposed", "from - to", "exchange ms", "to", "alone ms", "KiB", "hidden"),
        rows=tuple(rows),
    )


def _share(beyond: Sequence[float], serial: float) -> str:
    """Return the part of the messages' own time that steps did not take longer, from each round's difference."""
    is_doubtful = len(beyond) < _FEW or max(beyond) - min(beyond) > serial
    return _UNRESOLVED if is_doubtful else f"{1 - float(np.median(beyond)) / serial:.0%}"
