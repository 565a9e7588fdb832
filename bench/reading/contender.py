"""Contenders: what takes part in a comparison."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.harness.samples import Field, Sample
from bench.reading.cases import Case
from voxload.benchmark.loaders.blocks import Slices, Stored

WHOLE = (slice(None),) * 3
"""All of one box's part of the buffer."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be read, and where to."""

    sample: Sample
    """The stored volume."""
    case: Case
    """Boxes to read."""
    out: Field
    """Buffer, boxes and then (D, H, W), that all contenders of one process share."""
    expected: Field
    """What the buffer must hold after a read."""
    threads: tuple[int, ...]
    """Numbers of threads asked for."""

    def reads(self) -> list[tuple[Slices, Field]]:
        """Return what is read, box by box, and where to; made before the clock starts, for it is no part of reading."""
        return [(box.slices, out) for box, out in zip(self.case.boxes, self.out, strict=True)]


def nothing() -> None:
    """Do nothing: what most contenders have to do before the clock starts."""


@dataclass(frozen=True, slots=True)
class Session:
    """One contender with its file open."""

    out: Field
    """Where its results lie; the job's buffer unless it cannot write there."""
    read: Callable[[], None]
    """Reads all boxes into `out`; this is what is timed."""
    close: Callable[[], None]
    """Closes the file."""
    prepare: Callable[[], None] = nothing
    """Does what belongs before the clock starts, such as choosing the number of threads."""


def session_of(job: Job, array: Stored, prepare: Callable[[], None] = nothing) -> Session:
    """Return the session that reads one box after the other from a stored array."""
    reads = job.reads()

    def read() -> None:
        for source, out in reads:
            array.read(source, out, WHOLE)

    return Session(job.out, read, array.close, prepare)


@dataclass(frozen=True, slots=True)
class Setting:
    """One way of setting a contender up."""

    label: str
    """What tables call it; empty when there is only one."""
    open: Callable[[Job], Session]
    """Opens the job's sample."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of a table."""

    peer: str
    """Name on the command line; voxload's own is ``voxload``."""
    title: str
    """What tables call it."""
    threads: int
    """Threads or processes that it may use; 0 when it has no such choice."""
    settings: tuple[Setting, ...]
    """Ways of setting it up: the fastest is kept."""
