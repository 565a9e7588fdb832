"""AxisPlan: who sends which positions to whom along one axis of the grid; pure integer arithmetic.

AxisPlan: who sends which positions to whom along one axis of the grid; pure integer arithmetic. Every rank computes
the plan of its whole line from the same numbers, so all sides know every message before the first is sent: nothing is
negotiated, and nothing can be waited for that nobody sends.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from threading import Lock

from voxload.engine.arithmetic.windows import Interval
from voxload.geometry import SPATIAL_AXES


class PaddingMode(enum.Enum):
    """The padding modes of torch, one axis at a time; the names are torch's own."""

    CONSTANT = "zeros"
    """A fixed value."""
    CIRCULAR = "circular"
    """The volume again, from its other side."""
    REFLECT = "reflect"
    """The volume mirrored at its outermost voxel, which is not repeated."""
    REPLICATE = "replicate"
    """The outermost voxel, over and over."""

    def reach(self, extent: int) -> int | None:
        """Return how many positions beyond an axis of `extent` voxels torch can fill; None for any number."""
        if self is PaddingMode.CIRCULAR:
            return extent
        return extent - 1 if self is PaddingMode.REFLECT else None

    def source(self, position: int, extent: int) -> int | None:
        """Return the voxel that stands at `position`, which may lie outside; None where there is none.

        >>> [Outside.REFLECT.source(position, 4) for position in (-2, -1, 0, 3, 4, 5)]
        [2, 1, 0, 3, 2, 1]
        """
        if 0 <= position < extent:
            return position
        if self is PaddingMode.CONSTANT:
            return None
        if self is PaddingMode.CIRCULAR:
            return position % extent
        if self is PaddingMode.REPLICATE:
            return 0 if position < 0 else extent - 1
        period = max(2 * (extent - 1), 1)
        folded = position % period
        return min(folded, period - folded)


FIRST_AXIS = 2
"""Dimension of the first spatial axis in a (B, C, D, H, W) tensor."""


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring positions that one rank owns and one rank (perhaps the same) needs."""

    owner: int
    """Place on the line of the rank that has them."""
    user: int
    """Place on the line of the rank that needs them."""
    source: int
    """Where they start in the owner's block."""
    target: int
    """Where they start in what the user gathers."""
    length: int
    """How many there are; 1 or more."""


Message = tuple[int, tuple[Run, ...]]
"""The other rank's place on the line, and the runs that travel, in the order in which they are packed."""


@dataclass(frozen=True, slots=True)
class Part:
    """One rank's part of an AxisPlan, ready to be carried out."""

    axis: int
    """Spatial axis: 0, 1 or 2 for d, h, w."""
    owned: int
    """Extent of this rank's block along the axis."""
    needed: int
    """Extent of what this rank gathers along the axis."""
    here: tuple[Run, ...]
    """Positions that this rank both owns and needs."""
    outgoing: tuple[Message, ...]
    """What other ranks need from this one."""
    incoming: tuple[Message, ...]
    """What this rank needs from others."""
    gaps: tuple[Interval, ...]
    """Gathered positions that lie outside the volume, to be filled."""
    dim: int
    """Dimension of the tensor along which they lie."""
    number: int = field(default=-1, compare=False)
    """Its number in this process: operators of torch find it by that. Equal parts have one number."""

    @property
    def received(self) -> int:
        """Positions that come from other ranks."""
        return sum(run.length for _, runs in self.incoming for run in runs)


