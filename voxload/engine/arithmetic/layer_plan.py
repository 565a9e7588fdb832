"""LayerPlan: what one layer fetches for one cut of the volume, and one rank's part of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from voxload.engine.arithmetic.axis_plan import AxisPlan, Part
from voxload.engine.arithmetic.blocks import Blocks
from voxload.engine.arithmetic.windows import Interval


@dataclass(frozen=True, slots=True)
class Tile:
    """One rank's part of a LayerPlan."""

    parts: tuple[Part, ...]
    """What to fetch, in order."""
    origin: tuple[int, ...]
    """Global position of the first voxel of this rank's block of the input."""
    end: tuple[int, ...]
    """Global position behind its last voxel."""
    start: tuple[int, ...]
    """Global position of the first input that this rank has once all is fetched."""
    first: tuple[int, ...]
    """Global position of this rank's first output."""
    extents: tuple[int, ...]
    """Extents of this rank's block of the output; 0 where it owns none."""
    shape: tuple[int, ...]
    """Extents of the whole input."""
    result: tuple[int, ...]
    """Extents of the whole output."""


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """The plan of one layer, for all ranks of a sample group."""

    source: Blocks
    """Blocks of the input."""
    result: Blocks
    """Blocks of the output."""
    gathers: tuple[AxisPlan, ...] = ()
    """What is fetched, axis by axis, in order; corners arrive by way of the neighbours."""

    def at(self, coords: Sequence[int]) -> Tile:
        """Return the part of the rank at `coords` of its sample group."""
        box, own = self.result.box(coords), self.source.box(coords)
        start = list(own.start)
        for plan in self.gathers:
            start[plan.axis] = plan.needs[coords[plan.axis]][0]
        return Tile(
            parts=tuple(plan.at(coords[plan.axis]) for plan in self.gathers if not plan.idle),
            origin=own.start,
            end=own.stop,
            start=tuple(start),
            first=box.start,
            extents=box.shape,
            shape=self.source.shape,
            result=self.result.shape,
        )

    def needs(self, coords: Sequence[int]) -> tuple[Interval, ...]:
        """Return what the rank at `coords` reads of the input, per axis, in global positions."""
        box = self.source.box(coords)
        found = list(zip(box.start, box.stop, strict=True))
        for plan in self.gathers:
            found[plan.axis] = plan.needs[coords[plan.axis]]
        return tuple(found)
