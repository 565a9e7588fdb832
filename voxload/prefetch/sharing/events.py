"""Events and instructions: all that passes between the shared planner and whoever carries its plans out."""

from __future__ import annotations

from dataclasses import dataclass

from voxload.prefetch.line import Ints


@dataclass(frozen=True, slots=True)
class Began:
    """A job is there, which uses nothing yet."""

    now: float
    job: int


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


@dataclass(frozen=True, slots=True)
class Lost:
    """A unit is not there any more, though nobody asked for that."""

    now: float
    unit: int


@dataclass(frozen=True, slots=True)
class RoomChanged:
    """There is another amount of room."""

    now: float
    room: int


Event = Began | Foreseen | Reached | Wanted | Ended | ReadDone | Lost | RoomChanged


@dataclass(frozen=True, slots=True)
class Read:
    """Read a unit from the storage and keep it; `ReadDone` says what came of it."""

    unit: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget a unit, before anything that comes after this."""

    unit: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Tell a job that waits for a unit whether it is there; if not, it cannot be had from here."""

    job: int
    unit: int
    is_there: bool


Instruction = Read | Drop | Answer
