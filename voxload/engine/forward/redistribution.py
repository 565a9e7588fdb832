"""Redistribution: a tensor brought from one cut to another, along one axis of the grid after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import torch
from torch import Tensor

from voxload.engine.arithmetic.axis_plan import AxisPlan, PaddingMode, Part, plan_axis
from voxload.engine.arithmetic.swap import swap_part
from voxload.engine.exchange.protocol import Exchange
from voxload.engine.forward.sharding import Factor, Sharding
from voxload.engine.run.collectives import gather, scatter_add


@dataclass(frozen=True, slots=True)
class Gather:
    """Positions of one factor move to other ranks, or to all."""

    before: Sharding
    """Cut of the tensor before it."""
    dim: int
    """Dimension of which the factor is one."""
    place: int
    """Which one."""
    plan: AxisPlan
    """Who has and who needs which positions of the factor."""

    def run(self, x: Tensor, coords: Sequence[int], exchange: Exchange) -> Tensor:
        """Return what the rank at `coords` has after it; its adjoint sums over the ranks."""
        apart = _apart(x, self.dim, _spans(self.before, self.dim, coords), self.place)
        part = self.part(coords)
        found = gather(apart, part, fill=0.0, exchange=exchange)
        shape = (*apart.shape[: self.dim + 1], part.needed, *apart.shape[self.dim + 2 :])
        return _together(found.reshape(shape), self.dim)

    def back(self, x: Tensor, coords: Sequence[int], exchange: Exchange) -> Tensor:
        """Return the part that the rank at `coords` has of the sum over the ranks of what each has whole."""
        factor = self.before.dims[self.dim][self.place]
        spans = _spans(self.before, self.dim, coords)
        spans[self.place] = factor.extent
        apart = _apart(x, self.dim, spans, self.place)
        return _together(scatter_add(apart, self.part(coords), exchange=exchange), self.dim)

    def part(self, coords: Sequence[int]) -> Part:
        """Return the rank's part, where the dimension lies in three: before the factor, the factor, behind it."""
        return self.plan.at(coords[self.plan.axis], dim=self.dim + 1)

    def received(self, coords: Sequence[int]) -> tuple[int, int]:
        """Return the messages that the rank at `coords` receives, and their elements."""
        start, stop = self.before.dims[self.dim][self.place].span(coords)
        others = prod(self.before.block_shape(coords)) // max(stop - start, 1)
        part = self.part(coords)
        return len(part.incoming) if others else 0, part.received * others

    def given_back(self, coords: Sequence[int]) -> tuple[int, int]:
        """Return the messages that the rank at `coords` receives on the way back, and their elements."""
        elements = prod(self.before.block_shape(coords))
        peers = [peer for peer, _ in self.part(coords).outgoing] if elements else []
        return len(peers), len(peers) * elements


@dataclass(frozen=True, slots=True)
class Take:
    """Every rank takes a part of what it has; nothing is sent."""

    after: Sharding
    """Cut of the tensor behind it."""
    dim: int
    """Dimension of which the factor is one that is cut."""
    place: int
    """Which one."""

    def run(self, x: Tensor, coords: Sequence[int], exchange: Exchange) -> Tensor:  # noqa: ARG002 - see Gather
        """Return what the rank at `coords` has after it; its adjoint fills with zeros."""
        factor = self.after.dims[self.dim][self.place]
        start, stop = factor.span(coords)
        spans = _spans(self.after, self.dim, coords)
        spans[self.place] = factor.extent
        own = _apart(x, self.dim, spans, self.place).narrow(self.dim + 1, start, stop - start)
        return _together(own, self.dim)

    def received(self, coords: Sequence[int]) -> tuple[int, int]:  # noqa: ARG002 - see Gather
        """Return the messages that the rank at `coords` receives, and their elements: none."""
        return 0, 0


