"""Bound: what no policy can beat; computed without any simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from voxload.errors import UsageError
from voxload.prefetch.line import EpochOrder, Held, Ints, Line
from voxload.prefetch.policies.uses import order_of
from voxload.prefetch.simulation.machine import Machine
from voxload.prefetch.simulation.optimum import reads_of_optimum
from voxload.prefetch.simulation.workload import Workload


@dataclass(frozen=True, slots=True)
class Bound:
    """Seconds that perfect prefetching needs of each thing at least; it overlaps all of them perfectly."""

    compute: float
    """All steps."""
    storage: float
    """Every block that is used, once, at the best rate that the storage has for so many ranks."""
    slots: float
    """All batches through the staging slots, from all sources of a rank at once."""
    order: float
    """Blocks in the order of their first uses: those up to some step from the storage, then the steps from it on."""

    @property
    def seconds(self) -> float:
        """The bound: the largest of them."""
        return max(self.compute, self.storage, self.slots, self.order)


def lower_bound(machine: Machine, workload: Workload) -> Bound:
    """Return the seconds below which no policy ends."""
    rate = machine.storage.read.best(workload.line.groups * workload.lines) / workload.lines
    arrivals = machine.storage.latency + _first_uses(workload) / rate
    steps_left = workload.steps - np.arange(workload.steps)
    return Bound(
        compute=workload.compute_seconds,
        storage=float(arrivals[-1]),
        slots=_slot_seconds(machine, workload),
        order=float(np.max(arrivals + steps_left * workload.compute)),
    )


def _first_uses(workload: Workload) -> Ints:
    """Return, for each step, the bytes of one line's storage that hold all blocks used until then."""
    steps = [
        np.repeat(np.arange(order.steps), order.samples.shape[0] * order.samples.shape[2]) for order in workload.orders
    ]
    first = np.cumsum([0, *(order.steps for order in workload.orders)])
    numbers = np.concatenate([step + begin for step, begin in zip(steps, first, strict=False)])
    samples = np.concatenate([order.samples.transpose(1, 0, 2).ravel() for order in workload.orders])
    used, places = np.unique(samples, return_index=True)
    is_sample = used >= 0
    sums = np.bincount(
        numbers[places[is_sample]], weights=workload.read_sizes[used[is_sample]], minlength=workload.steps
    )
    return np.cumsum(sums).astype(np.int64)


def _slot_seconds(machine: Machine, workload: Workload) -> float:
    """Return the seconds in which the rank with most bytes fills a slot for each of its batches, and uses it.

    A batch has a slot to itself while it is fetched and for the step that uses it; nor can batches come faster than all
    sources of a rank together give bytes.
    """
    sizes = sum((workload.sizes_of(order).sum(axis=(1, 2)) for order in workload.orders), np.zeros(1, np.int64))
    fill = int(np.max(sizes)) / _inflow(machine)
    slots = machine.slots(workload.batch_bytes)
    return max(fill, (fill + workload.compute_seconds) / slots)


def _inflow(machine: Machine) -> float:
    """Return the most bytes per second that a rank gets, from all its sources at once and alone on its node."""
    local = [machine.memory, machine.disk] if machine.disk else [machine.memory]
    most = [tier.read.best(tier.threads) for tier in local]
    return sum(most, machine.network.rate)


def optimum_storage_bytes(orders: Sequence[EpochOrder], line: Line) -> int:
    """Return the bytes that one line must at least read from the storage, whatever it keeps.

    Belady's MIN with bypass over the accesses of all groups, with one cache of all their rooms; see `fewest_reads`.
    Placements never read less. Planners may, by a little: a block fetched ahead lies in its slot, no longer in a tier.

    Raises
    ------
    UsageError
        Blocks have unequal sizes: no such bound is known for them.
    """
    return int(fewest_reads(line, Held.nothing(), orders).sum()) * int(line.sizes[0])


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
    is_read = reads_of_optimum(accesses, room, held=held.sample)
    bounds = np.cumsum([0, *(len(each) for each in epochs)])
    return np.array([is_read[begin:end].sum() for begin, end in pairwise(bounds)], np.int64)
