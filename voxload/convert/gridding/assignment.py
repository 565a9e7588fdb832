"""Assignment: how the mass of a particle is spread over the grid, and what the grid then holds."""

from __future__ import annotations

import enum


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
