"""Coalesce: many byte ranges of one object become few requests; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GAP_BYTES = 2**20
"""Unwanted bytes that a request may carry between two wanted ranges. At 100 MB/s they take 10 ms, which is no more
than the round trip of a request of their own."""
REQUEST_BYTES = 2**24
"""Longest request that several ranges share. At 100 MB/s it takes 0.2 s: against that a round trip is nothing, and
longer ones would only keep the other connections idle."""

Range = tuple[int, int]
"""First byte, and the one behind the last."""


@dataclass(frozen=True, slots=True)
class Run:
    """One request, and the ranges that lie in it."""

    start: int
    """First byte."""
    stop: int
    """The one behind the last."""
    members: tuple[int, ...]
    """Which of the ranges it serves, by their numbers, in the order of their first bytes."""


def coalesce(ranges: Sequence[Range], *, gap: int = GAP_BYTES, limit: int = REQUEST_BYTES) -> list[Run]:
    """Return the requests that serve `ranges`, each of which lies whole in one of them.

    Parameters
    ----------
    ranges
        Of one object, in any order; they may overlap.
    gap
        Bytes between neighbours that are fetched along with them.
    limit
        Bytes of a request, unless one range alone is longer.

    >>> coalesce([(0, 4), (90, 96), (6, 9)], gap=2, limit=100)
    [Run(start=0, stop=9, members=(0, 2)), Run(start=90, stop=96, members=(1,))]
    """
    runs: list[Run] = []
    members: list[int] = []
    start = stop = 0
    for number in sorted(range(len(ranges)), key=lambda number: ranges[number]):
        first, last = ranges[number]
        if members and first - stop <= gap and max(stop, last) - start <= limit:
            stop = max(stop, last)
            members.append(number)
            continue
        if members:
            runs.append(Run(start, stop, tuple(members)))
        start, stop, members = first, last, [number]
    if members:
        runs.append(Run(start, stop, tuple(members)))
    return runs
