"""GadgetSnapshot: a snapshot of Gadget in one file or several, with what their headers say of the whole.

A snapshot may be cut into several files, ``snap_000.0`` and so on; together they are one sample. Source: User guide for
GADGET-2, section 6 "Snapshot file format", and GADGET-4 documentation, "Snapshot file format".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from voxload.convert.gridding.particles import Batch, Masses, ParticleChoice, Positions, Snapshot, mass_of, runs
from voxload.errors import DataError, UsageError

_PART = re.compile(r"(?P<base>.+)\.(?P<number>\d+)(?P<suffix>\.hdf5|\.h5)?")
_WORD = 2**32
_NAMES = ("gas", "dark matter", "disc or heavy dark matter", "bulge or tracers", "stars", "black holes")


@dataclass(frozen=True, slots=True)
class GadgetHeader:
    """Header of one file."""

    path: Path
    """The file."""
    counts: tuple[int, ...]
    """Particles of each type in this file."""
    totals: tuple[int, ...]
    """Particles of each type in all files; of binary files perhaps without their high words."""
    masses: tuple[float, ...]
    """Mass of every particle of each type; 0 where each has its own."""
    box: tuple[float, float, float]
    """Edges of the periodic box; 0 where there is none."""
    redshift: float | None
    """Redshift."""
    files: int
    """Number of files."""

    def __post_init__(self) -> None:
        numbers = (*self.masses, *self.box, self.redshift or 0.0)
        if min(self.counts) < 0 or self.files < 1 or not all(map(math.isfinite, numbers)):
            raise self._broken("negative or infinite values in the header", "counts of 0 or more and finite numbers")
        if not len(self.counts) == len(self.totals) == len(self.masses):
            raise self._broken(f"{len(self.counts)} counts, {len(self.masses)} masses", "one of each for every type")
        if min(*self.masses, *self.box) < 0:
            raise self._broken("a negative mass or box size", "values of 0 or more")

    def _broken(self, found: str, expected: str) -> DataError:
        return DataError(f"{self.path}", found=found, expected=expected, remedy="the header is damaged or another one")

    def part_files(self) -> tuple[Path, ...]:
        """Return every file of the snapshot; raises UsageError when this one's name does not tell the others'."""
        if self.files == 1:
            return (self.path,)
        match = _PART.fullmatch(self.path.name)
        if match is None or int(match["number"]) >= self.files:
            raise UsageError(
                f"{self.path}",
                found=f"one of {self.files} files of a snapshot under this name",
                expected=f"names that end in .0 to .{self.files - 1}, before .hdf5",
                remedy="give the files back the names that the simulation gave them",
            )
        suffix = match["suffix"] or ""
        return tuple(self.path.with_name(f"{match['base']}.{number}{suffix}") for number in range(self.files))

    def sample(self) -> str:
        """Return the name of the sample without the number of a part; empty where the file is the whole sample."""
        match = _PART.fullmatch(self.path.name)
        return match["base"] if match and self.files > 1 else ""


def read_parts(first: GadgetHeader, read: Callable[[Path], GadgetHeader | None]) -> tuple[GadgetHeader, ...]:
    """Return the headers of all files of a snapshot, which must be there and agree; raises DataError.

    `read` returns the header of a file, None of one that is no snapshot in the format of the first.
    """
    files = first.part_files()
    missing = [path.name for path in files if not path.is_file()]
    if missing:
        raise DataError(
            f"{first.path}",
            found=f"{len(files) - len(missing)} of {len(files)} files of the snapshot, without {missing[0]}",
            expected="all of them in one folder",
        )
    headers = tuple(_header(path, read) for path in files)
    for header in headers:
        for name in ("totals", "masses", "box", "redshift", "files"):
            found, expected = getattr(header, name), getattr(headers[0], name)
            if found != expected:
                raise DataError(
                    f"{header.path}",
                    found=f"{name} {found}",
                    expected=f"{expected}, as {files[0].name} has",
                    remedy="the files are of different snapshots",
                )
    _check_counts(headers)
    return headers


def _header(path: Path, read: Callable[[Path], GadgetHeader | None]) -> GadgetHeader:
    header = read(path)
    if header is None:
        raise DataError(f"{path}", found="another kind of file", expected="a part of a Gadget snapshot, as the others")
    return header


def _check_counts(headers: Sequence[GadgetHeader]) -> None:
    counts = total_counts(headers)
    for kind, (count, total) in enumerate(zip(counts, headers[0].totals, strict=True)):
        if count != total and not (total < _WORD and count % _WORD == total):
            raise DataError(
                f"{headers[0].path}",
                found=f"{count} particles of type {kind} in {len(headers)} files",
                expected=f"{total}, as the header says",
                remedy="files are missing, or the header is damaged",
            )


def total_counts(headers: Sequence[GadgetHeader]) -> tuple[int, ...]:
    """Return the number of particles of each type in all files."""
    return tuple(sum(counts) for counts in zip(*(header.counts for header in headers), strict=True))


def describe_gadget(headers: Sequence[GadgetHeader], choice: ParticleChoice, *, kind: str) -> Snapshot:
    """Return what is known of the chosen particles; raises UsageError when type or box size must be chosen."""
    counts = total_counts(headers)
    types = _types(headers[0].path, counts, choice.types)
    return Snapshot(
        files=tuple(header.path for header in headers),
        sample=headers[0].sample(),
        kind=kind,
        count=sum(counts[number] for number in types),
        box=_box(headers[0], choice.box_size),
        types=types,
        redshift=headers[0].redshift,
    )


def _types(path: Path, counts: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
    present = [number for number, count in enumerate(counts) if count]
    if not present:
        raise DataError(f"{path}", found="no particles", expected="a snapshot of particles")
    missing = [number for number in wanted if number not in present]
    if missing or (not wanted and len(present) > 1):
        words = [_NAMES[number] if number < len(_NAMES) else "unknown" for number in present]
        listed = (f"{number} ({word}: {counts[number]})" for number, word in zip(present, words, strict=True))
        raise UsageError(
            f"{path}",
            found=f"particles of types {', '.join(listed)}",
            expected=f"type {missing[0]}" if missing else "to know which of them are wanted",
            remedy=f"say it with --particle-types, such as {present[-1]} or {','.join(map(str, present))}",
        )
    return tuple(sorted(wanted)) or (present[0],)


def _box(header: GadgetHeader, given: float | None) -> tuple[float, float, float]:
    if given is None and min(header.box) == 0:
        raise UsageError(
            f"{header.path}",
            found="no box size in the header",
            expected="the edge of the periodic box",
            remedy="say it with --box-size",
        )
    if given is not None and max(header.box) > 0 and header.box != (given,) * 3:
        raise UsageError(
            f"{header.path}",
            found=f"a box of {header.box} and --box-size {given}",
            expected="the same",
            remedy="leave --box-size out",
        )
    return header.box if given is None else (given,) * 3


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
