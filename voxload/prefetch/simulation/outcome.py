"""Outcome: what a simulated run took."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from voxload.prefetch.events import From
from voxload.prefetch.simulation.bound import Bound


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
    bytes_by_source: dict[From, int]
    """Bytes delivered into staging slots, by the place they came from."""
    stored_bytes: dict[From, int]
    """Bytes written into memory and disk."""
    epochs: tuple[EpochOutcome, ...]
    bound: Bound
    """What no policy beats."""

    @property
    def storage_bytes(self) -> int:
        """Bytes read from the storage."""
        return self.bytes_by_source[From.STORAGE]

    @property
    def accelerator_utilisation(self) -> float:
        """Share of the time in which the groups computed."""
        return self.compute / self.seconds if self.seconds else 1.0
