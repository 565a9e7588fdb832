"""MultiScale: the multiScale_tryG files of the CosmoFlow simulations, many samples a file.

``3Dmap`` (samples, D, H, W, channels), uint16, and ``unitPar`` (samples, parameters); in the originals 128 samples of
128^3 voxels and 12 channels. Source: NU-CUCIS/async-io-cosmoflow, feeder_sync.py.
"""

from __future__ import annotations

from dataclasses import replace

from voxload.convert.sources.cubeaxes import cube_axes
from voxload.convert.sources.hdf5cube import describe_dataset
from voxload.convert.sources.hdf5slab import Hdf5Slab, check_slabs
from voxload.convert.sources.hdf5targets import read_target_rows
from voxload.convert.sources.hdf5tree import extents_of, hdf5_tree
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.partnames import part_name
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.convert.sources.volumenames import chosen
from voxload.errors import DataError

_DATASET, _TARGETS = "3Dmap", "unitPar"
_AXES = "DHWC"


class MultiScale:
    """Files of many cubes with a row of parameters each."""

    name = "multiScale_tryG"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether an HDF5 file holds ``3Dmap``, of five axes, and ``unitPar``, of two."""
        return tuple(len(shape) for shape in extents_of(probe, _DATASET, _TARGETS)) == (5, 2)

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the samples in their order; raises DataError unless each has its parameters."""
        subject = f"{probe.path}, dataset {_DATASET!r}"
        chosen(f"{probe.path}", [_DATASET], hints)
        stored = hdf5_tree(probe).datasets[_DATASET]
        check_slabs(probe.path, _DATASET)
        order = cube_axes(subject, stored.shape[1:], given=hints.axes or _AXES)
        cube = describe_dataset(probe.path, _DATASET, stored, order=order, fixed=(0,))
        rows, count = read_target_rows(probe.path, _TARGETS), stored.shape[0]
        if len(rows) != count:
            raise DataError(subject, found=f"{count} cubes", expected=f"{len(rows)}, the rows of {_TARGETS!r}")
        parts = [replace(cube, targets=row, part=part_name((k,), (count,))) for k, row in enumerate(rows)]
        return tuple(Hdf5Slab(_DATASET, part, {0: k}, missing=hints.missing) for k, part in enumerate(parts))
