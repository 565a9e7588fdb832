"""Snapshots of Gadget-1 and Gadget-2 in binary, formats 1 and 2, of either byte order.

Framing: which of the binary layouts of Gadget a file has, and its header of 256 bytes. Source: User guide for
GADGET-2, section 6, table 4 "Fields in the file header".

A header of 256 bytes and the blocks POS, VEL, ID and, for types whose header has no mass, MASS; each one Fortran
record. Format 2 puts a record of 8 bytes with the block's label before each.
Source: User guide for GADGET-2, section 6.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.convert.gridding.fortran_records import Record, RecordFile
from voxload.convert.gridding.gadget import GadgetHeader, GadgetSnapshot, describe_gadget, read_parts
from voxload.convert.gridding.particles import Masses, ParticleChoice, Positions, check_masses, native
from voxload.convert.sources.probe import Probe
from voxload.errors import DataError
from voxload.files.regular import open_regular
from voxload.readers.faults import translated

_HEADER_BYTES = 256
_LABEL_BYTES = 8
_HIGH = 2**32
_FIELDS = {
    "npart": ("i4", 6, 0),
    "mass": ("f8", 6, 24),
    "redshift": ("f8", 1, 80),
    "npart_total": ("u4", 6, 96),
    "num_files": ("i4", 1, 124),
    "box_size": ("f8", 1, 128),
    "npart_total_high": ("u4", 6, 168),
}
"""Type, number and offset of what is needed of the header."""


@dataclass(frozen=True, slots=True)
class Framing:
    """How blocks are framed."""

    byte_order: str
    """``<`` or ``>``."""
    is_labelled: bool
    """Whether a record with its label comes before each block, as in format 2."""

    @property
    def header_offset(self) -> int:
        """Bytes before the header's own."""
        return 20 if self.is_labelled else 4

    @property
    def first_block(self) -> int:
        """Offset of what follows the header."""
        return self.header_offset + _HEADER_BYTES + 4

    def fits(self, head: bytes) -> bool:
        """Tell whether a file that begins with `head` has a header framed like this."""
        start = self.header_offset
        marks = [(start - 4, _HEADER_BYTES), (start + _HEADER_BYTES, _HEADER_BYTES)]
        marks += [(0, _LABEL_BYTES), (12, _LABEL_BYTES)] if self.is_labelled else []
        is_marked = all(head[at : at + 4] == struct.pack(f"{self.byte_order}I", value) for at, value in marks)
        return is_marked and (not self.is_labelled or head[4:8] == b"HEAD")


def framing_of(head: bytes) -> Framing | None:
    """Return how a file that begins with `head` frames its blocks; None for no binary Gadget file."""
    known = (Framing(order, is_labelled) for order in "<>" for is_labelled in (False, True))
    return next((framing for framing in known if framing.fits(head)), None)


def header_of(path: Path, probe: Probe | None = None) -> GadgetHeader | None:
    """Return the header of a binary snapshot; None of another file.

    Other codes write a first record of 256 bytes too: without a label, numbers that make no header are no snapshot;
    with one, they are a DataError.
    """
    head = (probe or Probe(path)).head
    framing = framing_of(head)
    if framing is None:
        return None
    facts = _facts(head, framing)
    try:
        return GadgetHeader(
            path,
            counts=tuple(facts["npart"]),
            totals=tuple(
                low + _HIGH * high for low, high in zip(facts["npart_total"], facts["npart_total_high"], strict=True)
            ),
            masses=tuple(facts["mass"]),
            box=(facts["box_size"],) * 3,
            redshift=facts["redshift"],
            files=facts["num_files"] or 1,  # Gadget-1 writes 0 for a single file
        )
    except DataError:
        if framing.is_labelled:
            raise
        return None


def _facts(head: bytes, framing: Framing) -> dict[str, Any]:
    found = {}
    for name, (kind, count, offset) in _FIELDS.items():
        dtype = np.dtype(f"{framing.byte_order}{kind}")
        values = np.frombuffer(head, dtype, count, framing.header_offset + offset).tolist()
        found[name] = values if count > 1 else values[0]
    return found


_POSITIONS, _MASSES = "POS", "MASS"
_ORDER = (_POSITIONS, "VEL", "ID", _MASSES)


@dataclass(frozen=True, slots=True)
class GadgetBlocks:
    """The blocks of one file; each holds the types one after the other."""

    header: GadgetHeader
    """The file's header; it has particles."""
    positions: Record
    """Block POS."""
    masses: Record | None
    """Block MASS, of the types without a mass in the header; None when all have one."""

    def read_positions(self, file: RecordFile, kind: int, *, run: tuple[int, int]) -> npt.NDArray[np.floating]:
        """Return the positions of a run of the particles of a type."""
        counts = self.header.counts
        dtype = np.dtype(f"{file.byte_order}f{self.positions.length // (3 * sum(counts))}")
        first, count, row = sum(counts[:kind]) + run[0], run[1] - run[0], 3 * dtype.itemsize
        content = file.read(self.positions.offset + row * first, row * count)
        return native(np.frombuffer(content, dtype).reshape(count, 3))

    def read_masses(self, file: RecordFile, kind: int, *, run: tuple[int, int]) -> Masses:
        """Return the masses of a run; one for all when the header has it."""
        if self.header.masses[kind] or self.masses is None:
            return np.array([self.header.masses[kind]])
        dtype = np.dtype(f"{file.byte_order}f{self.masses.length // _with_own_mass(self.header)}")
        first = _with_own_mass(self.header, kind) + run[0]
        content = file.read(self.masses.offset + dtype.itemsize * first, dtype.itemsize * (run[1] - run[0]))
        return check_masses(file.path, np.frombuffer(content, dtype))


