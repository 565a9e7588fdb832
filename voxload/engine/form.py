"""Form: the contract of a layer's split form, its plan for one cut of the volume, and one rank's part of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from voxload.engine.blocks import Blocks
from voxload.engine.passage import Passage
from voxload.engine.plan import AxisPlan, Part
from voxload.engine.reach import Interval


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


class Form(Protocol):
    """The split form of a layer: a plan from pure integers, and a run that carries out one rank's part of it.

    Frozen; shared by all threads.
    """

    @property
    def kind(self) -> str:
        """Name of the layer's class, for tables and errors."""

    def plan(self, blocks: Blocks, wanted: Blocks | None, *, min_width: int) -> LayerPlan:
        """Return the plan for an input cut into `blocks`.

        Parameters
        ----------
        blocks
            Cut of the input.
        wanted
            Cut of the output that the layers behind would like best, or None.
        min_width
            An axis whose blocks would have fewer voxels than this goes to fewer ranks.

        Raises
        ------
        UsageError
            When the layer does not fit the volume.
        """

    def run(self, layer: nn.Module, x: Tensor, tile: Tile, passage: Passage) -> Tensor:
        """Return this rank's block of the output; all ranks of the sample group must call it together."""
