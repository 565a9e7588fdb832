"""Mass assignment: against the kernels' definition, and where the answer is exact."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from tests.convert.gridding.snapshots import Array, reference
from voxload.convert.gridding import Assignment, GridPoints, GridUnit, Snapshot
from voxload.convert.gridding.assignment import Mesh, PlaneSums
from voxload.convert.gridding.particles import Batch, runs
from voxload.errors import DataError

ALL = list(Assignment)


@dataclass(frozen=True)
class InMemory:
    """Particles of a test."""

    positions: Array
    masses: Array = field(default_factory=lambda: np.ones(1))
    box: tuple[float, float, float] = (8.0, 8.0, 8.0)

    def describe(self) -> Snapshot:
        """Return what is known of them."""
        return Snapshot((Path("test"),), "", kind="test", count=len(self.positions), box=self.box)

    def batches(self, size: int) -> Generator[Batch, None, None]:
        """Yield them."""
        for first, stop in runs(len(self.positions), min(size, 100)):
            yield self.positions[first:stop], self.masses[first:stop] if len(self.masses) > 1 else self.masses

    def total_mass(self) -> float:
        """Return their mass."""
        return float(self.masses.sum() * (len(self.positions) // len(self.masses)))


def grid_of(
    particles: InMemory,
    shape: Sequence[int],
    assign: Assignment,
    *,
    points: GridPoints = GridPoints.CENTRES,
    planes: int = 0,
) -> Array:
    """Return the whole grid, summed a few planes at a time."""
    mesh = Mesh((shape[0], shape[1], shape[2]), assign, points, planes or shape[0])
    sums = PlaneSums(particles, mesh, GridUnit.MASS)
    return np.concatenate([sums.run_of(first)[1].copy() for first in range(0, shape[0], mesh.planes)])


def random_particles(count: int = 500, seed: int = 1, box: tuple[float, float, float] = (8.0, 8.0, 8.0)) -> InMemory:
    """Return particles at random places with random masses."""
    draw = np.random.default_rng(seed)
    return InMemory(draw.random((count, 3)) * box, draw.random(count), box)


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("assign", ALL)
@pytest.mark.parametrize("shape", [(8, 6, 9), (5, 7, 4)])
def test_no_axis_moves_against_the_definition(assign: Assignment, shape: tuple[int, int, int]) -> None:
    """Cells of unequal widths and numbers hold what the kernel's definition says, summed by numpy."""
    box = (8.0, 3.0, 5.0)
    particles = random_particles(box=box)
    found = grid_of(particles, shape, assign)
    cells = [extent / edge for extent, edge in zip(shape, box, strict=True)]
    expected = reference(particles.positions, particles.masses, shape, cells=cells, order=assign.order)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.sum(), particles.masses.sum(), rtol=1e-13)


@pytest.mark.parametrize("assign", ALL)
@pytest.mark.parametrize("extent", [1, 2, 3])
def test_kernels_wider_than_the_grid_wrap_more_than_once(assign: Assignment, extent: int) -> None:
    """A grid of fewer cells than the kernel is wide gets each share where it wraps to."""
    particles = random_particles(50)
    found = grid_of(particles, (extent,) * 3, assign)
    expected = reference(
        particles.positions, particles.masses, (extent,) * 3, cells=(extent / 8,) * 3, order=assign.order
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("assign", "centre", "side"), [("ngp", 1, 0), ("cic", 1, 0), ("tsc", 3 / 4, 1 / 8)])
@pytest.mark.parametrize("points", list(GridPoints))
def test_particle_on_a_grid_point(assign: str, centre: float, side: float, points: GridPoints) -> None:
    """A particle on a grid point gives it the kernel's middle weight, and its neighbours the next."""
    place = np.array([[2.0, 0.0, 7.0]]) + points.offset
    found = grid_of(InMemory(place), (8, 8, 8), Assignment(assign), points=points)
    assert found[2, 0, 7] == centre**3
    assert found[2, 0, 6] == found[2, 0, 0] == found[3, 0, 7] == found[2, 7, 7] == centre**2 * side
    assert found.sum() == 1


