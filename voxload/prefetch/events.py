"""Events and instructions: all that passes between a planner and whoever carries its plans out."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class SourceKind(enum.Enum):
    """Kinds of places that blocks come from."""

    STORAGE = "storage"
    MEMORY = "memory"
    """This rank's own."""
    DISK = "disk"
    """This rank's own."""
    PEER = "peer"
    SERVICE = "service"
    """The node's, which is asked in the storage's place."""


@dataclass(frozen=True, slots=True)
class Source:
    """A place that a block comes from."""

    kind: SourceKind
    group: int = -1
    """Of a peer: its sample group."""


class Failure(enum.Enum):
    """Why a fetch failed."""

    ABSENT = "absent"
    """The block is not there, or not yet."""
    WRONG = "wrong"
    """It is damaged there."""
    LOST = "lost"
    """Whoever has it does not answer."""
    ERROR = "error"
    """The storage raised an error: nothing but the consumer can be told."""


@dataclass(frozen=True, slots=True)
class SlotFree:
    """A staging slot can be filled."""

    now: float
    slot: int


@dataclass(frozen=True, slots=True)
class FetchDone:
    """All parts of a fetch are in their places."""

    now: float
    ticket: int
    nbytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class FetchFailed:
    """Nothing of a fetch is to be trusted; its places may be written to again."""

    now: float
    ticket: int
    failure: Failure
    seconds: float


@dataclass(frozen=True, slots=True)
class Stored:
    """A store ended; the block is in the tier or, where `is_kept` is False, is not."""

    now: float
    sample: int
    is_kept: bool


@dataclass(frozen=True, slots=True)
class Delivered:
    """The consumer has the batch of a step."""

    now: float
    step: int


@dataclass(frozen=True, slots=True)
class PeerLost:
    """A group's rank is gone: nothing more is asked of it."""

    now: float
    group: int


@dataclass(frozen=True, slots=True)
class Waited:
    """Time passed in which nothing else happened; asked for by `Wake`."""

    now: float


Event = SlotFree | FetchDone | FetchFailed | Stored | Delivered | PeerLost | Waited


@dataclass(frozen=True, slots=True)
class Part:
    """One block of a fetch, and where it goes."""

    step: int
    place: int
    """In the batch."""
    sample: int
    slot: int
    is_stored: bool = False
    """Whether it is stored out of the slot afterwards: then all of it has to come there."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """Bring blocks from one place; several where they lie in one file of the storage and cost less together."""

    ticket: int
    source: Source
    parts: tuple[Part, ...]
    wait: float = 0.0
    """Seconds that a peer may wait for a block that is to come."""


@dataclass(frozen=True, slots=True)
class Store:
    """Store a block out of its slot, which stays as it is until `Stored` came."""

    part: Part
    tier: int
    """MEMORY or DISK."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget a block of this rank's own."""

    sample: int


@dataclass(frozen=True, slots=True)
class Ready:
    """All blocks of a step are in its slot, and what is to be stored of them is stored."""

    step: int
    slot: int


@dataclass(frozen=True, slots=True)
class Failed:
    """A step cannot be delivered: the storage failed for one of its blocks."""

    step: int
    slot: int
    ticket: int
    """The fetch whose error says why."""


@dataclass(frozen=True, slots=True)
class Wake:
    """Send `Waited` at this time, unless another event comes before."""

    at: float


Instruction = Fetch | Store | Drop | Ready | Failed | Wake
