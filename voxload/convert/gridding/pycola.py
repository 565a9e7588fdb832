"""PycolaNpz: particles of pyCOLA, an npz file with the arrays px, py and pz, one element a particle.

The arrays are streamed side by side, and their checksums tested at the end. Source: pyCOLA's ``evolve`` with
``save_to_file``, as the CosmoFlow pipeline NERSC/cosmoflow-sims calls it; the file says neither box size nor mass.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from math import prod
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy_format

from voxload.convert.gridding.particles import Batch, ParticleChoice, Snapshot, native, runs
from voxload.convert.sources.probe import Probe
from voxload.errors import DataError, UsageError
from voxload.readers.faults import translated

KIND = "pyCOLA npz"
_MEMBERS = ("px.npy", "py.npy", "pz.npy")
_SIGNATURE = b"PK\x03\x04"
_NAME_OFFSET = 30
"""Of the first member's name in a zip file. Source: PKWARE APPNOTE, section 4.3.7."""


def is_pycola(probe: Probe) -> bool:
    """Tell whether a file is an npz with the three arrays; raises DataError when it is a truncated npz."""
    if not probe.head.startswith(_SIGNATURE):
        return False
    try:
        with translated(f"{probe.path}"), zipfile.ZipFile(probe.path) as archive:
            return set(_MEMBERS) <= set(archive.namelist())
    except zipfile.BadZipFile as error:
        length = int.from_bytes(probe.head[26:28], "little")
        if not probe.head[_NAME_OFFSET : _NAME_OFFSET + length].endswith(b".npy"):
            return False
        raise _broken(probe.path, error) from error


class PycolaNpz:
    """One snapshot.

    Parameters
    ----------
    path
        The file.
    choice
        The box size.

    Raises
    ------
    UsageError
        When there is no box size, or a type of particles is wanted.
    DataError
        When the arrays differ in shape or type, or the file is damaged.
    """

    def __init__(self, path: Path, choice: ParticleChoice | None = None) -> None:
        box = choice.box_size if choice else None
        if box is None:
            raise UsageError(
                f"{path}",
                found="positions without a box size",
                expected="the edge of the periodic box in their unit",
                remedy="say it with --box-size",
            )
        if choice and choice.types:
            raise UsageError(
                f"{path}", found="particles of one type", expected="no choice", remedy="leave --particle-types out"
            )
        with _open(path) as members:
            headers = [_header(path, member) for member in members]
        if len(set(headers)) != 1:
            raise DataError(f"{path}", found=f"px, py and pz of {headers}", expected="the same shape and type of all")
        self._path, self._dtype = path, headers[0][2]
        self._snapshot = Snapshot((path,), "", kind=KIND, count=prod(headers[0][0]), box=(box,) * 3, has_masses=False)

    def describe(self) -> Snapshot:
        """Return what is known of the particles."""
        return self._snapshot

    def batches(self, size: int) -> Generator[Batch, None, None]:
        """Yield all particles in the order of the arrays."""
        with _open(self._path) as members:
            for member in members:
                _header(self._path, member)
            for first, stop in runs(self._snapshot.count, size):
                positions = np.empty((stop - first, len(_MEMBERS)), dtype=self._dtype.newbyteorder("="))
                for axis, member in enumerate(members):
                    positions[:, axis] = self._read(member, stop - first)
                yield positions, np.ones(1)

    def total_mass(self) -> float:
        """Return the number of particles: each has mass 1."""
        return float(self._snapshot.count)

    def _read(self, member: IO[bytes], count: int) -> npt.NDArray[np.floating]:
        content = member.read(count * self._dtype.itemsize)
        if len(content) != count * self._dtype.itemsize:
            raise DataError(
                f"{self._path}", found="an array that ends too early", expected="as many as its header says"
            )
        return native(np.frombuffer(content, self._dtype))


@contextmanager
def _open(path: Path) -> Iterator[tuple[IO[bytes], ...]]:
    """Open the three arrays; what zlib or a checksum refuses is a DataError."""
    try:
        with translated(f"{path}"), ExitStack() as stack:
            archive = stack.enter_context(zipfile.ZipFile(path))
            yield tuple(stack.enter_context(archive.open(name)) for name in _MEMBERS)
    except (zipfile.BadZipFile, zlib.error) as error:
        raise _broken(path, error) from error


def _broken(path: Path, error: Exception) -> DataError:
    return DataError(f"{path}", found=f"{error}", expected="a whole npz file", remedy="it is damaged: copy it again")


def _header(path: Path, member: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[np.floating]]:
    """Return shape, whether it is in Fortran order, and type of an array; the member then stands at its elements."""
    version = npy_format.read_magic(member)
    read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    shape, is_fortran, dtype = read(member)
    if dtype.kind != "f" or dtype.itemsize not in (4, 8) or not prod(shape):
        raise DataError(f"{path}", found=f"{dtype} {shape}", expected="positions in float32 or float64")
    return tuple(shape), bool(is_fortran), dtype
