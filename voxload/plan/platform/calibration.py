"""Calibration: what was measured on a machine, as its file keeps it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from voxload.plan.costs.kernels import KernelPoints


class Company(enum.Enum):
    """What a rank has to do with others of its node, on which it depends how long it computes."""

    APART = "apart"
    """Nothing, but that they share cores and memory."""
    REPLICAS = "replicas"
    """Gradients are averaged."""
    BLOCKS = "blocks"
    """They have blocks of one sample."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """What ranks of one node take together, by how many there are; of one rank, nothing but `computing`."""

    ranks: int
    computing: float = 1.0
    """Times what an operation took when operations were timed, for ranks that are apart."""
    replicas: float = 1.0
    """Times that again, where gradients are averaged: each waits for the slowest, and computes while others wait."""
    blocks: float = 1.0
    """The same where ranks have blocks of one sample."""
    latency: float = 0.0
    """Seconds that an exchange between blocks takes from all of them however small it is, in a step that computes."""
    seconds_per_byte: float = 0.0
    sum_latency: float = 0.0
    """Seconds of a sum over all of them however small it is, in a step that computes."""
    sum_seconds_per_byte: float = 0.0
    gradients: float = 0.0
    """Seconds that averaging gradients adds to a step, beside sums themselves."""
    jitter: float = 0.0
    """Times the square root of the seconds that ranks computed since they last met: what one waits for the other."""
    error: float = 0.0
    """Median of how far off a step is that is told from these, as a share of it."""

    def of(self, company: Company) -> float:
        """Return how many times as long an operation takes as it was timed to."""
        shares = {Company.APART: 1.0, Company.REPLICAS: self.replicas, Company.BLOCKS: self.blocks}
        return self.computing * shares[company]


@dataclass(frozen=True, slots=True)
class MeasuredStorage:
    """What was measured, all bytes a second by how many did so at once."""

    latency: float
    """Seconds of a request of one page."""
    reads: tuple[tuple[int, float], ...]
    """Of the folder, past the page cache."""
    copies: tuple[tuple[int, float], ...]
    """Of memory."""
    decoding: float
    """Of one thread: decoded bytes of 16-bit counts that Blosc compressed with zstd and a bit shuffle."""
    room: int
    """Bytes of the node's memory that are free for blocks: half of what nobody uses."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured on a machine."""

    ranks: int
    """That shared a node when operations were timed."""
    device: str
    """Type of the device of a rank."""
    name: str
    """Its name."""
    memory: int
    """Its bytes."""
    overheads: tuple[float, ...]
    """Seconds from one operation to the next, of each part of a step in order."""
    kernels: tuple[KernelPoints, ...]
    sharing: tuple[Sharing, ...]
    """By ascending numbers of ranks."""

    def shared_by(self, ranks: int) -> Sharing:
        """Return what so many ranks of a node take; of numbers that were not measured, what the next larger one does.

        More ranks than the largest number share the cores that it had.
        """
        if not self.sharing:
            return Sharing(ranks, computing=max(1.0, ranks / self.ranks))
        return min(self.sharing, key=lambda each: (each.ranks < ranks, abs(each.ranks - ranks)))