def locate(file: RecordFile, framing: Framing, header: GadgetHeader) -> GadgetBlocks:
    """Find the blocks of a file; raises DataError when one is missing, cut or of another length than expected."""
    wanted = _MASSES if _with_own_mass(header) else _POSITIONS
    find = _labelled if framing.is_labelled else _in_order
    found = find(file, header, start=framing.first_block, last=wanted)
    return GadgetBlocks(header, found[_POSITIONS], found.get(_MASSES))


def _with_own_mass(header: GadgetHeader, stop: int | None = None) -> int:
    """Return the number of particles with masses of their own, among the types before `stop`."""
    return sum(count for count, mass in list(zip(header.counts, header.masses, strict=True))[:stop] if not mass)


def _lengths(header: GadgetHeader, label: str) -> tuple[int, ...]:
    """Return the bytes that a block may have, in single and in double precision; none when that is unknown."""
    count, own = sum(header.counts), _with_own_mass(header)
    values = {_POSITIONS: 3 * count, "VEL": 3 * count, "ID": count, _MASSES: own}.get(label, 0)
    return (4 * values, 8 * values) if values else ()


def _in_order(file: RecordFile, header: GadgetHeader, *, start: int, last: str) -> dict[str, Record]:
    found: dict[str, Record] = {}
    for label in _ORDER[: _ORDER.index(last) + 1]:
        found[label] = file.find(start, label, lengths=_lengths(header, label))
        start = found[label].stop
    return found


def _labelled(file: RecordFile, header: GadgetHeader, *, start: int, last: str) -> dict[str, Record]:
    found: dict[str, Record] = {}
    missing = {_POSITIONS, last}
    while missing:
        if start >= file.size():
            raise DataError(
                f"{file.path}",
                found=f"blocks {', '.join(found) or 'none'}",
                expected=f"a block {min(missing)}",
                remedy="the file is truncated or of another layout",
            )
        name = file.find(start, "label", lengths=(_LABEL_BYTES,))
        label = file.read(name.offset, 4).decode("latin-1").strip()
        found[label] = file.find(name.stop, label, lengths=_lengths(header, label))
        start = found[label].stop
        missing.discard(label)
    return found


KIND = "Gadget binary"


@dataclass(frozen=True, slots=True)
class _Part:
    """One open file and its blocks."""

    blocks: GadgetBlocks
    file: RecordFile

    def read_positions(self, kind: int, *, run: tuple[int, int]) -> Positions:
        return self.blocks.read_positions(self.file, kind, run=run)

    def read_masses(self, kind: int, *, run: tuple[int, int]) -> Masses:
        return self.blocks.read_masses(self.file, kind, run=run)


def binary_snapshot(header: GadgetHeader, choice: ParticleChoice | None = None) -> GadgetSnapshot:
    """Return the snapshot that a binary file with this header belongs to.

    Parameters
    ----------
    header
        Header of one of its files.
    choice
        What the caller says of it.

    Raises
    ------
    UsageError
        When several types of particles have no choice.
    DataError
        When a file is missing, truncated or damaged, or its blocks have other lengths than the header says.
    """
    framing = _framing(header.path)
    headers = read_parts(header, header_of)
    described = describe_gadget(headers, choice or ParticleChoice(), kind=KIND)
    blocks = {each.path: _locate(each, framing) for each in headers if any(each.counts)}
    return GadgetSnapshot(described, headers, partial(_open_part, framing=framing, blocks=blocks))


@contextmanager
def _open_part(part: GadgetHeader, *, framing: Framing, blocks: Mapping[Path, GadgetBlocks]) -> Iterator[_Part]:
    with _open(part.path, framing) as file:
        yield _Part(blocks[part.path], file)


def _locate(header: GadgetHeader, framing: Framing) -> GadgetBlocks:
    if _framing(header.path) != framing:
        raise DataError(
            f"{header.path}", found="another byte order or format", expected="one for all files of a snapshot"
        )
    with _open(header.path, framing) as file:
        return locate(file, framing, header)


def _framing(path: Path) -> Framing:
    framing = framing_of(Probe(path).head)
    if framing is None:
        raise DataError(f"{path}", found="another kind of file", expected="a part of a Gadget snapshot")
    return framing


@contextmanager
def _open(path: Path, framing: Framing) -> Iterator[RecordFile]:
    with translated(f"{path}"), open_regular(path, buffering=0) as file:
        yield RecordFile(path, file.fileno(), framing.byte_order)
