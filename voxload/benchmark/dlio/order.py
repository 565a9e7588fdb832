"""Order: which samples a rank takes in an epoch, as DLIO deals them; pure.

With a spatial grid the ranks of a sample group share the samples that DLIO deals to each of them: in a step of theirs
the group takes the batches of all its ranks, of which each rank has its blocks. So a rank is given as many bytes as
DLIO reckons, every sample is used once, and steps and samples per second that DLIO prints stay true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Any

Place = tuple[str, int]
"""A sample: its file and its number in that."""


def in_turns(orders: Sequence[Sequence[Any]], size: int) -> list[Any]:
    """Return what several lists hold, in turns of `size` from each."""
    turns = zip_longest(*(_pieces(order, size) for order in orders), fillvalue=())
    return [one for turn in turns for piece in turn for one in piece]


def by_index(numbers: Sequence[int], files: Sequence[str], *, per_file: int) -> list[Place]:
    """Return the samples that DLIO's index sampler numbers: file by file."""
    return [(files[number // per_file], number % per_file) for number in numbers]


def by_thread(listed: Mapping[int, Sequence[tuple[int, str, int]]], batch_size: int) -> list[Place]:
    """Return the samples that DLIO's iterative sampler lists for each of its threads, batch by batch in turns."""
    orders = [[(path, int(place)) for _, path, place in listed[thread]] for thread in sorted(listed)]
    return in_turns(orders, batch_size)


class EpochOrder:
    """A sampler for torch's loader that yields what was put into it last."""

    def __init__(self) -> None:
        self.indices: Sequence[int] = ()

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return len(self.indices)


def _pieces(order: Sequence[Any], size: int) -> Iterator[tuple[Any, ...]]:
    rest = iter(order)
    while piece := tuple(islice(rest, size)):
        yield piece