@pytest.mark.parametrize("assign", ALL)
@pytest.mark.parametrize("shift", [0.0, 0.5, 0.3])
def test_uniform_lattice_is_uniform(assign: Assignment, shift: float) -> None:
    """One particle a cell, wherever in the cell, gives the same mass to all cells."""
    cells = np.stack(np.meshgrid(*[np.arange(6.0)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    found = grid_of(InMemory((cells + shift) % 6, box=(6.0, 6.0, 6.0)), (6, 6, 6), assign)
    np.testing.assert_allclose(found, 1, rtol=0, atol=1e-14)


@pytest.mark.parametrize("assign", ALL)
def test_translation_by_whole_cells_rolls(assign: Assignment) -> None:
    """Particles moved by whole cells, around the edge too, give the same bits, moved."""
    places = np.random.default_rng(2).integers(0, 2**20, (300, 3)) / 2**17
    before = grid_of(InMemory(places), (8, 8, 8), assign)
    after = grid_of(InMemory((places + np.array([1, 7, 3])) % 8), (8, 8, 8), assign)
    np.testing.assert_array_equal(after, np.roll(before, (1, 7, 3), axis=(0, 1, 2)))


@pytest.mark.parametrize("assign", ALL)
@pytest.mark.parametrize("planes", [1, 3, 7])
def test_planes_have_the_same_bits_however_they_are_cut(assign: Assignment, planes: int) -> None:
    """Sums keep the order of the particles: a plane is the same alone and with all others."""
    particles = random_particles(1000)
    np.testing.assert_array_equal(
        grid_of(particles, (8, 8, 8), assign, planes=planes), grid_of(particles, (8, 8, 8), assign)
    )


@pytest.mark.parametrize("assign", ALL)
def test_edge_of_the_box_wraps(assign: Assignment) -> None:
    """A particle exactly at the upper edge is at the lower one; one rounded beyond an edge wraps."""
    middle = [3.3, 3.3]
    at = [grid_of(InMemory(np.array([[x, *middle]])), (8, 8, 8), assign) for x in (0.0, 8.0)]
    np.testing.assert_array_equal(at[0], at[1])
    pairs = [(-0.0625, 7.9375), (8.0625, 0.0625)]
    for outside, inside in pairs:
        found = [grid_of(InMemory(np.array([[*middle, x]])), (8, 8, 8), assign) for x in (outside, inside)]
        np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-14)


@pytest.mark.parametrize("bad", [-1.0, 9.0, 8000.0, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("planes", [1, 8])
def test_particle_that_is_nowhere_is_named(bad: float, axis: int, planes: int) -> None:
    """What lies far outside the box, or has no position, is an error with its number, whatever plane is asked for."""
    positions = np.full((250, 3), 4.0)
    positions[233, axis] = bad
    with pytest.raises(DataError, match=r"test, particle 233: found position \(.*box size has another unit"):
        grid_of(InMemory(positions), (8, 8, 8), Assignment.CIC, planes=planes)


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_mass_that_is_none_is_refused(bad: float) -> None:
    """A negative or infinite mass is an error."""
    masses = np.ones(10)
    masses[3] = bad
    with pytest.raises(DataError, match=r"particle 3: .*masses of 0 or more"):
        grid_of(InMemory(np.ones((10, 3)), masses), (8, 8, 8), Assignment.TSC)


def test_single_precision_positions_are_taken_as_they_are() -> None:
    """float32 positions give what the same numbers in float64 give."""
    places = random_particles().positions.astype(np.float32)
    single, double = (grid_of(InMemory(places.astype(kind)), (8, 8, 8), Assignment.PCS) for kind in ("f4", "f8"))
    np.testing.assert_array_equal(single, double)
