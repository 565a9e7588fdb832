"""GriddedSource: the contract of a raw cube, its units, and its memory."""

from __future__ import annotations

from collections.abc import Generator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.convert.gridding.snapshots import Array, coordinate_particles, write_hdf5
from tests.laws.source import check_source, read_box
from voxload.convert.gridding import Assignment, GriddedSource, GridPoints, GridUnit, Particles, Snapshot, particles_of
from voxload.convert.gridding.particles import Batch
from voxload.errors import DataError, UsageError
from voxload.geometry import Box

SHAPE = (4, 6, 5)
BOX = (8.0, 3.0, 5.0)


class Counted:
    """Particles that count how often they are read."""

    def __init__(self, particles: Particles) -> None:
        self._particles = particles
        self.passes = 0

    def describe(self) -> Snapshot:
        """Return what is known of them."""
        return self._particles.describe()

    def batches(self, size: int) -> Generator[Batch, None, None]:
        """Yield them."""
        self.passes += 1
        yield from self._particles.batches(size)

    def total_mass(self) -> float:
        """Return their mass."""
        return self._particles.total_mass()


def particles_in(path: Path) -> Particles:
    """Return the particles of a file that has some."""
    found = particles_of(path)
    assert found is not None
    return found


@pytest.fixture
def snapshot(tmp_path: Path) -> tuple[Particles, Array]:
    """Return particles whose masses are the numbers of their cells, and the volume they make."""
    positions, masses, volume = coordinate_particles(SHAPE, BOX)
    return particles_in(write_hdf5(tmp_path / "snap_003.hdf5", {1: (positions, masses)}, box=BOX)), volume


@pytest.mark.parametrize("assign", ["ngp", "cic"])
@pytest.mark.parametrize("memory", [1, 2 * 8 * 6 * 5, 2**20])
def test_no_axis_moves(snapshot: tuple[Particles, Array], assign: str, memory: int) -> None:
    """Particles on the grid points of unequal axes give the volume, however many passes that takes."""
    particles, volume = snapshot
    source = GriddedSource(particles, grid=SHAPE, assign=Assignment(assign), memory=memory)
    if assign == "cic":
        np.testing.assert_allclose(read_box(source, Box.whole(SHAPE)), volume, atol=1e-4)
    else:
        check_source(source, volume)


def test_description(snapshot: tuple[Particles, Array]) -> None:
    """The cube says what it was made from, in plain values."""
    cube = GriddedSource(snapshot[0], grid=SHAPE, assign=Assignment.TSC).describe()
    assert (cube.dataset, cube.shape, cube.order.axes, cube.dtype) == ("density", SHAPE, "DHW", np.dtype("f4"))
    assert cube.attributes == {
        "source": "Gadget HDF5",
        "unit": "mass",
        "grid": [4, 6, 5],
        "assignment": "tsc",
        "grid_points": "centres",
        "box_size": [8.0, 3.0, 5.0],
        "particles": 120,
        "particle_types": [1],
        "redshift": 0.5,
    }
    assert not cube.targets
    assert not cube.is_sequential


def test_units(snapshot: tuple[Particles, Array]) -> None:
    """Mass, particles and overdensity of a cell, from the same particles."""
    particles, volume = snapshot
    found = {
        unit: read_box(GriddedSource(particles, grid=SHAPE, assign=Assignment.NGP, unit=unit), Box.whole(SHAPE))
        for unit in GridUnit
    }
    np.testing.assert_array_equal(found[GridUnit.MASS], volume)
    np.testing.assert_array_equal(found[GridUnit.COUNT], np.ones_like(volume))
    np.testing.assert_array_equal(
        found[GridUnit.OVERDENSITY], (volume / volume.mean(dtype=float) - 1).astype(np.float32)
    )
    assert GriddedSource(particles, grid=SHAPE, unit=GridUnit.COUNT).describe().dataset == "counts"


