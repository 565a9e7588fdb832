"""Binary Gadget snapshots: both formats, both byte orders, several files, and what is refused."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.convert.gridding.snapshots import Types, coordinate_particles, write_binary
from tests.laws.source import check_converts, check_source
from voxload.convert import ConvertOptions, convert
from voxload.convert.gridding import Assignment, GriddedSource, Gridding, ParticleChoice, Particles, particles_of
from voxload.convert.gridding.fortran_records import RecordFile
from voxload.errors import DataError, UsageError

SHAPE = (3, 5, 4)
ORDERS, LABELS = ["<", ">"], [False, True]


def particles_in(path: Path, **choice: Any) -> Particles:
    """Return the particles of a file that has some."""
    found = particles_of(path, ParticleChoice(**choice))
    assert found is not None
    return found


def three_types() -> Types:
    """Return types with their own masses around one without."""
    draw = np.random.default_rng(0)
    return {
        0: (draw.random((20, 3)) * 8, draw.random(20)),
        1: (draw.random((30, 3)) * 8, 0.25),
        4: (draw.random((10, 3)) * 8, draw.random(10)),
    }


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("labelled", LABELS)
@pytest.mark.parametrize(("dtype", "files"), [("f4", 1), ("f8", 1), ("f4", 3)])
def test_no_axis_moves(tmp_path: Path, order: str, *, labelled: bool, dtype: str, files: int) -> None:
    """Positions along x, y and z become D, H and W, of any format, byte order, precision and number of files."""
    positions, masses, volume = coordinate_particles(SHAPE, (8.0, 8.0, 8.0), dtype)
    names = ["snap_007"] if files == 1 else [f"snap_007.{number}" for number in range(files)]
    for number, name in enumerate(names):
        write_binary(tmp_path / name, {1: (positions, masses)}, order=order, labelled=labelled, part=(number, files))
    source = GriddedSource(particles_in(tmp_path / names[0]), grid=SHAPE, assign=Assignment.NGP)
    check_source(source, volume)
    cube = source.describe()
    assert [path.name for path in (cube.path, *cube.companions)] == names
    assert cube.sample == ("" if files == 1 else "snap_007")
    assert cube.attributes["redshift"] == 0.5
    assert cube.attributes["box_size"] == [8.0, 8.0, 8.0]
    if order == ">" and dtype == "f4":
        options = ConvertOptions(gridding=Gridding(SHAPE, assign=Assignment.NGP))
        check_converts(tmp_path, {("snap_007", "density"): volume}, options=options)


@pytest.mark.parametrize("labelled", LABELS)
def test_without_a_grid_the_message_says_what_makes_one(tmp_path: Path, *, labelled: bool) -> None:
    """A snapshot is no cube, alone or among cubes; it is not passed over as a foreign file."""
    (tmp_path / "raw").mkdir()
    write_binary(tmp_path / "raw/snap_007", three_types(), labelled=labelled)
    for path in (tmp_path / "raw/snap_007", tmp_path / "raw"):
        with pytest.raises(UsageError, match=r"snap_007: found particles, not a cube.*--grid 512 --assign cic"):
            convert(path, tmp_path / "out")


@pytest.mark.parametrize("labelled", LABELS)
@pytest.mark.parametrize("kinds", [(0,), (1,), (4,), (0, 4), (0, 1, 4)])
def test_types_lie_one_behind_the_other(tmp_path: Path, *, labelled: bool, kinds: tuple[int, ...]) -> None:
    """Each type gets its own positions, and its masses from the block or the header."""
    types = three_types()
    particles = particles_in(write_binary(tmp_path / "snap", types, labelled=labelled), types=kinds)
    batches = list(particles.batches(7))
    assert max(len(positions) for positions, _ in batches) <= 7
    np.testing.assert_array_equal(
        np.concatenate([positions for positions, _ in batches]), np.concatenate([types[kind][0] for kind in kinds])
    )
    masses = [np.broadcast_to(masses, len(positions)) for positions, masses in batches]
    expected = np.concatenate([np.broadcast_to(types[kind][1], len(types[kind][0])) for kind in kinds])
    np.testing.assert_array_equal(np.concatenate(masses), expected)
    assert particles.total_mass() == pytest.approx(expected.sum())


def test_types_are_a_choice(tmp_path: Path) -> None:
    """With several types of particles there is no default."""
    with pytest.raises(UsageError, match=r"0 \(gas: 20\), 1 \(dark matter: 30\), 4 \(stars: 10\)"):
        particles_of(write_binary(tmp_path / "snap", three_types()))


@pytest.mark.parametrize("labelled", LABELS)
def test_truncated_files_are_refused(tmp_path: Path, *, labelled: bool) -> None:
    """A file cut anywhere behind its header, up to the last byte that is needed, raises."""
    path = write_binary(tmp_path / "snap", {1: (np.ones((10, 3), "f4"), np.ones(10, "f4"))}, labelled=labelled)
    whole = path.stat().st_size
    for length in range(300, whole, 37):
        os.truncate(write_binary(path, {1: (np.ones((10, 3), "f4"), np.ones(10, "f4"))}, labelled=labelled), length)
        with pytest.raises(DataError, match=r"snap"):
            particles_of(path)
    os.truncate(write_binary(path, {1: (np.ones((10, 3), "f4"), np.ones(10, "f4"))}, labelled=labelled), whole - 1)
    with pytest.raises(DataError, match="truncated"):
        particles_of(path)


def test_file_cut_while_it_is_read(tmp_path: Path) -> None:
    """A file that ends before its particles raises, and gives no zeros."""
    path = write_binary(tmp_path / "snap", {1: (np.ones((100, 3), "f4"), 1.0)})
    batches = particles_in(path).batches(10)
    next(batches)
    os.truncate(path, 700)
    with pytest.raises(DataError, match="the end of the file at byte 700"):
        list(batches)


def test_blocks_must_fit_the_header(tmp_path: Path) -> None:
    """A block of another length, markers that differ and a missing block are refused."""
    types: Types = {1: (np.ones((10, 3), "f4"), np.ones(10, "f4"))}
    path = write_binary(tmp_path / "snap", types)
    content = bytearray(path.read_bytes())
    content[264:268] = struct.pack("<I", 121)
    path.write_bytes(content)
    with pytest.raises(DataError, match="block POS at byte 264: found a record of 121 bytes, expected 120 or 240"):
        particles_of(path)
    content[264:268], content[388:392] = struct.pack("<I", 120), struct.pack("<I", 121)
    path.write_bytes(content)
    with pytest.raises(DataError, match="0 ends that fit the marker 120"):
        particles_of(path)
    content = bytearray(write_binary(path, types, labelled=True).read_bytes())
    path.write_bytes(content.replace(b"MASS", b"MOSS"))
    with pytest.raises(DataError, match="found blocks POS, VEL, ID, MOSS, expected a block MASS"):
        particles_of(path)


def test_unwritten_types_and_boxes(tmp_path: Path) -> None:
    """Snapshots without particles, without a box or with a damaged labelled header are refused."""
    positions = np.ones((10, 3), "f4")
    with pytest.raises(UsageError, match="no box size"):
        particles_of(write_binary(tmp_path / "snap", {1: (positions, 1.0)}, box=0.0))
    with pytest.raises(DataError, match="no particles"):
        particles_of(write_binary(tmp_path / "snap", {1: (positions[:0], 1.0)}))
    with pytest.raises(DataError, match="finite"):
        particles_of(write_binary(tmp_path / "snap", {1: (positions, 1.0)}, labelled=True, box=np.nan))
    assert particles_of(write_binary(tmp_path / "snap", {1: (positions, 1.0)}, box=np.nan)) is None
    assert particles_in(write_binary(tmp_path / "snap", {1: (positions, 1.0)}, files=0)).describe().count == 10


def test_files_of_a_snapshot_stand_and_fall_together(tmp_path: Path) -> None:
    """A missing file and one of another byte order are errors; a later file is part of the first."""
    types: Types = {1: (np.ones((10, 3), "f4"), 1.0)}
    paths = [write_binary(tmp_path / f"s.{number}", types, part=(number, 2)) for number in range(2)]
    assert particles_of(paths[1]) is None
    write_binary(paths[1], types, part=(1, 2), order=">")
    with pytest.raises(DataError, match=r"s\.1: found another byte order"):
        particles_of(paths[0])
    paths[1].write_bytes(b"something else")
    with pytest.raises(DataError, match=r"s\.1: found another kind of file"):
        particles_of(paths[0])
    paths[1].unlink()
    with pytest.raises(DataError, match=r"1 of 2 files of the snapshot, without s\.1"):
        particles_of(paths[0])


def test_markers_overflow_in_blocks_of_4_gib(tmp_path: Path) -> None:
    """The marker of a longer block holds its length modulo 2^32; the header's counts tell which length it is."""
    path, length = tmp_path / "block", 2**32 + 24
    with path.open("wb") as file:
        file.write(struct.pack("<I", 24))
        file.seek(4 + length)
        file.write(struct.pack("<I", 24))
        file.truncate(16 + length)
    with path.open("rb") as file:
        records = RecordFile(path, file.fileno(), "<")
        assert records.find(0, "POS", lengths=(length, 2 * length)).length == length
        with pytest.raises(DataError, match="0 ends that fit the marker 24"):
            records.find(0, "POS", lengths=(24, 2**33 + 24))
