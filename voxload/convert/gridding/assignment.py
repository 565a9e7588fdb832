"""Mass assignment: how the mass of particles is spread over the planes of a periodic grid.

As many planes at a time as memory allows.
"""

from __future__ import annotations

import enum
from contextlib import closing
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from voxload.convert.gridding.kernels import OUTSIDE, deposit_kernel
from voxload.convert.gridding.particles import Masses, Particles, Positions
from voxload.errors import DataError


class Assignment(enum.StrEnum):
    """Shape of a particle: a B-spline as wide as so many cells.

    Source: Hockney and Eastwood, Computer Simulation Using Particles, section 5-3; PCS after Sefusatti et al. 2016,
    arXiv:1512.07295, section 3.
    """

    NGP = "ngp"
    """Nearest grid point: all to one cell."""
    CIC = "cic"
    """Cloud in cell: two cells an axis."""
    TSC = "tsc"
    """Triangular shaped cloud: three cells an axis."""
    PCS = "pcs"
    """Piecewise cubic spline: four cells an axis."""

    @property
    def order(self) -> int:
        """Cells that a particle touches along an axis."""
        return list(Assignment).index(self) + 1


class GridPoints(enum.StrEnum):
    """Where the grid point of voxel i lies, of cells of width h."""

    CENTRES = "centres"
    """At (i + 1/2) h, the middle of the voxel: NGP is then a histogram, as of the CosmoFlow universes."""
    CORNERS = "corners"
    """At i h, as in Pylians (which made the Quijote and CAMELS grids) and in most particle-mesh codes."""

    @property
    def offset(self) -> float:
        """Place of the first grid point, in cells."""
        return 0.5 if self is GridPoints.CENTRES else 0.0


class GridUnit(enum.StrEnum):
    """What a voxel holds."""

    MASS = "mass"
    """Mass in the cell, in the snapshot's unit of mass."""
    OVERDENSITY = "overdensity"
    """Mass in the cell over the mean of all cells, less 1."""
    COUNT = "count"
    """Particles in the cell, whatever their mass."""

    @property
    def dataset(self) -> str:
        """Name of the volume."""
        return "counts" if self is GridUnit.COUNT else "density"


Sums = npt.NDArray[np.float64]

BATCH = 2**16
"""Particles that are read at once."""
BATCH_BYTES = 96 * BATCH
"""Memory of a batch: positions and masses as stored, in native order and in double precision, 32 bytes each."""


@dataclass(frozen=True, slots=True)
class Mesh:
    """A periodic grid."""

    shape: tuple[int, int, int]
    """Cells (D, H, W); D is the axis of the first coordinate."""
    assign: Assignment
    """How mass is spread."""
    points: GridPoints
    """Where the grid points lie."""
    planes: int
    """Planes of D that are held at once."""

    @classmethod
    def within(cls, memory: int, shape: tuple[int, int, int], *, assign: Assignment, points: GridPoints) -> Mesh:
        """Return the mesh that holds as many planes as fit `memory` in bytes, at least one."""
        most = max(1, memory // (8 * prod(shape[1:])))
        passes = -(-shape[0] // most)
        return cls(shape, assign, points, -(-shape[0] // passes))

    @property
    def nbytes(self) -> int:
        """Memory of the planes that are held."""
        return 8 * self.planes * prod(self.shape[1:])


class PlaneSums:
    """Planes of the grid, summed when they are asked for; keeps the latest run of them.

    Parameters
    ----------
    particles
        The snapshot.
    mesh
        The grid.
    unit
        What a cell holds.

    Raises
    ------
    DataError
        When overdensity is wanted of particles without mass.
    """

    def __init__(self, particles: Particles, mesh: Mesh, unit: GridUnit) -> None:
        self._particles, self._mesh, self._unit = particles, mesh, unit
        self._mean = self._mean_mass() if unit is GridUnit.OVERDENSITY else 0.0
        self._sums = np.empty((mesh.planes, *mesh.shape[1:]))
        self._held = -1

    def run_of(self, plane: int) -> tuple[int, Sums]:
        """Return the first plane of the run that holds `plane`, and its sums (planes, H, W); valid until the next call.

        Raises
        ------
        DataError
            When a particle lies far outside the box, has no position or no mass, a cell holds more than float32 can,
            or the file is broken.
        """
        run = plane // self._mesh.planes
        first = run * self._mesh.planes
        sums = self._sums[: self._mesh.shape[0] - first]
        if run != self._held:
            self._held = -1
            sums[:] = 0
            self._fill(sums, first)
            self._finish(sums)
            self._held = run
        return first, sums

    def _fill(self, sums: Sums, first: int) -> None:
        """Make one pass over all particles."""
        mesh, snapshot, count = self._mesh, self._particles.describe(), 0
        grid = np.array([*mesh.shape, first, len(sums)], dtype=np.int64)
        cells = [extent / edge for extent, edge in zip(mesh.shape, snapshot.box, strict=True)]
        scale = np.array([*cells, mesh.points.offset])
        deposit, flat = deposit_kernel(mesh.assign.order), sums.reshape(-1)
        with closing(self._particles.batches(BATCH)) as batches:
            for positions, stored in batches:
                masses = np.ones(1) if self._unit is GridUnit.COUNT else stored
                bad = deposit(flat, positions.astype(np.float64, order="C", copy=False), masses, grid, scale)
                if bad >= 0:
                    raise self._nowhere(count, bad, positions, masses)
                count += len(positions)
        if count != snapshot.count:
            raise DataError(
                f"{snapshot.files[0]}", found=f"{count} particles", expected=f"{snapshot.count}, as the header says"
            )

    def _finish(self, sums: Sums) -> None:
        """Turn sums into the unit that is wanted, in place."""
        if self._mean:
            sums /= self._mean
            sums -= 1
        largest = float(sums.max())
        if largest > float(np.finfo(np.float32).max):
            raise DataError(
                f"{self._particles.describe().files[0]}",
                found=f"{largest:g} in a cell",
                expected="values that float32 can hold",
                remedy="add --unit overdensity",
            )

    def _mean_mass(self) -> float:
        """Return the mean mass of a cell."""
        total = self._particles.total_mass()
        if not total > 0:
            raise DataError(
                f"{self._particles.describe().files[0]}", found=f"a total mass of {total:g}", expected="mass above 0"
            )
        return total / prod(self._mesh.shape)

    def _nowhere(self, before: int, number: int, positions: Positions, masses: Masses) -> DataError:
        """Return the error of a particle that the grid does not hold."""
        snapshot = self._particles.describe()
        place = ", ".join(f"{coordinate:g}" for coordinate in positions[number])
        mass = masses[number] if len(masses) > 1 else masses[0]
        return DataError(
            f"{snapshot.files[0]}, particle {before + number}",
            found=f"position ({place}) and mass {mass:g}",
            expected=f"positions in a box of {snapshot.box} or {OUTSIDE:.0%} around it, masses of 0 or more",
            remedy="the box size has another unit, positions another origin, or the file is damaged",
        )
