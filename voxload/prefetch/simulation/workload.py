"""Workload: what a simulated training run does, on which size of data set.

Regimes: data sets of four sizes against the room of a machine, in which policies differ in kind. The four cases of N.
Dryden et al., SC'21 (arXiv 2101.08734), section 6; d1 is the memory of a rank, D its memory and disk, N the number of
ranks of a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from voxload.errors import UsageError
from voxload.prefetch.line import EpochOrder, Ints, Line
from voxload.prefetch.order.dealing import LOCALITIES
from voxload.prefetch.simulation.machine import Machine


@dataclass(frozen=True)
class Workload:
    """The epochs of training that are simulated: orders, blocks, and the seconds of a step."""

    line: Line
    orders: Sequence[EpochOrder]
    """Of all epochs, one after the other."""
    compute: float
    """Seconds that all groups compute on a step's batch, together."""
    lines: int = 1
    """How many equal lines share the storage: the ranks of a group."""
    storage_sizes: Ints | None = None
    """Bytes that a block costs the storage, by sample index; None: those of a tier."""
    locality: str | None = None
    """``batch``: the samples of each step are dealt to groups that keep them; ``epochs``: the orders are reordered;
    None: as the orders say."""

    def __post_init__(self) -> None:
        if not self.orders or not self.steps:
            raise UsageError("workload", found="no step", expected="one or more")
        if self.lines < 1 or self.compute < 0:
            raise UsageError(
                "workload", found=f"{self.lines} lines, {self.compute} s a step", expected="1 or more, 0 s"
            )
        if self.locality not in (None, *LOCALITIES):
            raise UsageError("locality", found=repr(self.locality), expected=f"one of {list(LOCALITIES)}, or None")
        for order in self.orders:
            if order.samples.shape[0] != self.line.groups:
                found = f"an order of {order.samples.shape[0]} groups"
                raise UsageError("workload", found=found, expected=f"{self.line.groups}, as the line has")

    @property
    def steps(self) -> int:
        """Steps of all epochs."""
        return sum(order.steps for order in self.orders)

    @property
    def compute_seconds(self) -> float:
        """Seconds of computing, all epochs together."""
        return self.steps * self.compute

    @cached_property
    def read_sizes(self) -> Ints:
        """Bytes that each block costs the storage."""
        return self.line.sizes if self.storage_sizes is None else self.storage_sizes

    @cached_property
    def batch_bytes(self) -> int:
        """Bytes of the largest batch of any group: what a staging slot holds."""
        return max(int(self.sizes_of(order).sum(axis=2).max(initial=0)) for order in self.orders)

    def sizes_of(self, order: EpochOrder) -> Ints:
        """Return the bytes of each access, 0 where there is none."""
        sizes: Ints = np.where(order.samples >= 0, self.line.sizes[order.samples], 0)
        return sizes


@dataclass(frozen=True, slots=True)
class Regime:
    """A size of data set."""

    name: str
    nbytes: int
    """Of one line's blocks of the whole data set."""


def regimes(machine: Machine, groups: int) -> tuple[Regime, ...]:
    """Return data sets in the middle of the first three regimes, and one a quarter larger than all room together.

    A machine without disk has no second regime. Raises UsageError for a single group, which has no third.
    """
    if groups < 2:
        raise UsageError("--groups", found=f"{groups}", expected="2 or more: one has no peers", remedy="see --regimes")
    room = machine.room
    memory, own = room.memory, room.memory + room.disk
    line = groups * own
    found = [
        Regime("S < d1: one rank's memory holds all", memory // 2),
        Regime("d1 < S < D: one rank's memory and disk hold all", (memory + own) // 2),
        Regime("D < S < N D: only all ranks together hold all", (own + line) // 2),
        Regime("N D < S: all ranks together do not hold all", line + line // 4),
    ]
    return tuple(regime for regime in found if room.disk or not regime.name.startswith("d1"))
