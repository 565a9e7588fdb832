"""Workload: what a simulated training run does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from voxload.errors import UsageError
from voxload.prefetch.line import EpochOrder, Ints, Line


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

    def __post_init__(self) -> None:
        if not self.orders or not self.steps:
            raise UsageError("workload", found="no step", expected="one or more")
        if self.lines < 1 or self.compute < 0:
            raise UsageError(
                "workload", found=f"{self.lines} lines, {self.compute} s a step", expected="1 or more, 0 s"
            )
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
