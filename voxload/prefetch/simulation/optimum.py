"""Optimum: how little one cache can read that knows all that is to come; pure."""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

from voxload.prefetch.line import Ints


def reads_of_optimum(accesses: Ints, room: int, *, held: Ints | None = None) -> npt.NDArray[np.bool_]:
    """Return which accesses of one cache's are read where as few are as can be; pure.

    Belady's MIN with bypass: no way to use a cache of so many blocks, of one size, reads less (Belady 1966).

    Parameters
    ----------
    accesses
        Numbers of blocks, in the order in which they are used.
    room
        Blocks that the cache holds.
    held
        Those that it holds at the start.
    """
    following = following_uses(accesses)
    never = len(accesses)
    kept = dict.fromkeys([] if held is None else held.tolist(), never)
    first_uses = np.unique(accesses, return_index=True)
    kept |= {s: use for s, use in zip(*(each.tolist() for each in first_uses), strict=True) if s in kept}
    last = [(-use, sample) for sample, use in kept.items()]
    heapq.heapify(last)
    is_read = np.zeros(len(accesses), np.bool_)
    for number, (sample, use) in enumerate(zip(accesses.tolist(), following.tolist(), strict=True)):
        if sample not in kept:
            is_read[number] = True
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
    return is_read


def following_uses(accesses: Ints) -> Ints:
    """Return the number of each access's block's next access; the number of accesses where there is none."""
    order = np.argsort(accesses, kind="stable")
    is_same = accesses[order][:-1] == accesses[order][1:]
    following = np.full(len(accesses), len(accesses), np.int64)
    following[order[:-1][is_same]] = order[1:][is_same]
    return following