@dataclass(frozen=True, slots=True)
class AxisPlan:
    """The gather of one interval per rank along one line of the grid.

    >>> print(plan_axis(0, (0, 4, 8), ((-1, 5), (3, 9)), Outside.CONSTANT))
    d: 0 has 0:4 needs -1:5, 1 has 4:8 needs 3:9; 1->0 4:5, 0->1 3:4
    """

    axis: int
    """Spatial axis: 0, 1 or 2 for d, h, w."""
    bounds: tuple[int, ...]
    """Bounds of the blocks along the axis."""
    needs: tuple[Interval, ...]
    """What each rank of the line gathers, in global positions."""
    outside: PaddingMode
    """What lies outside the volume."""
    runs: tuple[Run, ...]
    """Everything that moves, ordered by user and then by target."""

    @property
    def idle(self) -> bool:
        """Whether every rank needs just what it owns, so that there is nothing to do."""
        return self.needs == tuple(zip(self.bounds[:-1], self.bounds[1:], strict=True))

    def at(self, place: int, *, dim: int | None = None) -> Part:
        """Return the part of the rank at `place` on the line.

        `dim` is the dimension of the tensor along which positions lie; by default that of the axis of a volume,
        (B, C, D, H, W).
        """
        lo, hi = self.needs[place]
        mine = [run for run in self.runs if run.user == place]
        part = Part(
            axis=self.axis,
            owned=self.bounds[place + 1] - self.bounds[place],
            needed=hi - lo,
            here=tuple(run for run in mine if run.owner == place),
            outgoing=_messages([run for run in self.runs if run.owner == place != run.user], to_user=True),
            incoming=_messages([run for run in mine if run.owner != place], to_user=False),
            gaps=_gaps(mine, hi - lo),
            dim=FIRST_AXIS + self.axis if dim is None else dim,
        )
        return numbered(part)

    def __str__(self) -> str:
        ranks = ", ".join(
            f"{place} has {self.bounds[place]}:{self.bounds[place + 1]} needs {lo}:{hi}"
            for place, (lo, hi) in enumerate(self.needs)
        )
        moves = ", ".join(
            f"{run.owner}->{run.user} {first}:{first + run.length}"
            for run in self.runs
            if run.owner != run.user
            for first in (self.bounds[run.owner] + run.source,)
        )
        return f"{SPATIAL_AXES[self.axis].lower()}: {ranks}; {moves or 'no messages'}"


_LOCK = Lock()
_PARTS: list[Part] = []
_NUMBERS: dict[Part, int] = {}


def part_of(number: int) -> Part:
    """Return the part that has this number."""
    return _PARTS[number]


def numbered(part: Part) -> Part:
    """Return the part of this process that equals `part`. Thread-safe."""
    with _LOCK:
        number = _NUMBERS.get(part)
        if number is None:
            number = len(_PARTS)
            part = replace(part, number=number)
            _PARTS.append(part)
            _NUMBERS[part] = number
        return _PARTS[number]


@lru_cache(maxsize=4096)
def plan_axis(axis: int, bounds: tuple[int, ...], needs: tuple[Interval, ...], outside: PaddingMode) -> AxisPlan:
    """Return the plan by which each rank of a line gets the interval that it needs.

    Parameters
    ----------
    axis
        Spatial axis: 0, 1 or 2.
    bounds
        Bounds of the blocks; blocks may be empty.
    needs
        One interval per rank: it may reach over several blocks, leave the volume, or be smaller than the block.
    outside
        What lies outside: a constant (left to the caller to fill), or voxels of the volume itself.
    """
    runs = []
    for user, (lo, hi) in enumerate(needs):
        for source, target, count in _stretches(lo, hi, bounds[-1], outside):
            position, place, stop = source, target, source + count
            while position < stop:
                owner = bisect_right(bounds, position) - 1
                length = min(bounds[owner + 1], stop) - position
                runs.append(Run(owner, user, position - bounds[owner], place, length))
                position, place = position + length, place + length
    return AxisPlan(axis, bounds, needs, outside, tuple(runs))


def _stretches(lo: int, hi: int, extent: int, outside: PaddingMode) -> Iterator[tuple[int, int, int]]:
    """Yield (first voxel, place in the interval, number) of rising neighbours that fill ``[lo, hi)`` in order."""
    start = target = count = 0
    for position in range(lo, hi):
        source = outside.source(position, extent)
        if count and source == start + count:
            count += 1
            continue
        if count:
            yield start, target, count
        count = 0
        if source is not None:
            start, target, count = source, position - lo, 1
    if count:
        yield start, target, count


def _messages(runs: list[Run], *, to_user: bool) -> tuple[Message, ...]:
    """Group `runs` by the other rank; both sides keep the plan's order, so they pack and unpack alike."""
    grouped: dict[int, list[Run]] = {}
    for run in runs:
        grouped.setdefault(run.user if to_user else run.owner, []).append(run)
    return tuple((peer, tuple(grouped[peer])) for peer in sorted(grouped))


def _gaps(runs: list[Run], extent: int) -> tuple[Interval, ...]:
    """Return the parts of ``[0, extent)`` that no run covers; runs are ordered by target."""
    found = []
    position = 0
    for run in runs:
        if run.target > position:
            found.append((position, run.target))
        position = run.target + run.length
    if position < extent:
        found.append((position, extent))
    return tuple(found)
