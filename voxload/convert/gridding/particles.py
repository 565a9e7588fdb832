"""Particles: the contract of a snapshot of particles, with the positions and masses that it gives."""

from __future__ import annotations

import math
import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from voxload.errors import DataError, UsageError

Positions = npt.NDArray[np.floating[Any]]
"""Positions of n particles, (n, 3), in the snapshot's unit of length."""
Masses = npt.NDArray[np.float64]
"""Masses of n particles, or of one array element for all of them."""
Batch = tuple[Positions, Masses]


@dataclass(frozen=True, slots=True)
class ParticleChoice:
    """What the caller says of a snapshot; the defaults let it speak for itself."""

    types: tuple[int, ...] = ()
    """Particle types that are wanted, such as 0 for gas and 1 for dark matter; empty for the only one there is."""
    box_size: float | None = None
    """Edge of the periodic box in the unit of the positions, where the file does not say."""

    def __post_init__(self) -> None:
        if self.box_size is not None and not (self.box_size > 0 and math.isfinite(self.box_size)):
            raise UsageError("--box-size", found=str(self.box_size), expected="a length above 0")
        if len(set(self.types)) != len(self.types) or any(kind < 0 for kind in self.types):
            raise UsageError("--particle-types", found=str(self.types), expected="numbers of 0 or more, each once")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known of the particles that are wanted."""

    files: tuple[Path, ...]
    """Every file that they come from, in the order of reading."""
    sample: str
    """Name of the sample below the first file's folder; empty for that file's own without suffix."""
    kind: str
    """The format in words."""
    count: int
    """Number of particles."""
    box: tuple[float, float, float]
    """Edges of the periodic box, in the unit of the positions."""
    types: tuple[int, ...] = ()
    """Particle types, where the format has any."""
    redshift: float | None = None
    """Redshift, where the file says it."""
    has_masses: bool = True
    """Whether the file says masses; without them each particle has mass 1."""
    scratch_bytes: int = 0
    """Memory that reading takes beside the batch, such as a decompressed chunk."""


class Particles(Protocol):
    """One snapshot of particles.

    Rules: ``describe`` costs no reading of particles. ``batches`` reads by position, never more than one batch at once,
    always in the same order, and closes its files when it ends or is closed. What is broken raises DataError, a
    refusing storage StorageError.
    """

    def describe(self) -> Snapshot:
        """Return what is known of the particles."""
        ...

    def batches(self, size: int) -> Generator[Batch, None, None]:
        """Yield all particles, at most `size` at once, in this machine's byte order."""
        ...

    def total_mass(self) -> float:
        """Return the mass of all particles; reads masses and no positions."""
        ...


def read_at(path: Path, descriptor: int, *, offset: int, length: int) -> bytearray:
    """Return `length` bytes of an open file; raises DataError where the file ends before."""
    content = bytearray(length)
    view, done = memoryview(content), 0
    while done < length:
        count = os.preadv(descriptor, [view[done:]], offset + done)
        if not count:
            raise DataError(
                f"{path}",
                found=f"the end of the file at byte {offset + done}",
                expected=f"{length - done} bytes more",
                remedy="the file is truncated: copy it again",
            )
        done += count
    return content


def native(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the same numbers in this machine's byte order."""
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def runs(count: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the half-open runs of at most `size` that make up `count`."""
    for first in range(0, count, size):
        yield first, min(first + size, count)


def check_masses(path: Path, masses: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return masses as float64; raises DataError when one is negative or no number."""
    found = native(masses).astype(np.float64, copy=False)
    is_bad = ~(np.isfinite(found) & (found >= 0))
    if is_bad.any():
        raise DataError(f"{path}", found=f"mass {found[is_bad][0]}", expected="finite masses of 0 or more")
    return found


def mass_of(masses: npt.NDArray[np.float64], count: int) -> float:
    """Return the mass of `count` particles; `masses` has one for each or one for all."""
    return float(masses[0]) * count if len(masses) == 1 else float(masses.sum())
