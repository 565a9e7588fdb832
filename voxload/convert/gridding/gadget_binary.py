"""GadgetBinary: snapshots of Gadget-1 and Gadget-2 in binary, formats 1 and 2, of either byte order.

A header of 256 bytes and the blocks POS, VEL, ID and, for types whose header has no mass, MASS; each one Fortran
record. Format 2 puts a record of 8 bytes with the block's label before each.
Source: User guide for GADGET-2, section 6.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from voxload.convert.gridding.fortran import RecordFile
from voxload.convert.gridding.gadget import GadgetHeader, describe_gadget, read_parts
from voxload.convert.gridding.gadget_blocks import GadgetBlocks, locate
from voxload.convert.gridding.gadget_header import Framing, framing_of, header_of
from voxload.convert.gridding.particles import Batch, ParticleChoice, Snapshot
from voxload.convert.gridding.positions import mass_of, runs
from voxload.convert.sources.probe import Probe
from voxload.errors import DataError
from voxload.readers.faults import translated
from voxload.regular import open_regular

KIND = "Gadget binary"
_SUM_SIZE = 2**18


class GadgetBinary:
    """One binary snapshot, of one file or several.

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

    def __init__(self, header: GadgetHeader, choice: ParticleChoice | None = None) -> None:
        self._framing = _framing(header.path)
        headers = read_parts(header, _header)
        self._snapshot = describe_gadget(headers, choice or ParticleChoice(), kind=KIND)
        self._parts = tuple(self._locate(each) for each in headers if any(each.counts))

    def describe(self) -> Snapshot:
        """Return what is known of the particles."""
        return self._snapshot

    def batches(self, size: int) -> Generator[Batch, None, None]:
        """Yield all particles, file after file, type after type."""
        for part in self._parts:
            with _open(part.header.path, self._framing) as file:
                for kind in self._snapshot.types:
                    for run in runs(part.header.counts[kind], size):
                        yield part.read_positions(file, kind, run=run), part.read_masses(file, kind, run=run)

    def total_mass(self) -> float:
        """Return the mass of all particles."""
        return math.fsum(self._sums())

    def _sums(self) -> Iterator[float]:
        for part in self._parts:
            with _open(part.header.path, self._framing) as file:
                for kind in self._snapshot.types:
                    for run in runs(part.header.counts[kind], _SUM_SIZE):
                        yield mass_of(part.read_masses(file, kind, run=run), run[1] - run[0])

    def _locate(self, header: GadgetHeader) -> GadgetBlocks:
        if _framing(header.path) != self._framing:
            raise DataError(
                f"{header.path}", found="another byte order or format", expected="one for all files of a snapshot"
            )
        with _open(header.path, self._framing) as file:
            return locate(file, self._framing, header)


def _framing(path: Path) -> Framing:
    framing = framing_of(Probe(path).head)
    if framing is None:
        raise DataError(f"{path}", found="another kind of file", expected="a part of a Gadget snapshot")
    return framing


def _header(path: Path) -> GadgetHeader:
    header = header_of(path)
    if header is None:
        raise DataError(f"{path}", found="another kind of file", expected="a part of a Gadget snapshot")
    return header


@contextmanager
def _open(path: Path, framing: Framing) -> Iterator[RecordFile]:
    with translated(f"{path}"), open_regular(path, buffering=0) as file:
        yield RecordFile(path, file.fileno(), framing.byte_order)
