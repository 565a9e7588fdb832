"""Halos: those of a block, kept apart from it, so that no padded copy of the block is ever made.

Halos are fetched axis by axis, as in `gather`, with the same messages: a slab of a later axis reaches over the halos of
the earlier ones, and so the corners come along.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from voxload.engine.arithmetic.axis_plan import FIRST_AXIS, Part, Run
from voxload.engine.exchange.protocol import Exchange, Pending
from voxload.engine.run.tensors import packed, zeros_like_block


@dataclass(frozen=True, slots=True)
class Margin:
    """The halo along one axis: how wide, and who has it."""

    part: Part
    """This rank's part of the plan."""
    low: int
    """Voxels before the block."""
    high: int
    """Voxels behind it."""

    @property
    def dim(self) -> int:
        """Dimension of the axis in (B, C, d, h, w)."""
        return FIRST_AXIS + self.part.axis

    @property
    def here(self) -> tuple[Run, ...]:
        """The halo's voxels that this rank has itself, as mirrors and wrapped volumes do."""
        return tuple(run for run in self.part.here if run.target - run.source != self.low)

    def place(self, run: Run) -> tuple[bool, int]:
        """Return whether a run lies behind the block, and where it starts in its slab."""
        behind = self.low + self.part.owned
        return (True, run.target - behind) if run.target >= behind else (False, run.target)


@dataclass(slots=True)
class Slabs:
    """The halo along one axis, or its gradient."""

    margin: Margin
    """Its extents and who has it."""
    low: Tensor
    """Before the block; over the halos of earlier axes, and as wide as the block along later ones."""
    high: Tensor
    """Behind the block."""

    def of(self, run: Run) -> Tensor:
        """Return the part of a slab where a run belongs."""
        is_high, start = self.margin.place(run)
        return (self.high if is_high else self.low).narrow(self.margin.dim, start, run.length)


class Region:
    """A block with the halos of the axes that were fetched so far, or the gradient of these.

    Parameters
    ----------
    block
        (B, C, d, h, w); what is added to the region changes it in place.
    """

    def __init__(self, block: Tensor) -> None:
        self.block = block
        self.slabs: list[Slabs] = []

    def take(self, dim: int, start: int, length: int, *, level: int | None = None) -> Tensor:
        """Return so many planes along the dimension of an axis not fetched yet, over the halos of the others.

        Parameters
        ----------
        dim, start, length
            The planes, counted from the block's first.
        level
            How many of the fetched axes to reach over; all by default.
        """
        whole = self.block.narrow(dim, start, length)
        for slabs in self.slabs[:level]:
            sides = slabs.low.narrow(dim, start, length), whole, slabs.high.narrow(dim, start, length)
            whole = torch.cat([side for side in sides if side.shape[slabs.margin.dim]], slabs.margin.dim)
        return whole

    def add(self, planes: Tensor, dim: int, start: int, *, level: int) -> None:
        """Add `planes` where `take` with these arguments would find them: its adjoint."""
        length = planes.shape[dim]
        for slabs in reversed(self.slabs[:level]):
            across = slabs.margin.dim
            low, own, high = torch.split(planes, [slabs.margin.low, slabs.margin.part.owned, slabs.margin.high], across)
            slabs.low.narrow(dim, start, length).add_(low)
            slabs.high.narrow(dim, start, length).add_(high)
            planes = own
        self.block.narrow(dim, start, length).add_(planes)

    def extents(self, dim: int, extent: int, *, level: int) -> list[int]:
        """Return the shape of planes over the halos of so many axes, with this extent along `dim`."""
        shape = list(self.block.shape)
        for slabs in self.slabs[:level]:
            shape[slabs.margin.dim] += slabs.margin.low + slabs.margin.high
        shape[dim] = extent
        return shape


@dataclass(slots=True)
class Fetch:
    """Messages under way that bring the halo along one axis."""

    region: Region
    slabs: Slabs
    incoming: dict[int, Tensor]
    pending: Pending

    @classmethod
    def start(cls, region: Region, margin: Margin, exchange: Exchange) -> Fetch:
        """Send what others need along the margin's axis, and begin to receive this rank's halo."""
        dim, level, part = margin.dim, len(region.slabs), margin.part
        outgoing = {
            peer: packed([region.take(dim, run.source, run.length) for run in runs], dim).contiguous()
            for peer, runs in part.outgoing
        }
        incoming = {
            peer: region.block.new_empty(region.extents(dim, sum(run.length for run in runs), level=level))
            for peer, runs in part.incoming
        }
        pending = exchange.start(part.axis, _filled(outgoing), _filled(incoming))
        low, high = (
            zeros_like_block(region.block, region.extents(dim, extent, level=level))
            for extent in (margin.low, margin.high)
        )
        slabs = Slabs(margin, low, high)
        for run in margin.here:
            slabs.of(run).copy_(region.take(dim, run.source, run.length))
        return cls(region, slabs, incoming, pending)

    def finish(self) -> Slabs:
        """Wait for the halo and make it part of the region."""
        self.pending.wait()
        for run, planes in _runs(self.slabs.margin.part.incoming, self.incoming, self.slabs.margin.dim):
            self.slabs.of(run).copy_(planes)
        self.region.slabs.append(self.slabs)
        return self.slabs


@dataclass(slots=True)
class Return:
    """Messages under way that bring the gradient of the halo along one axis back to its owners: a Fetch's adjoint."""

    region: Region
    level: int
    incoming: dict[int, Tensor]
    pending: Pending

    @classmethod
    def start(cls, region: Region, level: int, exchange: Exchange) -> Return:
        """Send the gradient of the halo number `level`, and begin to receive what others have of this block."""
        slabs = region.slabs[level]
        dim, part = slabs.margin.dim, slabs.margin.part
        outgoing = {peer: torch.cat([slabs.of(run) for run in runs], dim).contiguous() for peer, runs in part.incoming}
        incoming = {
            peer: region.block.new_empty(region.extents(dim, sum(run.length for run in runs), level=level))
            for peer, runs in part.outgoing
        }
        return cls(region, level, incoming, exchange.start(part.axis, _filled(outgoing), _filled(incoming)))

    def finish(self) -> None:
        """Wait for the gradients and add them to the block and to the halos of earlier axes."""
        slabs = self.region.slabs[self.level]
        dim = slabs.margin.dim
        self.pending.wait()
        for run in slabs.margin.here:
            self.region.add(slabs.of(run), dim, run.source, level=self.level)
        for run, planes in _runs(slabs.margin.part.outgoing, self.incoming, dim):
            self.region.add(planes, dim, run.source, level=self.level)


def _filled(tensors: dict[int, Tensor]) -> dict[int, Tensor]:
    """Leave out tensors without elements, as both sides do."""
    return {peer: tensor for peer, tensor in tensors.items() if tensor.numel()}


def _runs(
    messages: tuple[tuple[int, tuple[Run, ...]], ...], tensors: dict[int, Tensor], dim: int
) -> Iterator[tuple[Run, Tensor]]:
    """Yield each run of the messages with its planes."""
    for peer, runs in messages:
        yield from zip(runs, torch.split(tensors[peer], [run.length for run in runs], dim), strict=True)
