"""MlperfCosmoflow: the TFRecord files of MLPerf HPC CosmoFlow.

One sub-cube a record: ``x``, the bytes of (N, N, N, 4) int16 counts, redshift last, and ``y``, four floats. Source:
prepare.py and data/cosmo.py of the reference implementation, mlcommons/hpc.
"""

from __future__ import annotations

import numpy as np

from voxload.convert.sources.examplerecords import Cube, Example, example_sources, first_feature, read_examples
from voxload.convert.sources.hdf5targets import COSMOLOGY
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.convert.sources.sizes import exact_cube_root
from voxload.errors import DataError
from voxload.readers.axes import resolve_axes

CHANNELS = 4
"""Redshifts of a universe."""

_VOXELS, _TARGETS = "x", "y"
_DTYPE = np.dtype("<i2")


class MlperfCosmoflow:
    """Records of MLPerf HPC CosmoFlow, plain or in one gzip stream.

    A plain record is read and its checksum compared before its first voxel is given; that of a compressed one is
    compared when its last voxel is given.
    """

    name = "MLPerf CosmoFlow TFRecord"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether the first record begins with ``y``, four floats, or ``x``, the bytes of (N, N, N, 4) int16."""
        first = first_feature(probe)
        if first is None or first.name not in {_VOXELS, _TARGETS}:
            return False
        if first.name == _TARGETS:
            return len(first.floats) == len(COSMOLOGY)
        return len(first.strings) == 1 and _extent(first.strings[0].length) is not None

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return one cube for each record; raises DataError when one is damaged or something else."""

        def cube_of(subject: str, example: Example) -> Cube:
            extent = _extent(example.voxels.length)
            if extent is None:
                expected = f"those of a cube of {CHANNELS} channels of {_DTYPE.name}"
                raise DataError(subject, found=f"{example.voxels.length} bytes in {_VOXELS!r}", expected=expected)
            values = example.targets.floats
            if len(values) != len(COSMOLOGY):
                raise DataError(
                    subject,
                    found=f"{len(values)} floats in {_TARGETS!r}",
                    expected=f"{len(COSMOLOGY)}: {', '.join(COSMOLOGY)}",
                )
            order = resolve_axes(subject, ndim=4, given=hints.axes, declared="DHWC")
            shape = tuple(CHANNELS if axis == "C" else extent for axis in order.axes)
            return Cube(shape, order, _DTYPE, dict(zip(COSMOLOGY, values, strict=True)))

        examples = read_examples(probe, voxels=_VOXELS, targets=_TARGETS)
        return example_sources(probe, examples, cube_of, dataset=_VOXELS)


def _extent(length: int) -> int | None:
    """Return the extent of the cube that has so many bytes, if there is one."""
    count, rest = divmod(length, CHANNELS * _DTYPE.itemsize)
    return None if rest else exact_cube_root(count)
