"""Sharding: how a tensor of any shape is cut over the ranks of a sample group; pure integers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from voxload.engine.arithmetic.blocks import Blocks
from voxload.engine.model.pytrees import Leaf


@dataclass(frozen=True, slots=True)
class Factor(Leaf):
    """A part of a dimension: a dimension of tokens, for one, has the factors depth, height and width, in this order."""

    extent: int
    """Positions along it, on all ranks together."""
    axis: int | None = None
    """Axis of the grid along which it is cut; None where every rank has all of it."""
    bounds: tuple[int, ...] = ()
    """Of a cut one: the first position of every block along the axis, then the extent."""
    kept: tuple[int, ...] = ()
    """Of one that is not cut: the positions that every rank has, where these are not all; see `rules.fourier`."""

    def span(self, coords: Sequence[int]) -> tuple[int, int]:
        """Return the first position that the rank at `coords` has, and the one behind its last."""
        if self.axis is None:
            return 0, self.extent
        place = coords[self.axis]
        return self.bounds[place], self.bounds[place + 1]

    def __str__(self) -> str:
        return str(self.extent) if self.axis is None else f"{self.extent} cut at {','.join(map(str, self.bounds))}"


Dim = tuple[Factor, ...]
"""The factors of one dimension, outermost first; none of a dimension of one position."""


@dataclass(frozen=True, slots=True)
class Sharding(Leaf):
    """The cut of one tensor: per dimension, which positions are on which ranks.

    A rank's block has the positions of all its factors' spans, in the order of the whole tensor.

    >>> half = Factor(6, axis=0, bounds=(0, 3, 6))
    >>> Sharding(((Factor(2),), (half, Factor(4)))).block_shape((1, 0, 0))
    (2, 12)
    """

    dims: tuple[Dim, ...]
    """Its dimensions; equal cuts have equal factors, see `dim_of`."""

    @classmethod
    def whole(cls, shape: Iterable[int]) -> Sharding:
        """Return that of a tensor of which every rank has all."""
        return cls(tuple(dim_of([Factor(extent)]) for extent in shape))

    @classmethod
    def of_volume(cls, blocks: Blocks, *, leading: Sequence[int]) -> Sharding:
        """Return that of a volume (leading dimensions, then D, H, W) that is cut into `blocks`.

        An axis of the grid of one block cuts nothing.
        """
        factors = [
            Factor(bounds[-1], axis, bounds) if len(bounds) > 2 else Factor(bounds[-1])
            for axis, bounds in enumerate(blocks.bounds)
        ]
        return cls((*cls.whole(leading).dims, *(dim_of([factor]) for factor in factors)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole tensor."""
        return tuple(prod(factor.extent for factor in dim) for dim in self.dims)

    @property
    def is_whole(self) -> bool:
        """Whether every rank has all of it."""
        return all(factor.axis is None and not factor.kept for dim in self.dims for factor in dim)

    @property
    def is_partly_kept(self) -> bool:
        """Whether there are positions that no rank has."""
        return any(factor.kept for dim in self.dims for factor in dim)

    def kept(self) -> tuple[tuple[int, ...], ...]:
        """Return the positions along every dimension that every rank has; of what is not cut."""
        return tuple(
            next((factor.kept for factor in dim if factor.kept), tuple(range(extent)))
            for dim, extent in zip(self.dims, self.shape, strict=True)
        )

    def cuts(self) -> Iterator[tuple[int, int, Factor]]:
        """Yield the cut factors: dimension, place in it, and factor."""
        for number, dim in enumerate(self.dims):
            for place, factor in enumerate(dim):
                if factor.axis is not None:
                    yield number, place, factor

    def block_shape(self, coords: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the block of the rank at `coords` of its sample group."""
        spans = [[factor.span(coords) for factor in dim] for dim in self.dims]
        return tuple(prod(stop - start for start, stop in dim) for dim in spans)

    def positions(self, number: int, coords: Sequence[int]) -> list[int]:
        """Return the global positions along a dimension of what the rank at `coords` has."""
        found = [0]
        for factor in self.dims[number]:
            found = [place * factor.extent + one for place in found for one in range(*factor.span(coords))]
        return found

    def axes(self, number: int | None = None) -> frozenset[int]:
        """Return the axes of the grid along which a dimension is cut, or any of them."""
        along = (factor for dim, _, factor in self.cuts() if number is None or dim == number)
        return frozenset(factor.axis for factor in along if factor.axis is not None)

    def whole_along(self, numbers: Iterable[int]) -> Sharding:
        """Return the sharding that leaves these dimensions whole."""
        return self.recut(dict.fromkeys(axis for number in numbers for axis in self.axes(number)))

    def with_dim(self, number: int, dim: Iterable[Factor]) -> Sharding:
        """Return the sharding with another dimension in a place."""
        return replace(self, dims=(*self.dims[:number], dim_of(dim), *self.dims[number + 1 :]))

    def recut(self, changes: Mapping[int, tuple[int, ...] | None]) -> Sharding:
        """Return the sharding with other bounds along axes of the grid, or with none: there every rank has all."""

        def changed(factor: Factor) -> Factor:
            if factor.axis is None or factor.axis not in changes:
                return factor
            bounds = changes[factor.axis]
            return Factor(factor.extent) if bounds is None else replace(factor, bounds=bounds)

        return Sharding(tuple(dim_of(map(changed, dim)) for dim in self.dims))

    def ordered(self, order: Sequence[int]) -> Sharding:
        """Return the sharding of the tensor with its dimensions in another order."""
        return replace(self, dims=tuple(self.dims[number] for number in order))

    def block(self, whole: Any, coords: Sequence[int]) -> Any:
        """Return the block of the rank at `coords` of a whole tensor or array: a view where dims have one factor."""
        for number, dim in enumerate(self.dims):
            if all(factor.axis is None for factor in dim):
                continue
            shape = tuple(whole.shape)
            apart = whole.reshape(*shape[:number], *(factor.extent for factor in dim), *shape[number + 1 :])
            own = tuple(slice(*factor.span(coords)) for factor in dim)
            part = apart[(slice(None),) * number + own]
            extent = prod(part.shape[number : number + len(dim)])
            whole = part if len(dim) == 1 else part.reshape(*shape[:number], extent, *shape[number + 1 :])
        return whole

    def __str__(self) -> str:
        return "(" + ", ".join(" x ".join(map(str, dim)) or "1" for dim in self.dims) + ")"


def dim_of(factors: Iterable[Factor]) -> Dim:
    """Return a dimension of these factors, so that equal cuts are equal.

    Whole neighbours are one factor, a cut one and the whole one within it are one that is cut, and there are none of
    extent 1.

    >>> dim_of([Factor(2), Factor(3), Factor(1)])
    (Factor(extent=6, axis=None, bounds=()),)
    >>> print(*dim_of([Factor(4, 0, (0, 1, 4)), Factor(2)]))
    8 cut at 0,2,8
    """
    found: list[Factor] = []
    for factor in factors:
        if factor.axis is None and factor.extent == 1:
            continue
        if found and factor.axis is None:
            outer, inner = found[-1], factor.extent
            bounds = tuple(bound * inner for bound in outer.bounds)
            found[-1] = Factor(outer.extent * inner, outer.axis, bounds)
        else:
            found.append(factor)
    return tuple(found)
