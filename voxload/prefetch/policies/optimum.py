"""Optimum: the fewest reads of the storage that any cache of a line's size could make."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from voxload.errors import UsageError
from voxload.prefetch.held import Held
from voxload.prefetch.line import EpochOrder, Ints, Line
from voxload.prefetch.policies.uses import order_of


def fewest_reads(line: Line, held: Held, orders: Sequence[EpochOrder]) -> Ints:
    """Return a lower bound of the blocks read from the storage, for each epoch.

    Belady's MIN with bypass (Belady 1966) on the accesses of all groups one after the other, with one cache of all
    rooms together, from which a block may go the moment it was used. Only the sum is a bound.

    Raises
    ------
    UsageError
        Blocks have unequal sizes: for them no such bound is known that can be computed.
    """
    sizes = np.unique(line.sizes)
    if len(sizes) != 1:
        raise UsageError("fewest reads", found=f"{len(sizes)} different sizes", expected="blocks of one size")
    size = int(sizes[0])
    room = sum(part // size for each in line.rooms for part in (each.memory, each.disk))
    epochs = [order_of(each, len(line.sizes), line.groups).transpose(1, 0, 2).ravel() for each in orders]
    epochs = [order[order >= 0] for order in epochs]
    accesses = np.concatenate([np.zeros(0, np.int64), *epochs])
    following = _following(accesses)
    never = len(accesses)
    kept = dict.fromkeys(held.sample.tolist(), never)
    first_uses = np.unique(accesses, return_index=True)
    kept |= {s: use for s, use in zip(*(each.tolist() for each in first_uses), strict=True) if s in kept}
    last = [(-use, sample) for sample, use in kept.items()]
    heapq.heapify(last)
    is_read = np.zeros(len(accesses), np.int64)
    for number, (sample, use) in enumerate(zip(accesses.tolist(), following.tolist(), strict=True)):
        if sample not in kept:
            is_read[number] = 1
            if use == never:
                continue
            while last and kept.get(last[0][1]) != -last[0][0]:
                heapq.heappop(last)
            if len(kept) >= room:
                if not last or -last[0][0] < use:
                    continue
                del kept[heapq.heappop(last)[1]]
        kept[sample] = use
        heapq.heappush(last, (-use, sample))
    bounds = np.cumsum([0, *(len(each) for each in epochs)])
    return np.array([is_read[begin:end].sum() for begin, end in pairwise(bounds)], np.int64)


def _following(accesses: Ints) -> Ints:
    """Return the number of each access's sample's next access; the number of accesses where there is none."""
    order = np.argsort(accesses, kind="stable")
    is_same = accesses[order][:-1] == accesses[order][1:]
    following = np.full(len(accesses), len(accesses), np.int64)
    following[order[:-1][is_same]] = order[1:][is_same]
    return following
