"""Contenders: what takes part in a comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from bench.reading.cases import Case
from bench.reading.fields import Field
from bench.reading.samples import Sample


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be read, and where to."""

    sample: Sample
    """The stored field."""
    case: Case
    """Boxes to read."""
    out: Field
    """Buffer of shape ``case.shape`` that all contenders of one process share."""
    expected: Field
    """What the buffer must hold after a read."""
    threads: tuple[int, ...]
    """Numbers of threads asked for."""


class Session(Protocol):
    """One contender with its file open."""

    out: Field
    """Where its results lie; the job's buffer unless it cannot write there."""

    def prepare(self) -> None:
        """Do what belongs before the clock starts, such as choosing the number of threads."""
        ...

    def read(self) -> None:
        """Read all boxes into `out`; this is what is timed."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


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


class Peer(Protocol):
    """A module of bench.reading.peers."""

    def entries(self, job: Job) -> Iterable[Entry]:
        """Return the rows for a job; none where the peer cannot read the format."""
        ...
