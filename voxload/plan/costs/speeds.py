"""Speeds: how fast a machine computes and sends, as far as a plan needs to know; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from voxload.engine.observe import Messages
from voxload.grid import ProcessGrid
from voxload.plan.trace.operation import Operation


class Kernels(Protocol):
    """Says how long operations take on one rank while its neighbours are as busy."""

    def seconds(self, operation: Operation, /) -> float:
        """Return how long an operation takes; 0 for one that only other ranks take part in."""
        ...


@dataclass(frozen=True, slots=True)
class Roofline:
    """Kernels that are bound by arithmetic or by memory (Williams et al., Roofline, CACM 2009).

    Of figures that a vendor publishes, a share is what convolutions reach.
    """

    flops: float
    """Floating-point operations a second that convolutions and products of matrices reach."""
    bandwidth: float
    """Bytes a second that all others read and write."""
    launch: float = 0.0
    """Seconds of an operation however small it is."""

    def seconds(self, operation: Operation) -> float:
        """See Kernels."""
        if operation.exchanged is not None:  # its copies are messages' own
            return 0.0
        return self.launch + max(operation.flops / self.flops, operation.moved / self.bandwidth)


@dataclass(frozen=True, slots=True)
class Link:
    """Messages between two ranks: ``latency + bytes * seconds_per_byte``."""

    latency: float
    """Seconds."""
    seconds_per_byte: float


@dataclass(frozen=True, slots=True)
class Fabric:
    """What connects ranks: one kind of link within a node, and another one between nodes.

    Ranks are numbered node by node. The links of a node to others are shared by its ranks that use them at once.
    """

    ranks_per_node: int
    within: Link
    between: Link

    def exchange(self, messages: Messages, grid: ProcessGrid) -> float:
        """Return how long messages take that all ranks of a line send at once; both directions run together.

        `grid` is seen from the rank that sends these.
        """
        if not messages.sent and not messages.received:
            return 0.0
        line = grid.axis_ranks(messages.axis)
        link, share = (self.within, 1) if self._is_near(line) else (self.between, self._crossing(grid, messages.axis))
        return link.latency + max(sum(messages.sent), sum(messages.received)) * link.seconds_per_byte * share

    def all_reduce(self, nbytes: int, ranks: Sequence[int]) -> float:
        """Return how long a sum takes over ranks in a ring (Thakur et al. 2005): ``2 (p - 1) (a + n / p * b)``."""
        count = len(ranks)
        if count < 2:
            return 0.0
        link = self.within if self._is_near(ranks) else self.between
        return 2 * (count - 1) * (link.latency + nbytes / count * link.seconds_per_byte)

    def _is_near(self, ranks: Sequence[int]) -> bool:
        return len({rank // self.ranks_per_node for rank in ranks}) == 1

    def _crossing(self, grid: ProcessGrid, axis: int) -> int:
        """Return how many ranks of this node have a neighbour along an axis on another one, at least one."""
        node = grid.rank // self.ranks_per_node
        first = node * self.ranks_per_node
        count = 0
        for rank in range(first, min(first + self.ranks_per_node, grid.world_size)):
            line = grid.at(rank).axis_ranks(axis)
            place = line.index(rank)
            count += not self._is_near(line[max(place - 1, 0) : place + 2])
        return max(count, 1)
