"""Recognition of snapshots of particles, by their content."""

from __future__ import annotations

from pathlib import Path

from voxload.convert.gridding.gadget_binary import binary_snapshot
from voxload.convert.gridding.gadget_binary import header_of as binary_header_of
from voxload.convert.gridding.gadget_hdf5 import hdf5_snapshot
from voxload.convert.gridding.gadget_hdf5 import header_of as hdf5_header_of
from voxload.convert.gridding.particles import ParticleChoice, Particles
from voxload.convert.gridding.pycola import PycolaNpz, is_pycola
from voxload.convert.sources import Hints, Source, open_sources
from voxload.convert.sources.probe import Probe
from voxload.errors import UsageError


def particles_of(path: Path, choice: ParticleChoice | None = None) -> Particles | None:
    """Return the particles in a file.

    Returns
    -------
    Particles | None
        None for a file without particles, and for a later one of a snapshot in several files whose first one is
        there: that stands for all.

    Raises
    ------
    UsageError
        When types of particles or a box size must be chosen.
    DataError
        When the file is known and damaged, or files of its snapshot are missing.
    """
    if path.is_dir():
        return None
    probe = Probe(path)
    if is_pycola(probe):
        return PycolaNpz(path, choice)
    in_hdf5 = hdf5_header_of(path, probe)
    header = in_hdf5 or binary_header_of(path, probe)
    if header is None:
        return None
    first = header.part_files()[0]
    if first != path and first.is_file():
        return None
    return hdf5_snapshot(header, choice) if in_hdf5 else binary_snapshot(header, choice)


def open_cubes(path: Path, hints: Hints) -> tuple[Source, ...]:
    """Return the raw cubes in a file as `open_sources` does, but refuse particles with what makes a cube of them.

    Raises
    ------
    UsageError
        When it is a binary snapshot of Gadget; those in HDF5 and of PyCOLA are sources that refuse themselves.
    UsageError, NotFoundError, DataError
        As `open_sources`.
    """
    sources = open_sources(path, hints)
    if not sources and not path.is_dir() and binary_header_of(path) is not None:
        raise UsageError(
            f"{path}",
            found="particles, not a cube",
            expected="voxels on a grid",
            remedy="assign them to one: voxload convert --grid 512 --assign cic",
        )
    return sources