@pytest.mark.parametrize("assign", list(Assignment))
def test_boxes_have_the_same_bits(tmp_path: Path, assign: Assignment) -> None:
    """A voxel has the same bits in every box, in any order of boxes and with any memory."""
    places = np.random.default_rng(0).random((400, 3), np.float32) * 8
    particles = particles_in(write_hdf5(tmp_path / "s.hdf5", {1: (places, 0.3)}))
    sources = [GriddedSource(particles, grid=7, assign=assign, memory=planes * 8 * 49) for planes in (1, 3, 7)]
    whole = [read_box(source, Box.whole((7, 7, 7))) for source in sources]
    np.testing.assert_array_equal(whole[0], whole[1])
    for source in sources:
        check_source(source, whole[2])


def test_points_at_corners_move_the_grid_by_half_a_cell(tmp_path: Path) -> None:
    """Grid points at i h, as Pylians has them, are those at (i + 1/2) h of particles half a cell further."""
    places = np.random.default_rng(0).integers(0, 2**15, (50, 3)) / 2**12
    cells = []
    for name, moved, points in (("a", places, GridPoints.CORNERS), ("b", (places + 0.5) % 8, GridPoints.CENTRES)):
        particles = particles_in(write_hdf5(tmp_path / f"{name}.hdf5", {1: (moved, 2.0)}))
        cells.append(read_box(GriddedSource(particles, grid=8, points=points), Box.whole((8, 8, 8))))
    np.testing.assert_array_equal(cells[0], cells[1])


def test_particles_are_read_once_when_the_sums_fit(snapshot: tuple[Particles, Array]) -> None:
    """Tiles in the order of D take one pass for each part that fits the memory, and the memory is what is said."""
    for planes, passes in ((4, 1), (2, 2), (3, 2), (1, 4)):
        counted = Counted(snapshot[0])
        source = GriddedSource(counted, grid=SHAPE, assign=Assignment.CIC, memory=planes * 8 * 30)
        with source.open() as read_into:
            for first, stop in pairwise(range(5)):
                for half in ((0, 3), (3, 6)):
                    read_into(Box((first, half[0], 0), (stop, half[1], 5)), np.empty((1, 1, 3, 5), np.float32))
        assert counted.passes == passes
        assert source.describe().scratch_bytes < 2**23


def test_one_number_is_for_a_cube(snapshot: tuple[Particles, Array]) -> None:
    """Of a box with unequal edges one number of cells would make cells that are no cubes: it is asked for."""
    with pytest.raises(UsageError, match=r"box of \(8.0, 3.0, 5.0\).*--grid three numbers"):
        GriddedSource(snapshot[0], grid=4)
    with pytest.raises(UsageError, match="1 cell or more"):
        GriddedSource(snapshot[0], grid=0)


def test_masses_beyond_single_precision_are_refused(tmp_path: Path) -> None:
    """What float32 cannot hold is no infinity in the volume."""
    particles = particles_in(write_hdf5(tmp_path / "s.hdf5", {1: (np.ones((3, 3)), 1e38)}))
    source = GriddedSource(particles, grid=2, assign=Assignment.CIC)
    read_box(source, Box.whole((2, 2, 2)))
    source = GriddedSource(
        particles_in(write_hdf5(tmp_path / "s.hdf5", {1: (np.ones((4, 3)), 1e38)})), grid=2, assign=Assignment.NGP
    )
    with pytest.raises(DataError, match=r"4e\+38 in a cell.*--unit overdensity"):
        read_box(source, Box.whole((2, 2, 2)))


def test_no_mass_has_no_overdensity(tmp_path: Path) -> None:
    """A mean of zero divides nothing."""
    path = write_hdf5(tmp_path / "s.hdf5", {1: (np.ones((3, 3)), np.zeros(3))})
    with pytest.raises(DataError, match="total mass of 0"):
        read_box(GriddedSource(particles_in(path), grid=2, unit=GridUnit.OVERDENSITY), Box.whole((2, 2, 2)))
