"""Gridding: how snapshots of particles are asked to become cubes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from voxload.convert.gridding.assignment import Assignment, GridPoints, GridUnit
from voxload.convert.gridding.gridded import GriddedSource
from voxload.convert.gridding.particles import ParticleChoice
from voxload.convert.gridding.recognise import particles_of


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