@dataclass(frozen=True, slots=True)
class Swap:
    """What was cut in one dimension is cut in another, by messages of parts of blocks (an all-to-all)."""

    before: Sharding
    """Cut of the tensor before it."""
    after: Sharding
    """Cut of the tensor behind it."""
    source: tuple[int, int]
    """Dimension that was cut, and place of the factor in it."""
    target: tuple[int, int]
    """Dimension that will be."""

    def run(self, x: Tensor, coords: Sequence[int], exchange: Exchange) -> Tensor:
        """Return what the rank at `coords` has after it; its adjoint is the way back."""
        (cut, place), (open_, other), (old, new) = self.source, self.target, self._factors()
        spans = _spans(self.after, open_, coords)
        spans[other] = new.extent
        # Either dimension in three, the later one first: the places of the earlier one stay.
        first, second = sorted([(cut, _spans(self.before, cut, coords), place), (open_, spans, other)])
        apart = _apart(_apart(x, *second), *first)
        rows, columns = (open_ + 3, cut + 1) if cut < open_ else (open_ + 1, cut + 3)
        front = apart.movedim((rows, columns), (0, 1))
        beyond = tuple(front.shape[2:])
        part = self._part(coords, prod(beyond))
        found = gather(front.reshape(-1), part, fill=0.0, exchange=exchange)
        start, stop = new.span(coords)
        sizes = [behind - before for before, behind in pairwise(old.bounds)]
        pieces = torch.split(found, [(stop - start) * size * prod(beyond) for size in sizes])
        whole = torch.cat(
            [piece.reshape(stop - start, size, *beyond) for piece, size in zip(pieces, sizes, strict=True)], 1
        )
        back = whole.movedim((0, 1), (rows, columns))
        return _together(_together(back, first[0]), second[0])

    def received(self, coords: Sequence[int]) -> tuple[int, int]:
        """Return the messages that the rank at `coords` receives, and their elements."""
        old, new = self._factors()
        start, stop = old.span(coords)
        beyond = prod(self.before.block_shape(coords)) // max((stop - start) * new.extent, 1)
        part = self._part(coords, beyond)
        return len(part.incoming), part.received

    def _factors(self) -> tuple[Factor, Factor]:
        return self.before.dims[self.source[0]][self.source[1]], self.after.dims[self.target[0]][self.target[1]]

    def _part(self, coords: Sequence[int], width: int) -> Part:
        old, new = self._factors()
        axis = old.axis or 0
        return swap_part(axis, coords[axis], source=old.bounds, target=new.bounds, width=width)


Step = Gather | Take | Swap


@dataclass(frozen=True, slots=True)
class Move:
    """What brings a tensor to another cut; pure."""

    steps: tuple[Step, ...]
    """In order."""
    sliced: Sharding | None = None
    """Cut that every rank takes by itself, once it has all; None where steps do."""


def plan_move(source: Sharding, target: Sharding) -> Move:
    """Return what takes a tensor from the cut `source` to `target`, which is one of a tensor of the same shape.

    Axis by axis of the grid: what a rank has is taken at once, positions move straight to where they are needed, and
    what no rank is to have alone is gathered last. Where cuts of one axis do not go with those of another, every rank
    gets the whole and takes its part.
    """
    first, last = source.axes(), target.axes()
    waiting = [*sorted(last - first), *sorted(first & last), *sorted(first - last)]
    now, steps = source, list[Step]()
    while waiting:
        found = ((axis, after) for axis in waiting if (after := _brought(now, target, axis)) is not None)
        axis, after = next(found, (None, now))
        if axis is None:
            break
        waiting.remove(axis)
        steps += _steps(now, after, axis)
        now = after
    if now == target:
        return Move(tuple(steps))
    every = dict.fromkeys(factor.axis for *_, factor in source.cuts() if factor.axis is not None)
    now, steps = source, []
    for axis in every:
        after = now.recut({axis: None})
        steps += _steps(now, after, axis)
        now = after
    return Move(tuple(steps), None if now == target else target)


