"""Mass assignment: snapshots of particles become cubes on a periodic grid.

In comes a snapshot of Gadget or PyCOLA, out comes a source as any other. Read `particles`, the contract, then
`source`.
"""

from voxload.convert.gridding.assignment import Assignment as Assignment
from voxload.convert.gridding.assignment import GridPoints as GridPoints
from voxload.convert.gridding.assignment import GridUnit as GridUnit
from voxload.convert.gridding.particles import ParticleChoice as ParticleChoice
from voxload.convert.gridding.particles import Particles as Particles
from voxload.convert.gridding.particles import Snapshot as Snapshot
from voxload.convert.gridding.registry import open_cubes as open_cubes
from voxload.convert.gridding.registry import particles_of as particles_of
from voxload.convert.gridding.source import GriddedSource as GriddedSource
from voxload.convert.gridding.source import Gridding as Gridding
