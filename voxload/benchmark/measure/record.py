"""Record: what one rank measured, step by step, as plain values that ranks send to rank 0; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


def count_difference(after: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return, number by number and for mappings inside too, what was added between two looks.

    A word that was not there before counts from 0.
    """
    found: dict[str, Any] = {}
    for name, value in after.items():
        if isinstance(value, Mapping):
            found[name] = count_difference(value, before.get(name, {}))
        elif isinstance(value, int | float):
            found[name] = value - before.get(name, 0)
    return found


@dataclass(frozen=True, slots=True)
class Steps:
    """An epoch's steps as one rank saw them; all lists have an entry for each step, times in seconds."""

    begin: tuple[float, ...]
    """When the batch was asked for, since the run began on this rank."""
    stall: tuple[float, ...]
    """How long this rank waited for its batch."""
    compute: tuple[float, ...]
    """How long the emulated computing took."""
    peers: tuple[float, ...]
    """How long this rank waited for the others, whose batches came later; 0 without lockstep."""
    samples: tuple[int, ...]
    """Samples of the batch."""
    nbytes: tuple[int, ...]
    """Bytes of the batch as delivered, halo included."""
    alone: tuple[float, ...] = ()
    """How long the computing takes where nothing else runs; empty where it is made to take so long in any case."""

    @property
    def durations(self) -> tuple[float, ...]:
        """How long each step took, from asking for its batch to the end of its computing and waiting."""
        return tuple(sum(times) for times in zip(self.stall, self.compute, self.peers, strict=True))


@dataclass(frozen=True, slots=True)
class Kernel:
    """What the kernel counted for this rank and the processes that it started; differences over some time."""

    asked: int
    """Bytes that read calls returned (rchar of /proc/PID/io): from memory or device. Memory maps do not count."""
    device: int
    """Bytes that storage had to give (read_bytes of /proc/PID/io). Network file systems do not count."""
    cpu: float
    """Seconds of all threads."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch on one rank."""

    steps: Steps
    wall: float
    """Seconds from asking for the first batch to the end of the last step, or of the iterator."""
    kernel: Kernel
    counts: Mapping[str, Any]
    """What the loader counted in this epoch alone."""
    resident: float
    """Share of the data set's pages that were in memory before the epoch, from 0 to 1; NaN where it is unknown."""


@dataclass(frozen=True, slots=True)
class Record:
    """One rank's run."""

    rank: int
    node: str
    """Name of its host."""
    epochs: tuple[Epoch, ...]
    first_batch: float
    """Seconds from building the loader to its first batch."""
    peak_memory: int
    """Most bytes resident at once, of this process and, each by itself, of those that it started (VmHWM)."""
    shared_memory: int
    """Bytes of shared memory that this rank's processes mapped at the end (RssShmem)."""
    wrong: tuple[str, ...] = ()
    """What `verify` found."""
    notes: tuple[str, ...] = field(default=())
    """What a reader has to know: warnings, each once."""
