"""GriddedSource: the density of a snapshot of particles on a periodic grid, as a raw cube."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from voxload.convert.gridding.assignment import BATCH_BYTES, Assignment, GridPoints, GridUnit, Mesh, PlaneSums
from voxload.convert.gridding.particles import ParticleChoice, Particles, Snapshot
from voxload.convert.gridding.registry import particles_of
from voxload.convert.sources.protocol import RawCube, ReadInto
from voxload.errors import UsageError
from voxload.geometry import Box
from voxload.readers.axes import AxisOrder
from voxload.readers.protocol import Volume

DEFAULT_MEMORY = 2**27
"""Bytes for the sums of planes, unless told otherwise: a grid of 256 cells an axis in one pass."""


class GriddedSource:
    """Particles on a grid, float32, axes (D, H, W) along the first, second and third coordinate.

    Sums are in double precision and in the order of the particles, so that a voxel has the same bits in every box. A
    grid whose sums fit `memory` takes one pass over the particles, another one a pass for each part of its planes:
    ask for boxes in the order of D.

    Parameters
    ----------
    particles
        The snapshot.
    grid
        Cells along each axis, one number for a cubic box, or three.
    assign
        How mass is spread over cells.
    unit
        What a voxel holds.
    points
        Where the grid points lie.
    memory
        Bytes for the sums; one plane is held at least.

    Raises
    ------
    UsageError
        When the grid has no cells, one number is given for a box that is no cube, or particles have no masses and
        mass is wanted.
    """

    def __init__(
        self,
        particles: Particles,
        *,
        grid: int | tuple[int, int, int],
        assign: Assignment = Assignment.CIC,
        unit: GridUnit = GridUnit.MASS,
        points: GridPoints = GridPoints.CENTRES,
        memory: int = DEFAULT_MEMORY,
    ) -> None:
        snapshot = particles.describe()
        if unit is GridUnit.MASS and not snapshot.has_masses:
            raise UsageError(
                f"{snapshot.files[0]}",
                found=f"{snapshot.kind} without masses",
                expected="masses",
                remedy="add --unit count or --unit overdensity",
            )
        self._particles, self._unit = particles, unit
        self._mesh = Mesh.within(memory, _shape(snapshot, grid), assign=assign, points=points)

    def describe(self) -> RawCube:
        """Return what is known of the cube."""
        snapshot, mesh = self._particles.describe(), self._mesh
        return RawCube(
            snapshot.files[0],
            self._unit.dataset,
            shape=mesh.shape,
            order=AxisOrder("DHW"),
            dtype=np.dtype(np.float32),
            scratch_bytes=mesh.nbytes + BATCH_BYTES + snapshot.scratch_bytes,
            sample=snapshot.sample,
            companions=snapshot.files[1:],
            attributes={
                "source": snapshot.kind,
                "unit": str(self._unit),
                "grid": list(mesh.shape),
                "assignment": str(mesh.assign),
                "grid_points": str(mesh.points),
                "box_size": list(snapshot.box),
                "particles": snapshot.count,
                **({"particle_types": list(snapshot.types)} if snapshot.types else {}),
                **({"redshift": snapshot.redshift} if snapshot.redshift is not None else {}),
            },
        )

    @contextmanager
    def open(self) -> Iterator[ReadInto]:
        """Give the function that reads a box; the sums are freed at the end of the block."""
        planes = PlaneSums(self._particles, self._mesh, self._unit)

        def read_into(box: Box, out: Volume) -> None:
            lo, hi = box.start[0], box.stop[0]
            while lo < hi:
                first, found = planes.run_of(lo)
                stop = min(hi, first + len(found))
                part = found[(slice(lo - first, stop - first), *box.slices[1:])]
                np.copyto(out[0, lo - box.start[0] : stop - box.start[0]], part, casting="same_kind")
                lo = stop

        yield read_into


def _shape(snapshot: Snapshot, grid: int | tuple[int, int, int]) -> tuple[int, int, int]:
    shape = (grid, grid, grid) if isinstance(grid, int) else grid
    if min(shape) < 1:
        raise UsageError("--grid", found=str(grid), expected="1 cell or more")
    if isinstance(grid, int) and len(set(snapshot.box)) > 1:
        raise UsageError(
            f"{snapshot.files[0]}",
            found=f"a box of {snapshot.box}",
            expected="to know the number of cells along each edge",
            remedy="give --grid three numbers",
        )
    return shape


@dataclass(frozen=True, slots=True)
class Gridding:
    """What is asked of snapshots of particles."""

    grid: int | tuple[int, int, int]
    """Cells along each axis, one number for a cubic box, or three."""
    assign: Assignment = Assignment.CIC
    """How mass is spread over cells."""
    unit: GridUnit = GridUnit.MASS
    """What a voxel holds."""
    points: GridPoints = GridPoints.CENTRES
    """Where the grid points lie."""
    choice: ParticleChoice = field(default_factory=ParticleChoice)
    """Which particles."""

    def source_of(self, path: Path, *, memory: int) -> GriddedSource | None:
        """Return the grid of the particles in a file, None where there are none; `memory` is for the sums, in bytes.

        Raises what `particles_of` and `GriddedSource` raise.
        """
        particles = particles_of(path, self.choice)
        if particles is None:
            return None
        return GriddedSource(
            particles, grid=self.grid, assign=self.assign, unit=self.unit, points=self.points, memory=memory
        )
