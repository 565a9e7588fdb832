"""Regroup: reshape and view of a tensor that is cut, as a reshape of every rank's block; pure integers.

Row-major order is the order of the factors, one behind the other, so a reshape only groups them anew, and may part
one: an axis of 16 voxels becomes 4 windows of 4. A cut one parts where its blocks end at windows' ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from voxload.engine.forward.sharding import Dim, Factor, Sharding, dim_of


class NoRegrouping(Exception):  # noqa: N818 - says what there is not
    """The blocks of a reshaped tensor are no reshapes of blocks."""


@dataclass(frozen=True, slots=True)
class Regrouping:
    """What a reshape makes of a sharding."""

    source: Sharding
    """Cut that the tensor must have before; where the given one is another, it has to be brought to that first."""
    result: Sharding
    """Cut that it has afterwards."""


def regroup(source: Sharding, shape: Sequence[int]) -> Regrouping:
    """Return what a reshape to `shape`, of as many elements, makes of a tensor that is cut as `source` says.

    Raises NoRegrouping where a dimension would begin or end within a cut factor, or its pieces be cut unevenly.

    >>> half = Sharding(((Factor(8, axis=0, bounds=(0, 3, 8)),), (Factor(5),)))
    >>> print(regroup(half, (2, 4, 5)).source, regroup(half, (2, 4, 5)).result)
    (8 cut at 0,4,8, 5) (2 cut at 0,1,2, 4, 5)
    """
    work = _Regroup([factor for dim in source.dims for factor in dim])
    dims = [work.take(extent) for extent in shape]
    dims[-1:] = [dim_of((*dims[-1], *work.rest()))] if dims else []
    aligned = tuple(dim_of(_aligned(factor, work.multiples) for factor in dim) for dim in source.dims)
    return Regrouping(Sharding(aligned), Sharding(tuple(dims)))


@dataclass
class _Regroup:
    """Takes factors off the front of a tensor."""

    factors: Iterable[Factor]
    multiples: dict[int, int] = field(default_factory=dict)
    """Of which numbers bounds along axes of the grid must be multiples."""

    def __post_init__(self) -> None:
        self._queue = deque(self.factors)

    def take(self, extent: int) -> Dim:
        """Return the next dimension."""
        found: list[Factor] = []
        while extent > 1:
            factor = self._queue.popleft()
            if extent % factor.extent == 0:
                found.append(factor)
                extent //= factor.extent
            elif factor.extent % extent == 0:
                outer, inner = self._parted(factor, extent)
                found.append(outer)
                self._queue.appendleft(inner)
                extent = 1
            else:
                self._queue.appendleft(self._merged(factor))
        return dim_of(found)

    def rest(self) -> list[Factor]:
        """Return what is left: axes of one voxel."""
        return list(self._queue)

    def _parted(self, factor: Factor, count: int) -> tuple[Factor, Factor]:
        """Part a factor into `count` equal pieces and what is in a piece."""
        inner = factor.extent // count
        if factor.axis is None:
            return Factor(count), Factor(inner)
        self.multiples[factor.axis] = inner
        bounds = _aligned(factor, self.multiples).bounds
        return Factor(count, factor.axis, tuple(bound // inner for bound in bounds)), Factor(inner)

    def _merged(self, factor: Factor) -> Factor:
        """Return a whole factor and the whole one behind it as one."""
        behind = self._queue.popleft() if self._queue else None
        if behind is None or factor.axis is not None or behind.axis is not None:
            raise NoRegrouping
        return Factor(factor.extent * behind.extent)


def _aligned(factor: Factor, multiples: dict[int, int]) -> Factor:
    """Return a factor whose bounds are multiples: each the one nearest to where it was."""
    if factor.axis is None or factor.axis not in multiples:
        return factor
    step = multiples[factor.axis]
    inner = [(bound + step // 2) // step * step for bound in factor.bounds[1:-1]]
    return replace(factor, bounds=(0, *inner, factor.extent))