def plan_scatter(after: Sharding, axis: int) -> Gather:
    """Return the gather whose way back adds up what ranks have along an axis, and leaves them cut as `after` says."""
    dim, place, factor = next(each for each in after.cuts() if each[2].axis == axis)
    needs = ((0, factor.extent),) * (len(factor.bounds) - 1)
    return Gather(after, dim, place, plan_axis(axis, factor.bounds, needs, PaddingMode.CONSTANT))


def moved(x: Tensor, move: Move, coords: Sequence[int], exchange: Exchange) -> Tensor:
    """Return the block of the rank at `coords` after a move; its adjoint sums over the ranks."""
    for step in move.steps:
        x = step.run(x, coords, exchange)
    block: Tensor = x if move.sliced is None else move.sliced.block(x, coords)
    return block


def _brought(now: Sharding, target: Sharding, axis: int) -> Sharding | None:
    """Return the cut `now` with one axis as in `target`; None where others do not leave it room for that."""
    base = now.recut({axis: None})
    dims = [number for number, _, factor in target.cuts() if factor.axis == axis]
    if not dims:
        return base
    others = dict.fromkeys(target.axes(dims[0]) - base.axes(dims[0]) - {axis})
    found = base.with_dim(dims[0], target.recut(others).dims[dims[0]])
    return found if found.recut({axis: None}) == base else None


def _steps(before: Sharding, after: Sharding, axis: int) -> Iterator[Step]:
    """Yield what brings a tensor from one cut to another, where these differ in one axis."""
    old, new = _where(before, axis), _where(after, axis)
    if old is None and new is not None:
        yield Take(after, *new)
    elif old is not None and new is not None and old[0] != new[0]:
        yield Swap(before, after, old, new)
    elif old is not None:
        is_there = new is not None and old[1] == new[1] and _alike(before, after, axis)
        factor = before.dims[old[0]][old[1]]
        bounds = after.dims[new[0]][new[1]].bounds if new is not None and is_there else None
        if bounds != factor.bounds:
            needs = tuple(pairwise(bounds)) if bounds else ((0, factor.extent),) * (len(factor.bounds) - 1)
            yield Gather(before, *old, plan_axis(axis, factor.bounds, needs, PaddingMode.CONSTANT))
        if new is not None and not is_there:
            yield Take(after, *new)


def _alike(before: Sharding, after: Sharding, axis: int) -> bool:
    """Tell whether a cut factor is the same one, at whatever bounds."""
    return before.recut({axis: _bounds(after, axis)}) == after


def _bounds(cut: Sharding, axis: int) -> tuple[int, ...]:
    return next(factor.bounds for *_, factor in cut.cuts() if factor.axis == axis)


def _where(cut: Sharding, axis: int) -> tuple[int, int] | None:
    """Return the dimension that is cut along an axis, and the factor's place in it; None where none is."""
    return next(((number, place) for number, place, factor in cut.cuts() if factor.axis == axis), None)


def _spans(cut: Sharding, dim: int, coords: Sequence[int]) -> list[int]:
    """Return the positions of each factor of a dimension that the rank at `coords` has."""
    return [stop - start for start, stop in (factor.span(coords) for factor in cut.dims[dim])]


def _apart(x: Tensor, dim: int, spans: Sequence[int], place: int) -> Tensor:
    """Return a block with one dimension as three: what is before a factor, the factor, and what is behind it."""
    shape = tuple(x.shape)
    parts = prod(spans[:place]), spans[place], prod(spans[place + 1 :])
    return x.reshape(*shape[:dim], *parts, *shape[dim + 1 :])


def _together(x: Tensor, dim: int) -> Tensor:
    """Return a block with three dimensions as one."""
    shape = tuple(x.shape)
    return x.reshape(*shape[:dim], prod(shape[dim : dim + 3]), *shape[dim + 3 :])
