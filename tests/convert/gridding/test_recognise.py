"""pyCOLA files, and which files hold particles at all."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.convert.gridding.snapshots import Array, Types, coordinate_particles, write_binary, write_hdf5
from tests.laws.source import check_converts, check_source, read_box
from voxload.convert import ConvertOptions
from voxload.convert.gridding import Assignment, GriddedSource, Gridding, GridUnit, ParticleChoice, particles_of
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.geometry import Box

CUBE = ParticleChoice(box_size=8.0)


def write_pycola(path: Path, positions: Array, *, is_compressed: bool = False, is_fortran: bool = False) -> Path:
    """Write positions as pyCOLA does, with numpy: px, py and pz, three axes each."""
    parts = [np.repeat(positions[:, axis], 2).reshape(-1, 2, 1) for axis in range(3)]
    if is_fortran:
        parts = [np.asfortranarray(part) for part in parts]
    save = np.savez_compressed if is_compressed else np.savez
    save(path, vx=parts[0] * 0, px=parts[0], py=parts[1], pz=parts[2])
    return path


@pytest.mark.parametrize("dtype", ["<f4", ">f8"])
@pytest.mark.parametrize(("is_compressed", "is_fortran"), [(False, False), (True, False), (False, True)])
def test_no_axis_moves(tmp_path: Path, dtype: str, *, is_compressed: bool, is_fortran: bool) -> None:
    """px, py and pz become D, H and W; each cell counts the particles in it."""
    positions, numbers, volume = coordinate_particles((3, 5, 4), (8.0, 8.0, 8.0), dtype)
    crowd = np.repeat(positions, numbers.astype(int) % 7, axis=0)
    path = write_pycola(tmp_path / "ics.npz", crowd, is_compressed=is_compressed, is_fortran=is_fortran)
    particles = particles_of(path, CUBE)
    assert particles is not None
    source = GriddedSource(particles, grid=(3, 5, 4), assign=Assignment.NGP, unit=GridUnit.COUNT)
    check_source(source, volume % 7 * 2)
    if is_compressed:
        gridding = Gridding((3, 5, 4), Assignment.NGP, GridUnit.COUNT, choice=CUBE)
        options = ConvertOptions(gridding=gridding)
        check_converts(path, {("ics", "counts"): volume % 7 * 2}, options=options)
    over = read_box(GriddedSource(particles, grid=(3, 5, 4), unit=GridUnit.OVERDENSITY), Box.whole((3, 5, 4)))
    assert abs(over.mean()) < 1e-6
    with pytest.raises(UsageError, match=r"without masses.*--unit count"):
        GriddedSource(particles, grid=4)


def test_pycola_needs_a_box(tmp_path: Path) -> None:
    """The file says no box size, and has one type of particles."""
    path = write_pycola(tmp_path / "ics.npz", np.ones((4, 3)))
    with pytest.raises(UsageError, match="say it with --box-size"):
        particles_of(path)
    with pytest.raises(UsageError, match="leave --particle-types out"):
        particles_of(path, ParticleChoice(types=(1,), box_size=8.0))


def test_pycola_faults(tmp_path: Path) -> None:
    """A cut file, a damaged array, and arrays that differ are refused."""
    path = write_pycola(tmp_path / "ics.npz", np.random.default_rng(0).random((400, 3)))
    particles = particles_of(path, CUBE)
    assert particles is not None
    content = bytearray(path.read_bytes())
    content[content.index(b"py.npy") + 1000] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"Bad CRC-32 for file 'py\.npy'"):
        list(particles.batches(100))
    os.truncate(path, len(content) // 2)
    with pytest.raises(DataError, match="a whole npz file"):
        particles_of(path, CUBE)
    np.savez(path, px=np.ones(3), py=np.ones(3), pz=np.ones(4))
    with pytest.raises(DataError, match="the same shape and type"):
        particles_of(path, CUBE)
    np.savez(path, px=np.ones(3, int), py=np.ones(3, int), pz=np.ones(3, int))
    with pytest.raises(DataError, match="positions in float32 or float64"):
        particles_of(path, CUBE)


def test_compressed_stream_that_is_damaged(tmp_path: Path) -> None:
    """What zlib cannot undo is a DataError that names the file."""
    path = write_pycola(tmp_path / "ics.npz", np.random.default_rng(0).random((400, 3)), is_compressed=True)
    content = bytearray(path.read_bytes())
    at = content.index(b"pz.npy") + 500
    content[at : at + 64] = bytes(64)
    path.write_bytes(content)
    particles = particles_of(path, CUBE)
    assert particles is not None
    with pytest.raises(DataError, match=r"ics\.npz"):
        list(particles.batches(100))


def test_neighbours_are_no_particles(tmp_path: Path) -> None:
    """Other HDF5, npz, zip, npy and Fortran files are left alone, and so is a folder."""
    np.savez(tmp_path / "a.npz", px=np.ones(3), py=np.ones(3))
    np.save(tmp_path / "b.npy", np.ones((3, 3, 3)))
    with h5py.File(tmp_path / "c.hdf5", "w") as file:
        file["full"], file["PartType1/Coordinates"] = np.ones((2, 2, 2, 1)), np.ones((2, 3))
        file.create_group("Header").attrs["Redshift"] = 0.0
    with h5py.File(tmp_path / "fof_subhalo_tab.hdf5", "w") as file:
        file.create_group("Header").attrs.update({"Ngroups_ThisFile": 1, "BoxSize": 8.0})
    grid = struct.pack("<I", 256) + np.full(32, -1.0).tobytes() + struct.pack("<I", 256)
    (tmp_path / "d.bin").write_bytes(grid * 4)
    (tmp_path / "e.zip").write_bytes(b"PK\x03\x04" + bytes(100))
    (tmp_path / "f").write_bytes(b"")
    (tmp_path / "g").mkdir()
    for path in tmp_path.iterdir():
        assert particles_of(path) is None, path
    with pytest.raises(NotFoundError):
        particles_of(tmp_path / "none")


def test_names_decide_nothing(tmp_path: Path) -> None:
    """Snapshots are known under any name."""
    types: Types = {1: (np.ones((4, 3)), 1.0)}
    for path in (write_hdf5(tmp_path / "x.npz", types), write_binary(tmp_path / "y.hdf5", types)):
        assert particles_of(path) is not None
    assert particles_of(write_pycola(tmp_path / "z.npz", np.ones((4, 3))).rename(tmp_path / "z"), CUBE) is not None
