"""LbannSplit: universes of the CosmoFlow simulations as LBANN's script splits them.

A cube a file: ``full`` (redshifts, W, W, W), float32 or int16, and ``unitPar``. The script splits the transpose of the
raw universe, so all axes are turned round: (C, W, H, D) of a universe of (D, H, W, C). Source: LBANN,
applications/physics/cosmology/cosmoflow/split_cosmoflow_sample.py.
"""

from __future__ import annotations

from dataclasses import replace

from voxload.convert.sources.cosmouniverse import DATASET, TARGETS
from voxload.convert.sources.cubeaxes import cube_axes, has_channels_first
from voxload.convert.sources.hdf5cube import Hdf5Cube, describe_dataset
from voxload.convert.sources.hdf5targets import read_targets
from voxload.convert.sources.hdf5tree import extents_of, hdf5_tree
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.convert.sources.volumenames import chosen

_AXES = "CWHD"


class LbannSplit:
    """Cubes that LBANN's script cut out of raw universes."""

    name = "LBANN split HDF5"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether an HDF5 file holds ``full``, (1 to 4, N, N, N), and ``unitPar``."""
        found = extents_of(probe, DATASET, TARGETS)
        return bool(found) and has_channels_first(found[0])

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the one cube, with its axes as in the universe unless the caller knows better."""
        chosen(f"{probe.path}", [DATASET], hints)
        stored = hdf5_tree(probe).datasets[DATASET]
        order = cube_axes(f"{probe.path}, dataset {DATASET!r}", stored.shape, given=hints.axes or _AXES)
        cube = describe_dataset(probe.path, DATASET, stored, order=order)
        return (Hdf5Cube(DATASET, replace(cube, targets=read_targets(probe.path, TARGETS)), hints),)
