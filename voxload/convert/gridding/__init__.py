"""Mass assignment: snapshots of particles become cubes on a periodic grid."""

from voxload.convert.gridding.assignment import Assignment as Assignment
from voxload.convert.gridding.assignment import GridPoints as GridPoints
from voxload.convert.gridding.assignment import GridUnit as GridUnit
from voxload.convert.gridding.gridded import GriddedSource as GriddedSource
from voxload.convert.gridding.gridding import Gridding as Gridding
from voxload.convert.gridding.particles import ParticleChoice as ParticleChoice
from voxload.convert.gridding.particles import Particles as Particles
from voxload.convert.gridding.particles import Snapshot as Snapshot
from voxload.convert.gridding.recognise import open_cubes as open_cubes
from voxload.convert.gridding.recognise import particles_of as particles_of
