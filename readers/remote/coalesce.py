"""Coalescing: many byte ranges become few requests, in groups that are sent one after another; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from voxload.readers.pasting.pasteplan import Place

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


GROUP_BYTES = 2**26
"""Chunks that are planned together. Four such groups fit the budget of bytes in flight: one is being decoded while the
next ones arrive."""
_WASTE = 2
"""A group carries at most as many unwanted bytes between its chunks as it may hold wanted ones."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk's bytes."""

    place: Place
    """Which chunk."""
    key: str
    """The object that holds it."""
    start: int
    """First byte in the object."""
    stop: int
    """The one behind the last."""


@dataclass(frozen=True, slots=True)
class Get:
    """Bytes of an object that are fetched at once."""

    key: str
    """The object."""
    start: int
    """First byte."""
    stop: int
    """The one behind the last."""
    pieces: tuple[Piece, ...]
    """The chunks in it."""

    @property
    def size(self) -> int:
        """Bytes that arrive, the unwanted ones too."""
        return self.stop - self.start


def plan_requests(pieces: Sequence[Piece], *, group: int = GROUP_BYTES) -> list[tuple[Get, ...]]:
    """Return groups of requests for `pieces`, which come in the order of their use.

    A group's chunks are used before those of the next one, so that its bytes can be let go then. Requests share bytes
    within a group only: one that also held a chunk of a much later group would be held all that time.

    Parameters
    ----------
    pieces
        In the order of their use.
    group
        Bytes of the pieces of a group, unless one alone is longer. With the bytes between them, its requests have at
        most twice as many.
    """
    found = []
    for members in _groups(pieces, group):
        found += _requests(members, _WASTE * group)
    return found


def _groups(pieces: Sequence[Piece], limit: int) -> Iterator[list[Piece]]:
    members: list[Piece] = []
    size = 0
    for piece in pieces:
        length = piece.stop - piece.start
        if members and size + length > limit:
            yield members
            members, size = [], 0
        members.append(piece)
        size += length
    if members:
        yield members


def _requests(members: list[Piece], limit: int) -> list[tuple[Get, ...]]:
    """Return the requests of one group, or of its halves where what lies between its chunks makes them too long."""
    by_key: dict[str, list[Piece]] = {}
    for piece in members:
        by_key.setdefault(piece.key, []).append(piece)
    made: list[Get] = []
    for key, inside in by_key.items():
        runs = coalesce([(piece.start, piece.stop) for piece in inside])
        made += [Get(key, run.start, run.stop, tuple(inside[number] for number in run.members)) for run in runs]
    if len(members) > 1 and sum(request.size for request in made) > limit:
        half = len(members) // 2
        return _requests(members[:half], limit) + _requests(members[half:], limit)
    # In the order of use: what is wanted first is asked for first.
    first = {piece.place: number for number, piece in enumerate(members)}
    made.sort(key=lambda request: min(first[piece.place] for piece in request.pieces))
    return [tuple(made)]
