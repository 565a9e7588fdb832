"""Ledger: the account of a simulated run, from the demand of each step to the outcome of all epochs."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from voxload.prefetch.cost import PRIORS
from voxload.prefetch.events import SourceKind
from voxload.prefetch.line import DISK, MEMORY, STORAGE, Ints
from voxload.prefetch.placement import Placement
from voxload.prefetch.simulation.bound import Bound
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


class Model(enum.Enum):
    """How time is simulated."""

    EVENTS = "events"
    """Every transfer is an event, and every rank's planner decides; small runs."""
    STEPS = "steps"
    """Bytes by step and source, over all groups at once; large runs."""


@dataclass(frozen=True, slots=True)
class EpochOutcome:
    """One epoch."""

    epoch: int
    seconds: float
    """From the end of the last step before it to the end of its own last step."""
    stall: float
    """Seconds of them in which the groups waited for data."""
    storage_bytes: int
    """Bytes that all ranks read from the storage for it."""
    peer_bytes: int
    """Bytes that came from peers for it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A policy's run on a machine. Bytes are those of all ranks of all lines."""

    policy: str
    model: Model
    seconds: float
    """Compute and stall."""
    compute: float
    """Seconds."""
    stall: float
    """Seconds in which the groups waited for data."""
    bytes_by_source: dict[SourceKind, int]
    """Bytes delivered into staging slots, by the place they came from."""
    stored_bytes: dict[SourceKind, int]
    """Bytes written into memory and disk."""
    epochs: tuple[EpochOutcome, ...]
    bound: Bound
    """What no policy beats."""

    @property
    def storage_bytes(self) -> int:
        """Bytes read from the storage."""
        return self.bytes_by_source[SourceKind.STORAGE]

    @property
    def accelerator_utilisation(self) -> float:
        """Share of the time in which the groups computed."""
        return self.compute / self.seconds if self.seconds else 1.0


@dataclass(slots=True)
class _Epoch:
    end: float = 0.0
    stall: float = 0.0
    read: int = 0
    lent: int = 0


@dataclass(slots=True)
class Ledger:
    """Bytes of one line, and the times of its steps."""

    delivered: Counter[SourceKind] = field(default_factory=Counter)
    """Bytes by the place they came from."""
    stored: Counter[SourceKind] = field(default_factory=Counter)
    """Bytes by the tier they were written into."""
    stall: float = 0.0
    now: float = 0.0
    _epochs: dict[int, _Epoch] = field(default_factory=dict)
    _read: int = 0
    """Bytes read from the storage since the last step began."""
    _lent: int = 0
    """Bytes from peers since then."""

    def fetched(self, source: SourceKind, nbytes: int) -> None:
        """Count bytes that came from a place."""
        self.delivered[source] += nbytes
        if source is SourceKind.STORAGE:
            self._read += nbytes
        elif source is SourceKind.PEER:
            self._lent += nbytes

    def add(self, moved: Demand) -> None:
        """Count a step's bytes."""
        self.fetched(SourceKind.STORAGE, int(moved.read.sum()))
        self.fetched(SourceKind.MEMORY, int(moved.own[MEMORY].sum()))
        self.fetched(SourceKind.DISK, int(moved.own[DISK].sum()))
        self.fetched(SourceKind.PEER, int(moved.inbound.sum()))
        self.stored[SourceKind.MEMORY] += int(moved.kept[MEMORY].sum())
        self.stored[SourceKind.DISK] += int(moved.kept[DISK].sum())

    def step(self, epoch: int, *, begin: float, end: float) -> None:
        """Count a step; steps come in order."""
        found = self._epochs.setdefault(epoch, _Epoch())
        found.stall += begin - self.now
        found.end = end
        found.read += self._read
        found.lent += self._lent
        self._read = self._lent = 0
        self.stall += begin - self.now
        self.now = end

    def delivered_bytes(self, lines: int) -> dict[SourceKind, int]:
        """Return the bytes of all lines by the place they came from."""
        return {source: self.delivered[source] * lines for source in PRIORS}

    def stored_bytes(self, lines: int) -> dict[SourceKind, int]:
        """Return the bytes of all lines by the tier they were written into."""
        return {tier: self.stored[tier] * lines for tier in (SourceKind.MEMORY, SourceKind.DISK)}

    def epochs(self, lines: int) -> tuple[EpochOutcome, ...]:
        """Return the epochs, with the bytes of all lines."""
        before, outcomes = 0.0, []
        for epoch, found in self._epochs.items():
            outcomes.append(
                EpochOutcome(
                    epoch,
                    seconds=found.end - before,
                    stall=found.stall,
                    storage_bytes=found.read * lines,
                    peer_bytes=found.lent * lines,
                )
            )
            before = found.end
        return tuple(outcomes)
