"""Speeds: how fast a machine computes and sends, as far as a plan needs to know; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Protocol

from voxload.engine.observe import Messages, Total
from voxload.grid import ProcessGrid
from voxload.plan.trace.operation import Operation


class Kernels(Protocol):
    """Says how long operations take on one rank while its neighbours are as busy."""

    def seconds(self, operation: Operation, /) -> float:
        """Return how long an operation takes, beside what its messages do."""
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
    others: Mapping[str, float] = field(default_factory=dict)
    """Operations a second of tensors of other types, by the name of the type."""

    def seconds(self, operation: Operation) -> float:
        """See Kernels."""
        if operation.exchanged is not None:  # a block is copied to be joined with its halos; sums are small
            return operation.moved / self.bandwidth if isinstance(operation.exchanged, Messages) else 0.0
        flops = self.others.get(operation.dtype, self.flops)
        return self.launch + max(operation.flops / flops, operation.moved / self.bandwidth)


@dataclass(frozen=True, slots=True)
class Link:
    """Messages between two ranks: ``latency + bytes * seconds_per_byte``."""

    latency: float
    """Seconds."""
    seconds_per_byte: float


@dataclass(frozen=True, slots=True)
class Path:
    """A link, and how many ranks of a node use it at once."""

    link: Link
    sharing: int

    def exchange(self, messages: Messages) -> float:
        """Return how long messages take; both directions run together."""
        if not messages.sent and not messages.received:
            return 0.0
        return self.message(max(sum(messages.sent), sum(messages.received)))

    def message(self, nbytes: int) -> float:
        """Return how long one takes."""
        return self.link.latency + nbytes * self.link.seconds_per_byte * self.sharing


@dataclass(frozen=True, slots=True)
class Fabric:
    """What connects ranks: one kind of link within a node, and another one between nodes.

    Ranks are numbered node by node. The links of a node to others are shared by its ranks that use them at once.
    """

    ranks_per_node: int
    within: Link
    between: Link
    sums: Link | None = None
    """Sums over all ranks of a node, as they were measured: its latency, and seconds for each byte."""
    gradients: float = 0.0
    """Seconds that averaging gradients adds to a step, beside sums themselves."""
    jitter: float = 0.0
    """Times the square root of the seconds that ranks computed since they last met: what one waits for the other."""

    def late(self, computed: float) -> float:
        """Return how long ranks wait for one another that have computed so many seconds since they last met.

        What holds one up and not the others comes now and then: it grows as the way of a random walk does.
        """
        return self.jitter * sqrt(computed)

    def steady(self, computed: float) -> Fabric:
        """Return a fabric where ranks always wait for one another as behind so many seconds of computing."""
        wait = self.late(computed)
        within = replace(self.within, latency=self.within.latency + wait)
        sums = None if self.sums is None else replace(self.sums, latency=self.sums.latency + wait)
        return replace(self, within=within, sums=sums, jitter=0.0)

    def along(self, axis: int, grid: ProcessGrid) -> Path:
        """Return the way of messages along an axis that all ranks of a line send at once.

        `grid` is seen from the rank that sends them.
        """
        if self._is_near(grid.axis_ranks(axis)):
            return Path(self.within, 1)
        return Path(self.between, self._crossing(grid, axis))

    def beside(self, rank: int, other: int, sharing: int) -> Path:
        """Return the way from a rank to another, which `sharing` ranks of a node take to others at once."""
        if self._is_near((rank, other)):
            return Path(self.within, 1)
        return Path(self.between, min(sharing, self.ranks_per_node))

    def waits(self, grid: ProcessGrid) -> Waits:
        """Return how long the rank from which `grid` is seen waits for what operations exchange."""
        return Waits(self, grid)

    def all_reduce(self, nbytes: int, ranks: Sequence[int]) -> float:
        """Return how long a sum takes over ranks in a ring (Thakur et al. 2005): ``2 (p - 1) (a + n / p * b)``."""
        count = len(ranks)
        if count < 2:
            return 0.0
        is_near = self._is_near(ranks)
        if is_near and self.sums is not None:
            # Two ranks wait for one another as they do for halos, all of them for the slowest.
            share = (count - 2) / (self.ranks_per_node - 2) if self.ranks_per_node > 2 else 1.0
            latency = self.within.latency + share * (self.sums.latency - self.within.latency)
            return latency + nbytes * self.sums.seconds_per_byte
        link = self.within if is_near else self.between
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


class Waits:
    """How long one rank of a grid waits for what its operations exchange."""

    def __init__(self, fabric: Fabric, grid: ProcessGrid) -> None:
        self._fabric, self._grid = fabric, grid
        self._paths = {axis: fabric.along(axis, grid) for axis, count in enumerate(grid.spatial) if count > 1}

    def halos(self, operation: Operation) -> float:
        """Return seconds for messages between blocks; 0 for an operation without any."""
        exchanged = operation.exchanged
        if not isinstance(exchanged, Messages) or exchanged.axis not in self._paths:
            return 0.0
        return self._paths[exchanged.axis].exchange(exchanged)

    def sums(self, operation: Operation) -> float:
        """Return seconds for sums over ranks; 0 for an operation without any."""
        exchanged = operation.exchanged
        if not isinstance(exchanged, Total):
            return 0.0
        ranks: Sequence[int] = range(self._grid.world_size) if exchanged.is_world else self._grid.group_ranks
        return self._fabric.all_reduce(exchanged.nbytes, ranks)
