"""Handshake: before each forward pass, the ranks of a sample group compare what they are about to run.

One small all-gather of a dozen numbers. Whatever differs, all ranks see it and raise the same error, instead of
one raising and the others waiting for its messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import accumulate, count
from typing import Any, Protocol
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from voxload.engine.arithmetic.blocks import Blocks
from voxload.engine.run.torch_compile import keep_order
from voxload.errors import InternalError, UsageError
from voxload.geometry import SPATIAL_AXES
from voxload.grid import ProcessGrid

_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
"""Types of volumes that a network takes, in the order of their numbers in a Greeting."""
_NO_DTYPE = -1


@dataclass(frozen=True, slots=True)
class Greeting:
    """What one rank is about to run, in numbers."""

    network: int
    """Digest of the network and, where the shape is fixed, of its plan."""
    dtype: int
    """Number of the block's type in the engine's list."""
    modes: int
    """Gradient modes: whether gradients are recorded, for the volume and for each parameter."""
    seed: int
    """Seed that this rank proposes for the head's random numbers; that of the first rank counts."""
    refused: int
    """Whether this rank refuses the pass, and raises its own error when the others have heard of it."""
    batch: int
    """Samples."""
    channels: int
    """Channels."""
    depth: int
    """Extent of the block along d; -1 where the input is no volume."""
    height: int
    """Extent of the block along h."""
    width: int
    """Extent of the block along w."""

    @classmethod
    def of(cls, x: Tensor, *, network: int, modes: int, seed: int, refused: bool) -> Greeting:
        """Return the greeting of a rank whose block is `x`."""
        shape = tuple(x.shape)
        if len(shape) != 2 + len(SPATIAL_AXES):
            shape = (len(shape), -1, -1, -1, -1)
        dtype = _DTYPES.index(x.dtype) if x.dtype in _DTYPES else _NO_DTYPE
        return cls(network, dtype, modes, seed, int(refused), *shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the block, (B, C, d, h, w)."""
        return self.batch, self.channels, self.depth, self.height, self.width

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers that travel."""
        return tuple(getattr(self, name) for name in _NUMBERS)


_NUMBERS = tuple(each.name for each in fields(Greeting))
"""Names of the numbers, in their order; dataclasses.astuple copies each of them: 21 us a pass, this takes 1."""


def agreed(rows: Sequence[Sequence[int]], grid: ProcessGrid, expected: Blocks | None) -> tuple[Blocks, int]:
    """Return the cut of the volume and the seed that the ranks of a sample group agree on.

    Parameters
    ----------
    rows
        The numbers of every rank's Greeting, in the order of the group's ranks.
    grid
        Any rank's view of the grid.
    expected
        The cut that the model was split for, or None: then the blocks' extents say it.

    Raises
    ------
    UsageError, InternalError
        When one rank's block or network differs; the same error on every rank.
    """
    greetings = [Greeting(*row) for row in rows]
    for rank, greeting in zip(grid.group_ranks, greetings, strict=True):
        if greeting.refused:
            raise UsageError(
                f"rank {rank}",
                found="that it refuses what it was called with, or how its network was changed",
                expected="the same fitting arguments and settings on all ranks of a sample group",
                remedy="see its own error, which says what it refuses",
            )
        if greeting.depth < 0:
            raise UsageError(
                f"input of rank {rank}", found=f"{greeting.batch} dimensions", expected="a block (B, C, d, h, w)"
            )
        if greeting.dtype == _NO_DTYPE:
            raise UsageError(f"input of rank {rank}", found="no floating-point tensor", remedy="convert it first")
    blocks = expected or _cut(greetings, grid)
    first = greetings[0]
    for rank, greeting in zip(grid.group_ranks, greetings, strict=True):
        shape = (first.batch, first.channels, *blocks.box(grid.coords_of(rank)).shape)
        _compare(rank, greeting, first, shape)
    return blocks, first.seed


def _compare(rank: int, greeting: Greeting, first: Greeting, shape: tuple[int, ...]) -> None:
    """Raise unless the greeting of `rank` fits the group's first one and the block `shape` that it should have."""
    if greeting.shape != shape:
        raise UsageError(
            f"block of rank {rank}",
            found=f"shape {greeting.shape}",
            expected=f"{shape}",
            remedy="give each rank the block that ProcessGrid.block names, of the same samples",
        )
    if greeting.dtype != first.dtype:
        raise UsageError(
            f"block of rank {rank}",
            found=str(_DTYPES[greeting.dtype]),
            expected=f"{_DTYPES[first.dtype]}, as on the group's first rank",
        )
    if greeting.modes != first.modes:
        raise UsageError(
            f"rank {rank}",
            found="other settings of train, no_grad or requires_grad than on the group's first rank, "
            "or torch.compile on one of them alone",
            expected="the same on all ranks of a sample group",
        )
    if greeting.network != first.network:
        raise InternalError(
            f"rank {rank}",
            found="another network or plan than on the group's first rank",
            expected="the same on all ranks of a sample group",
            remedy="build the same model, of the same version of voxload, on every rank",
        )


def _cut(greetings: Sequence[Greeting], grid: ProcessGrid) -> Blocks:
    """Return the cut that the blocks' extents make; places that disagree are found by the comparison after it."""
    extents = [greeting.shape[2:] for greeting in greetings]
    cuts = []
    for axis, blocks in enumerate(grid.spatial):
        along = {grid.coords_of(rank)[axis]: extents[index][axis] for index, rank in _reversed(grid)}
        cuts.append((0, *accumulate(along[place] for place in range(blocks))))
    return Blocks(tuple(cuts))


def _reversed(grid: ProcessGrid) -> list[tuple[int, int]]:
    """Return (index in the group, rank) from last to first, so that in a mapping the first rank's word counts."""
    return list(enumerate(grid.group_ranks))[::-1]


class Agreeing(Protocol):
    """A split network, or one of its passes in a graph."""

    def agreed(self, x: Tensor) -> tuple[Any, Tensor]:
        """Return what the ranks agree on for a pass over `x`, and its seed, an int64 scalar."""


_KNOWN: WeakValueDictionary[int, Agreeing] = WeakValueDictionary()
_NEXT = count(1)


def ticket_of(one: Agreeing) -> int:
    """Return a number for `one`, under which `agree` finds it as long as it lives."""
    ticket = next(_NEXT)
    _KNOWN[ticket] = one
    return ticket


def agree(x: Tensor, ticket: int) -> Tensor:
    """Return the seed of this pass, an int64 scalar, once the ranks of the group have agreed to begin it with `x`."""
    seed: Tensor = _agree(x, ticket)
    return seed


@torch.library.custom_op("voxload::agree", mutates_args=())
def _agree(x: Tensor, ticket: int) -> Tensor:
    """Carry out the handshake."""
    one = _KNOWN.get(ticket)
    if one is None:
        raise InternalError("a compiled split network", found="a network that is gone")
    return one.agreed(x)[1]


@_agree.register_fake
def _(x: Tensor, ticket: int) -> Tensor:  # noqa: ARG001 - the operator's own signature
    return torch.empty((), dtype=torch.int64, device="cpu")


keep_order("voxload::agree")
