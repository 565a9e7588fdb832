"""Access and Step: what a planner knows of one block that is to come, and of the batch that it belongs to."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from voxload.prefetch.events import Part, Source


class Lane(enum.IntEnum):
    """What fetches queue for: each has its own number of fetches under way at once."""

    LOCAL = 0
    """This rank's own memory and disk."""
    PEER = 1
    AWAITED = 2
    """Peers that may have to wait for the block."""
    STORAGE = 3


class Phase(enum.Enum):
    """How far an access has come."""

    QUEUED = "queued"
    """In a lane."""
    PARKED = "parked"
    """Waits for a time, for a step, or for a store of this rank's own."""
    FLYING = "flying"
    """Its fetch is under way."""
    THERE = "there"
    FAILED = "failed"
    """No place has it, the storage included."""


@dataclass(slots=True, eq=False)
class Access:
    """One block of one batch."""

    step: Step
    place: int
    sample: int
    owner: int
    """As planned."""
    ready: int
    keep: int
    file: int
    """What it can be fetched along with."""
    phase: Phase = Phase.PARKED
    stamp: int = 0
    """Which entry in a queue is its own; those with another stamp are void."""
    lane: Lane | None = None
    """Where it is queued."""
    refused: set[Source] = field(default_factory=set)
    """Places that are not asked for it again."""
    wrongs: int = 0
    absent_since: float | None = None
    """When a peer first said that it has not got the block."""
    is_alone: bool = False
    """Whether it is fetched by itself, because a fetch of several failed."""
    ticket: int = -1
    """Of the fetch that failed for good."""
    is_kept: bool = False
    """Whether nothing is left to be stored of it."""

    @property
    def key(self) -> tuple[int, int]:
        """Order of need: step, then place."""
        return self.step.number, self.place

    @property
    def part(self) -> Part:
        """The block and where it goes, as instructions name it."""
        return Part(step=self.step.number, place=self.place, sample=self.sample, slot=self.step.slot)


@dataclass(slots=True, eq=False)
class Step:
    """One batch that is being filled."""

    number: int
    slot: int
    accesses: list[Access] = field(default_factory=list)
    missing: int = 0
    """Blocks that are neither there nor failed."""
    to_keep: int = 0
    """Blocks that are yet to be stored."""
    busy: int = 0
    """Fetches into the slot and stores out of it that are under way."""
    is_cut: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.missing == 0 and self.to_keep == 0

    @property
    def failure(self) -> int:
        """Ticket of the first block that failed for good; -1: all are there."""
        return next((access.ticket for access in self.accesses if access.phase is Phase.FAILED), -1)


@dataclass(frozen=True, slots=True)
class Flight:
    """A fetch under way."""

    source: Source
    lane: Lane
    accesses: tuple[Access, ...]
    nbytes: int
    wait: float
    since: float
