"""Rearrangements: functions that keep every element as it is, such as reshape, permute, cat, stack and split.

Regroup: reshape and view of a tensor that is cut, as a reshape of every rank's block; pure integers. Row-major order
is the order of the factors, one behind the other, so a reshape only groups them anew, and may part one: an axis of 16
voxels becomes 4 windows of 4. A cut one parts where its blocks end at windows' ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from voxload.engine.forward.recording import Call, Given, Value
from voxload.engine.forward.rule import Context, NoRule, Preferences, Ruling, Same
from voxload.engine.forward.rules.features import in_space
from voxload.engine.forward.rules.pointwise import Pointwise
from voxload.engine.forward.sharding import Dim, Factor, Sharding, dim_of

_FEATURES = 2
"""Dimensions before those of a volume."""


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


RESHAPES: frozenset[Any] = frozenset(
    [
        *(getattr(torch, name) for name in ("reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "ravel")),
        *(getattr(Tensor, name) for name in ("reshape", "reshape_as", "flatten", "unflatten", "squeeze", "unsqueeze")),
        *(getattr(Tensor, name) for name in ("view", "view_as", "ravel")),
    ]
)
"""Functions that keep row-major order."""
ORDERS: frozenset[Any] = frozenset(
    [
        *(
            getattr(torch, name)
            for name in ("permute", "transpose", "movedim", "moveaxis", "swapaxes", "swapdims", "t")
        ),
        *(
            getattr(Tensor, name)
            for name in ("permute", "transpose", "movedim", "moveaxis", "swapaxes", "swapdims", "t")
        ),
        *(getattr(Tensor, name).__get__ for name in ("T", "mT", "H", "mH")),
    ]
)
"""Functions that put dimensions in another order."""


@dataclass(frozen=True, slots=True)
class Reshape:
    """A reshape of this rank's block."""

    result: Sharding
    """Cut of the reshaped tensor."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:  # noqa: ARG002 - see Action
        """Reshape; see Action."""
        return args[0].reshape(self.result.block_shape(here.coords))


def reshape(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what a reshape does: blocks are reshaped, where dimensions begin and end between cut axes; see Rule."""
    (made,) = call.made
    if made.dtype != call.taken[0].dtype:
        raise NoRule("it looks at the bytes as another type")
    try:
        found = regroup(cuts[0], made.shape)
    except NoRegrouping as error:
        raise NoRule("a dimension would begin or end within an axis that is cut") from error
    others = tuple(Sharding.whole(cut.shape) for cut in cuts[1:])
    return Ruling((found.source, *others), (found.result,), Reshape(found.result))


def reorder(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what another order of dimensions does: blocks are ordered alike; see Rule."""
    # Dimensions of the extents 1, 2, 3... tell where each went.
    numbered = torch.empty([number + 1 for number in range(len(cuts[0].dims))], device="meta")
    order = [extent - 1 for extent in call.function(numbered, *call.args[1:], **call.kwargs).shape]
    return Ruling(cuts, (cuts[0].ordered(order),), Same())


STACKS: frozenset[Any] = frozenset([torch.stack])
CONCATENATIONS: frozenset[Any] = frozenset([torch.cat, torch.concat, torch.concatenate])
PARTITIONS: frozenset[Any] = frozenset(
    [
        *(getattr(torch, name) for name in ("chunk", "split", "tensor_split", "unbind", "narrow", "select")),
        *(getattr(Tensor, name) for name in ("chunk", "split", "tensor_split", "unbind", "narrow", "select")),
    ]
)


def concatenate(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:
    """Return what joins tensors along a dimension that is whole; all are brought to the cut of the first; see Rule.

    Of those that every rank has whole, such as coordinates, it takes its part.
    """
    dim = _dimension(call, 1, len(cuts[0].dims))
    (made,) = call.made
    cut = cuts[0].whole_along([dim])
    if wishes.split is not None:  # a plan had channels cut: volumes need not be whole for that
        cut = in_space(cut, wishes.split, spatial=len(cut.dims) - _FEATURES)
    if any(len(each.shape) != len(cut.dims) for each in call.args[0]):
        raise NoRule("it joins a volume with an empty tensor of another number of dimensions")
    taken = [cut.with_dim(dim, Sharding.whole(each.shape).dims[dim]) for each in call.args[0]]
    inputs = tuple(each for each, value in zip(taken, call.args[0], strict=True) if isinstance(value, Value))
    return Ruling(inputs, (cut.with_dim(dim, Sharding.whole(made.shape).dims[dim]),), _joined(call, taken))


def stack(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what stacks values along a new dimension; all are brought to the cut of the first; see Rule."""
    dim = _dimension(call, 1, len(cuts[0].dims) + 1)
    (made,) = call.made
    dims = (*cuts[0].dims[:dim], Sharding.whole(made.shape).dims[dim], *cuts[0].dims[dim:])
    return Ruling((cuts[0],) * len(cuts), (Sharding(dims),), _joined(call, [cuts[0]] * len(call.args[0])))


def _joined(call: Call, taken: Sequence[Sharding]) -> Pointwise:
    """Return the call on blocks, and on this rank's part of tensors that every rank has whole."""
    parts = tuple(
        (place, cut)
        for place, (cut, each) in enumerate(zip(taken, call.args[0], strict=True))
        if isinstance(each, Given) and not cut.is_whole
    )
    return Pointwise(parts)


def part(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what parts a value along a dimension that is whole; see Rule."""
    name = call.function.__name__
    place = 1 if name in {"unbind", "narrow", "select"} else 2
    dim = _dimension(call, place, len(cuts[0].dims))
    cut = cuts[0].whole_along([dim])
    results = []
    for made in call.made:
        if name in {"unbind", "select"}:
            results.append(Sharding((*cut.dims[:dim], *cut.dims[dim + 1 :])))
        else:
            results.append(cut.with_dim(dim, Sharding.whole(made.shape).dims[dim]))
    return Ruling((cut,), tuple(results), Same())


def _dimension(call: Call, place: int, count: int) -> int:
    """Return the dimension that is given by place or by name, counted from the front."""
    given = call.args[place] if len(call.args) > place else call.kwargs.get("dim", 0)
    return int(given) % count
