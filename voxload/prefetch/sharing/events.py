"""Events and instructions: all that passes between the shared planner and whoever carries its plans out."""

from __future__ import annotations

from dataclasses import dataclass

from voxload.prefetch.line import Ints


@dataclass(frozen=True, slots=True)
class Began:
    """A job is there, which uses nothing yet."""

    now: float
    job: int
    is_pin: bool = False
    """Whether it is none, but keeps what it foresees near: in memory or on disk, as if that were used any moment."""


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What a job will use from a place in its order on; what was foreseen from there on before is forgotten."""

    now: float
    job: int
    place: int
    """At most the end of what was foreseen, at least where the job is."""
    units: Ints
    """In the order of use."""


@dataclass(frozen=True, slots=True)
class Reached:
    """A job has used all that lies before a place in its order."""

    now: float
    job: int
    place: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """A job waits for a unit: it is read before all that nobody waits for."""

    now: float
    job: int
    unit: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A job is gone, with its future and all that it waited for."""

    now: float
    job: int


@dataclass(frozen=True, slots=True)
class ReadDone:
    """A read has ended."""

    now: float
    unit: int
    is_kept: bool
    """Whether the unit is there now."""
    is_on_disk: bool = False
    """Whether it lies on disk, too, as far as the read showed."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A unit was written to disk, or could not be."""

    now: float
    unit: int
    is_kept: bool
    """Whether it lies there now."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A unit is not there any more, though nobody asked for that."""

    now: float
    unit: int


@dataclass(frozen=True, slots=True)
class RoomChanged:
    """There is another amount of room in memory."""

    now: float
    room: int


@dataclass(frozen=True, slots=True)
class ReadsChanged:
    """So many units are read at once from now on."""

    now: float
    reads: int


@dataclass(frozen=True, slots=True)
class Cleared:
    """What no job foresees and no pin keeps is to go, from memory and disk."""

    now: float


@dataclass(frozen=True, slots=True)
class Draining:
    """All comes to its end: what is in memory is to be on disk, as far as there is room."""

    now: float


OfJobs = Began | Foreseen | Reached | Wanted | Ended
OF_JOBS = (Began, Foreseen, Reached, Wanted, Ended)
"""What jobs do."""
Event = OfJobs | ReadDone | Stored | Lost | RoomChanged | ReadsChanged | Cleared | Draining


@dataclass(frozen=True, slots=True)
class Read:
    """Read a unit and keep it in memory; `ReadDone` says what came of it."""

    unit: int
    is_near: bool = False
    """Whether it should lie on disk; else it has to come from the storage."""


@dataclass(frozen=True, slots=True)
class Store:
    """Write a unit that is in memory to disk; `Stored` says what came of it. It stays in memory until then."""

    unit: int


@dataclass(frozen=True, slots=True)
class Erase:
    """Remove a unit from disk, before anything that comes after this."""

    unit: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget a unit in memory, before anything that comes after this."""

    unit: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Tell a job that waits for a unit whether it is there; if not, it cannot be had from here."""

    job: int
    unit: int
    is_there: bool


Instruction = Read | Store | Erase | Drop | Answer
