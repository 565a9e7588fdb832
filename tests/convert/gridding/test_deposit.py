"""Mass assignment: against the kernels' definition, and where the answer is exact."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.convert.gridding.snapshots import Array, reference
from voxload.convert.gridding import Assignment, GridPoints, GridUnit, Snapshot
from voxload.convert.gridding.assignment import Mesh, PlaneSums
from voxload.convert.gridding.kernels import deposit_kernel
from voxload.convert.gridding.particles import Batch, runs
from voxload.errors import DataError, InternalError

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


def _weights(f: float, order: int) -> list[float]:
    """Return a spline's weights, in the order of operations that makes their bits."""
    if order < 3:
        return [1.0] if order == 1 else [1.0 - f, f]
    f -= 1.0
    g = 1.0 - f
    if order == 3:
        return [0.5 * ((0.5 - f) * (0.5 - f)), 0.75 - f * f, 0.5 * ((0.5 + f) * (0.5 + f))]
    second, third = (4.0 - 6.0 * f * f + 3.0 * f * f * f) / 6.0, (4.0 - 6.0 * g * g + 3.0 * g * g * g) / 6.0
    return [g * g * g / 6.0, second, third, f * f * f / 6.0]


def _plainly(sums: Array, positions: Array, masses: Array, grid: list[int], scale: list[float], order: int) -> None:
    """Add particles to planes as plain Python does, one after the other."""
    extents, lowest, planes = grid[:3], grid[3], grid[4]
    for number, position in enumerate(positions.tolist()):
        mass, parts = float(masses[number if len(masses) > 1 else 0]), []
        for place, cells, extent in zip(position, scale, extents, strict=False):
            at = place * cells - scale[3]
            first = math.floor(at + 1.0 - 0.5 * order)
            near = [(first + step) % extent for step in range(order)]
            parts.append(list(zip(near, _weights(at - first, order), strict=True)))
        for row, a in parts[0]:
            for column, b in parts[1]:
                for cell, c in parts[2]:
                    if lowest <= row < lowest + planes:
                        sums[row - lowest, column, cell] += mass * a * b * c


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
@pytest.mark.parametrize("planes", [(0, 5), (0, 2), (3, 2), (2, 1), (4, 0)])
def test_sums_have_the_bits_of_plain_python(order: int, count: int, planes: tuple[int, int]) -> None:
    """Blocks of particles, whole and in part, give what one after the other gives, to the bit, at the edges too."""
    draw = np.random.default_rng(count)
    for shape in ((5, 6, 7), (5, 1, 2), (5, 3, 1)):
        positions = draw.random((count, 3)) * 1.02 - 0.01
        positions[::5] = draw.choice([-0.01, 0.0, -0.0, 0.1, 0.2, 0.5, 1.0, 1.01, 5e-324], (len(positions[::5]), 3))
        masses = draw.random(count if count % 2 else 1)
        for offset in (0.0, 0.5):
            grid, scale = [*shape, *planes], [*map(float, shape), offset]
            start = draw.random((planes[1], *shape[1:]))
            expected, found = start.copy(), start.copy().reshape(-1)
            _plainly(expected, positions, masses, grid, scale, order)
            assert deposit_kernel(order)(found, positions, masses, np.array(grid), np.array(scale)) == -1
            assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("bad", [0, 5, 63, 64, 65, 149])
@pytest.mark.parametrize("planes", [(0, 4), (1, 2)])
def test_particles_before_a_bad_one_are_added(bad: int, planes: tuple[int, int]) -> None:
    """The number is that of the first, wherever it is in a block, and nothing behind it counts."""
    particles = random_particles(150, box=(1.0, 1.0, 1.0))
    grid, scale = np.array([4, 4, 4, *planes]), np.array([4.0, 4.0, 4.0, 0.5])
    expected, found = np.zeros(planes[1] * 16), np.zeros(planes[1] * 16)
    assert deposit_kernel(2)(expected, particles.positions[:bad], particles.masses[:bad], grid, scale) == -1
    masses = particles.masses.copy()
    masses[bad], masses[-1] = -1.0, np.nan
    assert deposit_kernel(2)(found, particles.positions, masses, grid, scale) == bad
    assert found.tobytes() == expected.tobytes()


def test_no_particles_need_no_masses() -> None:
    """Nothing is added, and nothing read."""
    sums, none = np.zeros(8), np.empty((0, 3))
    for masses in (np.empty(0), np.ones(1)):
        assert deposit_kernel(4)(sums, none, masses, np.array([2, 2, 2, 0, 2]), np.array([1.0, 1.0, 1.0, 0.0])) == -1
    assert not sums.any()


UNALIGNED = np.zeros(8 * 64 + 1, np.uint8)[1:].view(np.float64)
CONST = np.zeros(64)
CONST.setflags(write=False)
MESH = [4, 4, 4, 0, 4]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sums", np.zeros(63)),
        ("sums", np.zeros(65)),
        ("sums", np.zeros((4, 4, 4))),
        ("sums", np.zeros(64, np.float32)),
        ("sums", np.zeros(64, ">f8")),
        ("sums", np.zeros(128)[::2]),
        ("sums", UNALIGNED),
        ("positions", np.ones((5, 2))),
        ("positions", np.ones(15)),
        ("positions", np.ones((5, 3), np.float32)),
        ("positions", np.ones((3, 5)).T),
        ("masses", np.ones(4)),
        ("masses", np.ones(0)),
        ("masses", np.ones((5, 1))),
        ("masses", np.ones(5, np.int64)),
        *[("grid", np.array(grid)) for grid in ([4, 4, 4, 1, 4], [4, 4, 4, -1, 4], [4, 4, 4, 0], [0, 4, 4, 0, 4])],
        *[("grid", np.array(grid)) for grid in ([4, -4, -4, 0, 4], [2**62, 4, 4, 0, 4], [4, 2**62, 2**62, 0, 4])],
        ("grid", np.array(MESH, np.int32)),
        ("grid", np.array(MESH, ">i8")),
        ("scale", np.ones(3)),
        *[("scale", np.array([1.0, 1.0, 1.0, offset])) for offset in (np.nan, -0.5, 1.0, 1e300)],
    ],
)
def test_what_does_not_belong_together_is_refused(name: str, value: npt.NDArray[Any]) -> None:
    """Before anything is added: the kernel trusts its caller."""
    arguments: dict[str, npt.NDArray[Any]] = {
        "sums": np.zeros(64),
        "positions": np.ones((5, 3)),
        "masses": np.ones(5),
        "grid": np.array(MESH),
        "scale": np.array([1.0, 1.0, 1.0, 0.5]),
    }
    kernel = deposit_kernel(1)
    assert kernel(*arguments.values()) == -1
    with pytest.raises(InternalError, match="expected"):
        kernel(*(arguments | {name: value}).values())


def test_sums_that_are_read_only_and_unknown_orders_are_refused() -> None:
    """The one by the core's door, the other when the kernel is asked for."""
    with pytest.raises(ctypes.ArgumentError, match="writeable"):
        deposit_kernel(1)(CONST, np.ones((1, 3)), np.ones(1), np.array(MESH), np.array([1.0, 1.0, 1.0, 0.5]))
    for order in (0, 5):
        with pytest.raises(InternalError, match="1 to 4"):
            deposit_kernel(order)
