"""GadgetSnapshot: the particles of a Gadget snapshot, file after file and type after type, whatever its files are."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from voxload.convert.gridding.gadget import GadgetHeader
from voxload.convert.gridding.particles import Batch, Masses, Positions, Snapshot
from voxload.convert.gridding.positions import mass_of, runs

T = TypeVar("T")
_SUM_SIZE = 2**18
"""Masses that are added up at once."""


class OpenPart(Protocol):
    """One file of a snapshot, open for reading; for one thread."""

    def read_positions(self, kind: int, *, run: tuple[int, int]) -> Positions:
        """Return the positions of a run of the particles of a type, in this machine's byte order."""
        ...

    def read_masses(self, kind: int, *, run: tuple[int, int]) -> Masses:
        """Return their masses; one for all where the header has it. Raises DataError on what is no mass."""
        ...


@dataclass(frozen=True, slots=True)
class GadgetSnapshot:
    """One snapshot of one file or several, in the formats that can open a part of it."""

    snapshot: Snapshot
    """What is known of it."""
    parts: tuple[GadgetHeader, ...]
    """The headers of its files."""
    open_part: Callable[[GadgetHeader], AbstractContextManager[OpenPart]]
    """Opens a file that has particles; raises DataError and StorageError. Can be sent to other processes."""

    def describe(self) -> Snapshot:
        """Return what is known of the particles."""
        return self.snapshot

    def batches(self, size: int) -> Generator[Batch, None, None]:
        """Yield all particles, file after file, type after type."""
        return self._each(size, _batch)

    def total_mass(self) -> float:
        """Return the mass of all particles."""
        return math.fsum(self._each(_SUM_SIZE, _mass))

    def _each(self, size: int, read: Callable[[OpenPart, int, tuple[int, int]], T]) -> Generator[T, None, None]:
        """Yield what is read of each run of at most `size` particles, while its file is open."""
        for header in self.parts:
            if not any(header.counts):
                continue
            with self.open_part(header) as part:
                for kind in self.snapshot.types:
                    for run in runs(header.counts[kind], size):
                        yield read(part, kind, run)


def _batch(part: OpenPart, kind: int, run: tuple[int, int]) -> Batch:
    return part.read_positions(kind, run=run), part.read_masses(kind, run=run)


def _mass(part: OpenPart, kind: int, run: tuple[int, int]) -> float:
    return mass_of(part.read_masses(kind, run=run), run[1] - run[0])
