"""Orders of whole epochs, and how what is left of one is dealt to any number of sample groups; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from typing import Any, TypeVar

import torch

from voxload.errors import UsageError
from voxload.loader.marks import generator_at

SEQUENTIAL = "sequential"
"""Samples 0 to n - 1."""
SHUFFLED = "shuffled"
"""A permutation of all samples, as torch's RandomSampler draws without replacement, and its DistributedSampler."""

Index = TypeVar("Index")


def whole_order(kind: str, start: Mapping[str, Any] | None, samples: int) -> Sequence[int]:
    """Return the order of an epoch, of all groups and not padded.

    Parameters
    ----------
    kind
        SEQUENTIAL or SHUFFLED.
    start
        Where the generator is that a shuffled order is drawn from.
    samples
        Length of the data set.
    """
    if kind == SEQUENTIAL:
        return range(samples)
    if kind != SHUFFLED or start is None:
        raise UsageError("order of the loader's state", found=f"{kind!r} from {start}", expected="a seed")
    order: list[int] = torch.randperm(samples, generator=generator_at(start)).tolist()
    return order


def dealt(order: Sequence[Index], position: int, *, part: int, parts: int, drop_last: bool) -> Sequence[Index]:
    """Return what one of several parts gets of an order from a position on, as torch's DistributedSampler deals it.

    What is left is padded to a multiple of `parts` from the beginning of the order, or cut to one with `drop_last`: at
    position 0, and at any multiple of `parts`, this is torch's own division.
    """
    left = order[position:]
    if drop_last:
        return left[part : len(left) // parts * parts : parts]
    missing = -len(left) % parts
    padded = [*left, *islice(cycle(order), missing)] if missing else left
    return padded[part::parts]
