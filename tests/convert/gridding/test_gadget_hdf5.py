"""Gadget snapshots in HDF5: one file and several, which particles, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.convert.gridding.snapshots import Types, coordinate_particles, write_hdf5
from tests.laws.source import check_converts, check_source
from voxload.convert import ConvertOptions
from voxload.convert.gridding import Assignment, GriddedSource, Gridding, ParticleChoice, Particles, particles_of
from voxload.errors import DataError, UsageError

SHAPE, BOX = (3, 5, 4), (9.0, 5.0, 8.0)


def particles_in(path: Path, **choice: Any) -> Particles:
    """Return the particles of a file that has some."""
    found = particles_of(path, ParticleChoice(**choice))
    assert found is not None
    return found


def two_types() -> Types:
    """Return gas with masses and dark matter with one."""
    draw = np.random.default_rng(0)
    return {0: (draw.random((20, 3)) * 8, draw.random(20)), 1: (draw.random((30, 3)) * 8, 0.25)}


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8"])
@pytest.mark.parametrize("files", [1, 3])
def test_no_axis_moves(tmp_path: Path, dtype: str, files: int) -> None:
    """Coordinates along x, y and z become D, H and W, of any precision, byte order and number of files."""
    positions, masses, volume = coordinate_particles(SHAPE, BOX, dtype)
    names = ["snap_007.hdf5"] if files == 1 else [f"snap_007.{number}.hdf5" for number in range(files)]
    for number, name in enumerate(names):
        write_hdf5(tmp_path / name, {1: (positions, masses)}, box=BOX, part=(number, files))
    source = GriddedSource(particles_in(tmp_path / names[0]), grid=SHAPE, assign=Assignment.NGP)
    check_source(source, volume)
    cube = source.describe()
    assert [path.name for path in (cube.path, *cube.companions)] == names
    assert cube.sample == ("" if files == 1 else "snap_007")
    if dtype == ">f4":
        options = ConvertOptions(gridding=Gridding(SHAPE, assign=Assignment.NGP))
        check_converts(tmp_path, {("snap_007", "density"): volume}, options=options)


def test_batches_are_bounded_and_in_order(tmp_path: Path) -> None:
    """No batch is larger than asked, and types follow each other as they are stored."""
    types = two_types()
    particles = particles_in(write_hdf5(tmp_path / "s.hdf5", types), types=(1, 0))
    batches = list(particles.batches(7))
    assert [len(positions) for positions, _ in batches] == [7, 7, 6, 7, 7, 7, 7, 2]
    np.testing.assert_array_equal(np.concatenate([batch for batch, _ in batches]), [*types[0][0], *types[1][0]])
    np.testing.assert_array_equal(np.concatenate([masses for _, masses in batches[:3]]), types[0][1])
    assert all(masses.tolist() == [0.25] for _, masses in batches[3:])
    assert particles.total_mass() == pytest.approx(np.sum(types[0][1]) + 30 * 0.25)
    assert particles.describe().count == 50


def test_types_are_a_choice(tmp_path: Path) -> None:
    """With several types of particles there is no default; the message names them."""
    path = write_hdf5(tmp_path / "s.hdf5", two_types())
    with pytest.raises(UsageError, match=r"types 0 \(gas: 20\), 1 \(dark matter: 30\).*--particle-types, such as 1"):
        particles_in(path)
    with pytest.raises(UsageError, match=r"expected type 4"):
        particles_in(path, types=(4,))
    assert particles_in(path, types=(1,)).describe().types == (1,)


def test_compressed_chunks(tmp_path: Path) -> None:
    """Chunks that batches cut are read whole, and their memory is said."""
    positions = np.random.default_rng(0).random((100, 3)) * 8
    path = write_hdf5(tmp_path / "s.hdf5", {1: (positions, 1.0)})
    with h5py.File(path, "a") as file:
        del file["PartType1/Coordinates"]
        file.create_dataset(
            "PartType1/Coordinates", data=positions, chunks=(32, 3), compression="gzip", fletcher32=True
        )
    particles = particles_in(path)
    np.testing.assert_array_equal(np.concatenate([batch for batch, _ in particles.batches(9)]), positions)
    assert particles.describe().scratch_bytes == 2 * 32 * 3 * 8
    with h5py.File(path) as file:
        place = file["PartType1/Coordinates"].id.get_chunk_info(2)
    content = bytearray(path.read_bytes())
    content[place.byte_offset + place.size // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"s\.hdf5"):
        list(particles.batches(9))


def test_files_of_a_snapshot_stand_and_fall_together(tmp_path: Path) -> None:
    """A missing file, one of another snapshot and a wrong count are errors; a later file is part of the first."""
    types: Types = {1: (np.ones((10, 3)), 1.0)}
    paths = [write_hdf5(tmp_path / f"s.{number}.hdf5", types, part=(number, 3)) for number in range(3)]
    assert particles_of(paths[1]) is None
    write_hdf5(paths[2], types, part=(2, 3), Redshift=1.0)
    with pytest.raises(DataError, match=r"s\.2\.hdf5: found redshift 1.0, expected 0.5, as s\.0\.hdf5 has"):
        particles_of(paths[0])
    write_hdf5(paths[2], types, part=(1, 3))
    write_hdf5(paths[0], types, part=(1, 3))
    with pytest.raises(DataError, match="found 9 particles of type 1 in 3 files, expected 10"):
        particles_of(paths[0])
    paths[2].unlink()
    with pytest.raises(DataError, match=r"found 2 of 3 files of the snapshot, without s\.2\.hdf5"):
        particles_of(paths[0])
    paths[0].unlink()
    with pytest.raises(DataError, match=r"s\.1\.hdf5: .*without s\.0\.hdf5"):
        particles_of(paths[1])
    paths[1].rename(tmp_path / "other.hdf5")
    with pytest.raises(UsageError, match=r"one of 3 files.*names that end in \.0 to \.2"):
        particles_of(tmp_path / "other.hdf5")


@pytest.mark.parametrize(
    ("header", "error", "message"),
    [
        ({"BoxSize": 0.0}, UsageError, "no box size.*--box-size"),
        ({"BoxSize": np.array([8.0, 8.0])}, DataError, "one length or three"),
        ({"BoxSize": np.nan}, DataError, "finite"),
        ({"BoxSize": "big"}, DataError, "expected numbers"),
        ({"MassTable": None}, DataError, "MassTable None"),
        ({"MassTable": np.zeros(6)}, DataError, "neither Masses nor a mass"),
        ({"MassTable": np.zeros(5)}, DataError, "6 counts, 5 masses"),
        ({"NumPart_Total": np.array([0, 11, 0, 0, 0, 0])}, DataError, "found 10 particles of type 1 in 1 files"),
        ({"NumPart_ThisFile": np.array([0, 9, 0, 0, 0, 0])}, DataError, "9 particles"),
        ({"NumFilesPerSnapshot": None, "NumPart_Total": np.array([0, 99, 0, 0, 0, 0])}, DataError, "no NumFilesPer"),
    ],
)
def test_headers_that_decide_nothing(tmp_path: Path, header: dict[str, Any], error: Any, message: str) -> None:
    """A header that contradicts itself or the data is refused with what it says."""
    path = write_hdf5(tmp_path / "s.hdf5", {1: (np.ones((10, 3)), 1.0)}, **header)
    with pytest.raises(error, match=message):
        particles_of(path)


def test_box_size_is_said_once(tmp_path: Path) -> None:
    """A box size is taken where the file has none, and must not contradict one."""
    types: Types = {1: (np.ones((10, 3)), 1.0)}
    assert particles_in(write_hdf5(tmp_path / "a.hdf5", types, box=0.0), box_size=5.0).describe().box == (5.0,) * 3
    path = write_hdf5(tmp_path / "b.hdf5", types)
    assert particles_in(path, box_size=8.0).describe().box == (8.0,) * 3
    with pytest.raises(UsageError, match=r"--box-size 5\.0.*leave --box-size out"):
        particles_in(path, box_size=5.0)
    with pytest.raises(UsageError, match="length above 0"):
        ParticleChoice(box_size=0.0)


def test_particles_that_are_not_there(tmp_path: Path) -> None:
    """Datasets that were never written, lie elsewhere or have another shape are no particles."""
    path = write_hdf5(tmp_path / "s.hdf5", {1: (np.ones((10, 3)), 1.0)})
    layout = h5py.VirtualLayout((10, 3), "f8")
    layout[:] = h5py.VirtualSource(str(tmp_path / "gone.hdf5"), "x", (10, 3))
    name = "PartType1/Coordinates"

    def half_written(file: Any) -> None:
        file.create_dataset(name, (10, 3), "f4", chunks=(5, 3))[:5] = 1

    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda file: file.create_dataset(name, (10, 3), "f4"), DataError, "never written"),
        (half_written, DataError, "never written"),
        (lambda file: file.create_virtual_dataset(name, layout), UsageError, "a virtual dataset"),
        (lambda file: file.create_dataset(name, data=np.ones((9, 3))), DataError, r"found float64 \(9, 3\)"),
        (lambda file: file.create_dataset(name, data=np.ones((10, 3), int)), DataError, "floats of shape"),
        (
            lambda file: file.create_dataset(name, (10, 3), "f8", external=[("raw", 0, 240)]),
            UsageError,
            "in other files",
        ),
    ]
    for make, error, message in cases:
        with h5py.File(path, "a") as file:
            del file[name]
            make(file)
        with pytest.raises(error, match=message):
            particles_of(path)
    os.truncate(path, path.stat().st_size - 100)
    with pytest.raises(DataError, match="truncated"):
        particles_of(path)


def test_damaged_masses_are_named(tmp_path: Path) -> None:
    """A mass that is no number is no mass."""
    path = write_hdf5(tmp_path / "s.hdf5", {1: (np.ones((3, 3)), np.array([1.0, np.nan, 1.0]))})
    with pytest.raises(DataError, match=r"s\.hdf5: found mass nan"):
        list(particles_in(path).batches(10))


def test_swift_and_gadget4_headers(tmp_path: Path) -> None:
    """Three box sizes, seven types, 64-bit totals without high words and attributes of one element are read."""
    facts: dict[str, Any] = {
        "NumPart_ThisFile": np.array([0, 10, 0, 0, 0, 0, 0]),
        "NumPart_Total": np.array([0, 10, 0, 0, 0, 0, 0]),
        "NumPart_Total_HighWord": None,
        "MassTable": np.array([0, 0.5, 0, 0, 0, 0, 0]),
        "NumFilesPerSnapshot": np.array([1]),
        "Redshift": np.array([2.0]),
    }
    path = write_hdf5(tmp_path / "s.hdf5", {1: (np.ones((10, 3)), 0.5)}, box=[8.0, 8.0, 4.0], **facts)
    found = particles_in(path)
    assert (found.describe().box, found.describe().redshift) == ((8.0, 8.0, 4.0), 2.0)
    assert found.total_mass() == 5
