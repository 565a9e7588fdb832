"""GadgetBlocks: where the positions and masses of one binary Gadget file lie, with their lengths checked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voxload.convert.gridding.fortran import Record, RecordFile
from voxload.convert.gridding.gadget import GadgetHeader
from voxload.convert.gridding.gadget_header import Framing
from voxload.convert.gridding.particles import Masses
from voxload.convert.gridding.positions import check_masses, native
from voxload.errors import DataError

_POSITIONS, _MASSES = "POS", "MASS"
_ORDER = (_POSITIONS, "VEL", "ID", _MASSES)
_LABEL_BYTES = 8


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
