"""Augmentation that is the same on every rank of a sample group: turns, translations and crops, drawn once a sample.

Which box a rank reads and how it is turned follows from (seed, epoch, sample, which draw of it) alone, so the blocks
of all ranks, with their halos and labels, are blocks of one augmented sample. Pure: no file is opened. Read augment
first; orientation is what a turn does to boxes and arrays.
"""

from voxload.augment.augment import Augment as Augment
from voxload.augment.orientation import Orientation as Orientation
from voxload.augment.sampler import Draw as Draw
from voxload.augment.sampler import Numbered as Numbered
from voxload.augment.symmetries import CubeSymmetries as CubeSymmetries
from voxload.augment.symmetries import Flips as Flips
from voxload.augment.symmetries import Permutations as Permutations
from voxload.augment.symmetries import Rotations as Rotations
from voxload.augment.window import ClassCentres as ClassCentres
from voxload.augment.window import Placement as Placement
from voxload.augment.window import RandomCrop as RandomCrop
from voxload.augment.window import Translations as Translations
