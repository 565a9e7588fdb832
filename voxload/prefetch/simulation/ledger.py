"""Ledger: what a simulated run has moved and when its steps were."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from voxload.prefetch.events import From
from voxload.prefetch.line import DISK, MEMORY
from voxload.prefetch.simulation.demand import Demand
from voxload.prefetch.simulation.outcome import EpochOutcome


@dataclass(slots=True)
class _Epoch:
    end: float = 0.0
    stall: float = 0.0
    read: int = 0


@dataclass(slots=True)
class Ledger:
    """Bytes of one line, and the times of its steps."""

    delivered: Counter[From] = field(default_factory=Counter)
    """Bytes by the place they came from."""
    stored: Counter[From] = field(default_factory=Counter)
    """Bytes by the tier they were written into."""
    stall: float = 0.0
    now: float = 0.0
    _epochs: dict[int, _Epoch] = field(default_factory=dict)
    _read: int = 0
    """Bytes read from the storage since the last step began."""

    def fetched(self, source: From, nbytes: int) -> None:
        """Count bytes that came from a place."""
        self.delivered[source] += nbytes
        if source is From.STORAGE:
            self._read += nbytes

    def add(self, moved: Demand) -> None:
        """Count a step's bytes."""
        self.fetched(From.STORAGE, int(moved.read.sum()))
        self.fetched(From.MEMORY, int(moved.own[MEMORY].sum()))
        self.fetched(From.DISK, int(moved.own[DISK].sum()))
        self.fetched(From.PEER, int(moved.inbound.sum()))
        self.stored[From.MEMORY] += int(moved.kept[MEMORY].sum())
        self.stored[From.DISK] += int(moved.kept[DISK].sum())

    def step(self, epoch: int, *, begin: float, end: float) -> None:
        """Count a step; steps come in order."""
        found = self._epochs.setdefault(epoch, _Epoch())
        found.stall += begin - self.now
        found.end = end
        found.read += self._read
        self._read = 0
        self.stall += begin - self.now
        self.now = end

    def delivered_bytes(self, lines: int) -> dict[From, int]:
        """Return the bytes of all lines by the place they came from."""
        return {source: self.delivered[source] * lines for source in From}

    def stored_bytes(self, lines: int) -> dict[From, int]:
        """Return the bytes of all lines by the tier they were written into."""
        return {tier: self.stored[tier] * lines for tier in (From.MEMORY, From.DISK)}

    def epochs(self, lines: int) -> tuple[EpochOutcome, ...]:
        """Return the epochs, with the bytes of all lines."""
        before, outcomes = 0.0, []
        for epoch, found in self._epochs.items():
            outcomes.append(
                EpochOutcome(epoch, seconds=found.end - before, stall=found.stall, storage_bytes=found.read * lines)
            )
            before = found.end
        return tuple(outcomes)
