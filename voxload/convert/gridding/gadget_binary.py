"""Snapshots of Gadget-1 and Gadget-2 in binary, formats 1 and 2, of either byte order.

A header of 256 bytes and the blocks POS, VEL, ID and, for types whose header has no mass, MASS; each one Fortran
record. Format 2 puts a record of 8 bytes with the block's label before each.
Source: User guide for GADGET-2, section 6.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from voxload.convert.gridding.fortran import RecordFile
from voxload.convert.gridding.gadget import GadgetHeader, describe_gadget, read_parts
from voxload.convert.gridding.gadget_blocks import GadgetBlocks, locate
from voxload.convert.gridding.gadget_header import Framing, framing_of, header_of
from voxload.convert.gridding.gadget_snapshot import GadgetSnapshot
from voxload.convert.gridding.particles import Masses, ParticleChoice, Positions
from voxload.convert.sources.probe import Probe
from voxload.errors import DataError
from voxload.readers.faults import translated
from voxload.regular import open_regular

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
