"""MlperfSplit: universes of the CosmoFlow simulations as MLPerf HPC's script splits them, in HDF5.

A cube a file: ``x`` (N, N, N, 4) int16, redshift last, and ``y``, the four parameters scaled to [-1, 1]. Source: MLPerf
HPC, cosmoflow/prepare.py.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from voxload.convert.sources.cubeaxes import cube_axes
from voxload.convert.sources.hdf5cube import Hdf5Cube, describe_dataset
from voxload.convert.sources.hdf5targets import COSMOLOGY, read_targets
from voxload.convert.sources.hdf5tree import extents_of, hdf5_tree
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.convert.sources.volumenames import chosen

_DATASET, _TARGETS = "x", "y"
_AXES = "DHWC"


class MlperfSplit:
    """Cubes that MLPerf HPC's script cut out of raw universes."""

    name = "MLPerf CosmoFlow split HDF5"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether an HDF5 file holds ``x``, (N, N, N, 4) int16, and ``y``, four numbers, and nothing else."""
        found = extents_of(probe, _DATASET, _TARGETS)
        # Every tool calls something x and y: less than all of the layout is no sign of it.
        return (
            bool(found)
            and len(hdf5_tree(probe).datasets) == 2
            and len(found[0]) == 4
            and len(set(found[0][:3])) == 1
            and (found[0][3], found[1]) == (len(COSMOLOGY), (len(COSMOLOGY),))
            and hdf5_tree(probe).datasets[_DATASET].dtype.newbyteorder("=") == np.int16
        )

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the one cube."""
        chosen(f"{probe.path}", [_DATASET], hints)
        stored = hdf5_tree(probe).datasets[_DATASET]
        order = cube_axes(f"{probe.path}, dataset {_DATASET!r}", stored.shape, given=hints.axes or _AXES)
        cube = describe_dataset(probe.path, _DATASET, stored, order=order)
        return (Hdf5Cube(_DATASET, replace(cube, targets=read_targets(probe.path, _TARGETS)), hints),)
