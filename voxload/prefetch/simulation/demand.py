"""Demand: bytes and requests of a step, by group and by what moves them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voxload.prefetch.line import DISK, MEMORY, STORAGE, Ints
from voxload.prefetch.placement import Placement
from voxload.prefetch.simulation.workload import Workload

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Demand:
    """One step of all groups of a line. Arrays have one value for each group; those of two rows are by tier."""

    read: Ints
    """Bytes from the storage."""
    delivered: Ints
    """The same blocks' bytes once decoded."""
    requests: Ints
    """Blocks from the storage."""
    own: Ints
    """``(2, groups)`` bytes from its own memory and disk."""
    inbound: Ints
    """Bytes from peers."""
    inbound_requests: Ints
    """Blocks from peers."""
    outbound: Ints
    """``(2, groups)`` bytes to peers, out of memory and disk."""
    kept: Ints
    """``(2, groups)`` bytes written into memory and disk."""
    ready: Ints
    """Step from which on all that comes from tiers is there."""


def demands(placement: Placement, workload: Workload) -> Iterator[Demand]:
    """Yield the demand of each step of an epoch."""
    samples, owner = placement.samples, placement.owner
    groups = len(samples)
    is_used = samples >= 0
    sizes = np.where(is_used, workload.line.sizes[samples], 0)
    is_read = is_used & (owner == STORAGE)
    is_own = is_used & (owner == np.arange(groups)[:, None, None])
    is_peer = is_used & ~is_read & ~is_own
    own, outbound, kept = (np.zeros((2, groups, samples.shape[1]), np.int64) for _ in range(3))
    for kind in (MEMORY, DISK):
        is_there = placement.tier == kind
        own[kind] = _sum(sizes, is_own & is_there)
        outbound[kind] = _by_owner(owner, sizes, is_peer & is_there)
        kept[kind] = _sum(sizes, is_used & (placement.keep == kind))
    read = _sum(workload.read_sizes[samples], is_read)
    delivered, inbound = _sum(sizes, is_read), _sum(sizes, is_peer)
    requests, inbound_requests = is_read.sum(axis=2), is_peer.sum(axis=2)
    ready = np.where(is_used & ~is_read, placement.ready, 0).max(axis=2, initial=0)
    for step in range(samples.shape[1]):
        yield Demand(
            read=read[:, step],
            delivered=delivered[:, step],
            requests=requests[:, step],
            own=own[..., step],
            inbound=inbound[:, step],
            inbound_requests=inbound_requests[:, step],
            outbound=outbound[..., step],
            kept=kept[..., step],
            ready=ready[:, step],
        )


def _sum(sizes: Ints, which: npt.NDArray[np.bool_]) -> Ints:
    """Return the bytes of the chosen accesses by group and step."""
    sums: Ints = np.where(which, sizes, 0).sum(axis=2)
    return sums


def _by_owner(owner: npt.NDArray[np.int32], sizes: Ints, which: npt.NDArray[np.bool_]) -> Ints:
    """Return the bytes of the chosen accesses by the group that has them, and step."""
    groups, steps, _ = owner.shape
    _, step, _ = np.nonzero(which)
    sums = np.bincount(owner[which] * np.int64(steps) + step, weights=sizes[which], minlength=groups * steps)
    return sums.astype(np.int64).reshape(groups, steps)
