"""Buckets: parameters whose updates travel together, in one vector cut into equal shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from voxload.parallel.lion.levels import UNIT

MOMENTUM = "exp_avg"
"""Name of the momentum in an optimiser's state, as in other implementations of Lion."""


@dataclass(frozen=True, slots=True, eq=False)
class Bucket:
    """Some parameters of one group of options, one type and one device."""

    parameters: tuple[Tensor, ...]
    options: dict[str, Any]
    """Those of the parameters' group, as they are now."""
    offsets: tuple[int, ...]
    """Where each begins in the vector, at an even place, and where the last one ends."""
    shards: int
    """Parts of equal length."""

    @property
    def length(self) -> int:
        """Numbers of a shard."""
        return -(-self.offsets[-1] // (self.shards * UNIT)) * UNIT

    @property
    def size(self) -> int:
        """Numbers of the vector."""
        return self.length * self.shards

    def views(self, flat: Tensor) -> list[Tensor]:
        """Return each parameter's part of a vector, in its shape."""
        return [
            flat[start : start + each.numel()].view(each.shape)
            for start, each in zip(self.offsets, self.parameters, strict=False)
        ]

    def blank(self, flat: Tensor) -> None:
        """Put zeros where no parameter is."""
        for each, (start, end) in zip(self.parameters, pairwise(self.offsets), strict=True):
            flat[start + each.numel() : end] = 0
        flat[self.offsets[-1] : self.size] = 0


def buckets_of(options: dict[str, Any], *, shards: int, limit: int) -> Iterator[Bucket]:
    """Yield the buckets of a group's parameters that are trained, in order.

    Parameters
    ----------
    options
        A group of an optimiser.
    shards
        Parts of each bucket.
    limit
        Numbers of a bucket, unless one parameter alone has more.
    """
    some: list[Tensor] = []
    for each in options["params"]:
        if not each.requires_grad:
            continue
        is_alike = not some or (each.dtype, each.device) == (some[0].dtype, some[0].device)
        if some and (not is_alike or sum(one.numel() for one in some) + each.numel() > limit):
            yield _bucket(some, options, shards)
            some = []
        some.append(each)
    if some:
        yield _bucket(some, options, shards)


def _bucket(parameters: Sequence[Tensor], options: dict[str, Any], shards: int) -> Bucket:
    offsets = [0]
    for each in parameters:
        offsets.append(offsets[-1] + each.numel() + each.numel() % 2)
    return Bucket(tuple(parameters), options, tuple(offsets), shards)


def turn(sizes: Sequence[int], every: int, step: int) -> list[tuple[int, int, int]]:
    """Return what has its turn in a step, of vectors that all have theirs once in `every` steps, as many numbers each.

    Parts are (number of the vector, first, end).

    >>> turn([5, 3], 2, 0), turn([5, 3], 2, 1)
    ([(0, 0, 4)], [(0, 4, 5), (1, 0, 3)])
    """
    total, place = sum(sizes), step % every
    first, end = total * place // every, total * (place + 1) // every
    found, start = [], 0
    for number, size in enumerate(sizes):
        low, high = max(first - start, 0), min(end - start, size)
        if low < high:
            found.append((number, low, high))
        start += size
    return found


def accumulated_as(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which updates of parameters of a type are worked out."""
    return torch.float64 if dtype == torch.float64 else torch.float32
