"""CosmoFlow's records: the TFRecord files of MLPerf HPC and of the first CosmoFlow, the binary samples of NoPFS.

MlperfCosmoflow: the TFRecord files of MLPerf HPC CosmoFlow. One sub-cube a record: ``x``, the bytes of (N, N, N, 4)
int16 counts, redshift last, and ``y``, four floats. Source: prepare.py and data/cosmo.py of the reference
implementation, mlcommons/hpc.

Cosmoflow2018: the TFRecord files of the first CosmoFlow. ``data_raw`` is the bytes of one (N, N, N) float64 cube and
``label_raw`` those of its targets, float64 too. Source: io_Cosmo.py of NERSC/CosmoFlow, whose first two labels are
omega_m and sigma_8; a third one is the spectral index in some of its data sets and the Hubble constant in others, so
that it is only numbered.

NopfsRaw: the headerless samples that NoPFS reads of CosmoFlow. Four float32 targets, then (4, N, N, N) int16 counts,
redshift first. Source: CosmoFlowBackend.h of NoPFS.
"""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np

from voxload.convert.sources.arrays.hdf5targets import COSMOLOGY
from voxload.convert.sources.arrays.headerless import exact_cube_root, has_signature, headerless_file
from voxload.convert.sources.binary.flat import FlatSource, describe_flat
from voxload.convert.sources.hints import Headerless, Hints
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.convert.sources.records.examples import (
    Cube,
    Example,
    Kind,
    example_sources,
    first_feature,
    named,
    read_examples,
)
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


_VOXELS_2018, _TARGETS_2018 = "data_raw", "label_raw"
_DTYPE_2018 = np.dtype("<f8")
_NAMES = ("omega_m", "sigma_8")


class Cosmoflow2018:
    """Records of the first CosmoFlow; checksums are compared as those of MLPerf's files are."""

    name = "CosmoFlow 2018 TFRecord"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether the first record begins with ``data_raw`` or ``label_raw``, byte strings."""
        first = first_feature(probe)
        return first is not None and first.name in {_VOXELS_2018, _TARGETS_2018} and first.kind is Kind.BYTES

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return one cube for each record; raises DataError when one is damaged or something else."""

        def cube_of(subject: str, example: Example) -> Cube:
            count, rest = divmod(example.voxels.length, _DTYPE_2018.itemsize)
            extent = None if rest else exact_cube_root(count)
            if extent is None:
                found = f"{example.voxels.length} bytes in {_VOXELS_2018!r}"
                raise DataError(subject, found=found, expected=f"those of a cube of {_DTYPE_2018.name}")
            order = resolve_axes(subject, ndim=3, given=hints.axes, declared="DHW")
            return Cube((extent,) * 3, order, _DTYPE_2018, named(_NAMES, _labels(subject, example)))

        examples = read_examples(probe, voxels=_VOXELS_2018, targets=_TARGETS_2018)
        return example_sources(probe, examples, cube_of, dataset=_VOXELS_2018)


def _labels(subject: str, example: Example) -> tuple[float, ...]:
    strings = example.targets.strings
    content = strings[0].content if len(strings) == 1 else None
    if content is None or len(content) % _DTYPE_2018.itemsize:
        lengths = [string.length for string in strings]
        raise DataError(
            subject, found=f"byte strings of {lengths} bytes in {_TARGETS_2018!r}", expected="one of a few float64"
        )
    return tuple(float(value) for value in np.frombuffer(content, _DTYPE_2018))


_LABELS = struct.Struct("<4f")
_NOPFS_DTYPE = "<i2"


class NopfsRaw:
    """Samples of NoPFS: nothing in them but their exact size and the targets' plausibility tells what they are."""

    name = "NoPFS raw binary"
    is_generic = False
    is_headerless = True
    """Whether the caller may say more of a file with --shape, --dtype and --order."""

    def claims(self, probe: Probe) -> bool:
        """Tell whether a ``.bin`` file has exactly the size of a sample, and begins with four normal numbers."""
        if probe.path.suffix != ".bin" or _nopfs_extent(probe.size) is None or has_signature(probe):
            return False
        labels = np.array(_LABELS.unpack_from(probe.head), dtype="f4")
        # Small integers, such as a Fortran record marker or a count, are subnormal numbers when taken for floats.
        is_normal = (labels == 0) | (np.abs(labels) >= np.finfo("f4").smallest_normal)
        return bool((np.isfinite(labels) & is_normal).all())

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the one sub-cube."""
        extent = _nopfs_extent(probe.size) or 1
        facts = Headerless((CHANNELS, *(extent,) * 3), _NOPFS_DTYPE, header_bytes=_LABELS.size)
        file = headerless_file(probe.path, facts, hints, declared="CDHW")
        targets = dict(zip(COSMOLOGY, _LABELS.unpack_from(probe.head), strict=True))
        return (FlatSource(replace(describe_flat(file), targets=targets), file),)


def _nopfs_extent(size: int) -> int | None:
    """Return the extent of the sub-cube in a file of so many bytes, if there is one."""
    count, rest = divmod(size - _LABELS.size, CHANNELS * np.dtype(_NOPFS_DTYPE).itemsize)
    return None if rest else exact_cube_root(count)
