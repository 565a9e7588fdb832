"""Universes of the CosmoFlow simulations in HDF5, raw and as the scripts of LBANN, MLPerf HPC and NoPFS split them.

CosmoUniverseSource: the raw cosmoUniverse HDF5 layout of the CosmoFlow simulations. One universe a file: ``full`` (N,
N, N, redshifts) particle counts, int16, redshift last, and ``unitPar``, the cosmological parameters scaled to [-1,
1]. Source: the CosmoFlow data sets of NERSC and their readers in LBANN and MLPerf HPC, which assert these names and
shapes.

LbannSplit: universes of the CosmoFlow simulations as LBANN's script splits them. A cube a file: ``full`` (redshifts,
W, W, W), float32 or int16, and ``unitPar``. The script splits the transpose of the raw universe, so all axes are
turned round: (C, W, H, D) of a universe of (D, H, W, C). Source: LBANN,
applications/physics/cosmology/cosmoflow/split_cosmoflow_sample.py.

MlperfSplit: universes of the CosmoFlow simulations as MLPerf HPC's script splits them, in HDF5. A cube a file: ``x``
(N, N, N, 4) int16, redshift last, and ``y``, the four parameters scaled to [-1, 1]. Source: MLPerf HPC,
cosmoflow/prepare.py.

NopfsSplit: universes of the CosmoFlow simulations as the script of NoPFS splits them. A cube a file: ``split`` and
``unitPar``. The script moves the redshifts to the front, (C, D, H, W), unless it is told not to, (D, H, W, C);
nothing but the extents says which. Source: N. Dryden's splitter for NoPFS.

MultiScale: the multiScale_tryG files of the CosmoFlow simulations, many samples a file. ``3Dmap`` (samples, D, H, W,
channels), uint16, and ``unitPar`` (samples, parameters); in the originals 128 samples of 128^3 voxels and 12
channels. Source: NU-CUCIS/async-io-cosmoflow, feeder_sync.py.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np

from voxload.convert.sources.arrays.hdf5cube import Hdf5Cube, Hdf5Slab, check_slabs, describe_dataset, layout_axes
from voxload.convert.sources.arrays.hdf5targets import COSMOLOGY, read_target_rows, read_targets
from voxload.convert.sources.axes import has_channels_first, has_channels_last
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.names import chosen_datasets, part_name
from voxload.convert.sources.probe import Probe, extents_of, hdf5_tree
from voxload.convert.sources.protocol import RawCube, ReadInto, Source
from voxload.errors import DataError, UsageError
from voxload.text import listed

DATASET = "full"
"""Name of the cube in the file, and where it is converted to."""
TARGETS = "unitPar"
"""Name of the parameters in the file."""

_UNIVERSE_AXES = "DHWC"


class CosmoUniverse:
    """Raw universes of the CosmoFlow simulations."""

    name = "ExaLearn cosmoUniverse"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether an HDF5 file holds ``full`` and ``unitPar``, and ``full`` is not (1 to 4, N, N, N)."""
        found = extents_of(probe, DATASET, TARGETS)
        return bool(found) and not has_channels_first(found[0])

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the one universe."""
        chosen_datasets(f"{probe.path}", [DATASET], hints)
        return (CosmoUniverseSource(probe.path, hints),)


class CosmoUniverseSource:
    """One universe.

    Parameters
    ----------
    path
        The file.
    hints
        The order of the axes of ``full``, (D, H, W, C) of a cube with equal D, H and W unless given, and what voxels
        are that were never written.

    Raises
    ------
    DataError
        When the file is truncated or damaged, or holds neither ``full`` nor ``unitPar``.
    UsageError
        When ``full`` is no cube with redshift last and the caller names no axes: a split file of another tool
        may have the same names and turned axes.
    """

    def __init__(self, path: Path, hints: Hints) -> None:
        axes = hints.axes
        tree = Probe(path).hdf5
        found = tree.datasets if tree else {}
        if not {DATASET, TARGETS} <= set(found):
            raise DataError(
                f"{path}",
                found=f"HDF5 with {listed(found)}" if tree else "no HDF5 signature",
                expected=f"a raw universe with {DATASET!r} and {TARGETS!r}",
            )
        subject, shape = f"{path}, dataset {DATASET!r}", found[DATASET].shape
        if axes is None and not has_channels_last(shape):
            raise UsageError(
                subject,
                found=f"shape {shape}",
                expected="(N, N, N, redshifts) and other redshifts than N",
                remedy="name its axes, such as --axes CDHW for channels first",
            )
        order = layout_axes(subject, found[DATASET], _UNIVERSE_AXES, given=axes)
        cube = describe_dataset(path, DATASET, found[DATASET], order=order)
        self._cube = Hdf5Cube(DATASET, replace(cube, targets=read_targets(path, TARGETS)), hints)

    def describe(self) -> RawCube:
        """Return what is known of the universe."""
        return self._cube.describe()

    def open(self) -> AbstractContextManager[ReadInto]:
        """Open the file for reading."""
        return self._cube.open()


_LBANN_AXES = "CWHD"


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
        chosen_datasets(f"{probe.path}", [DATASET], hints)
        stored = hdf5_tree(probe).datasets[DATASET]
        order = layout_axes(f"{probe.path}, dataset {DATASET!r}", stored, _LBANN_AXES, given=hints.axes)
        cube = describe_dataset(probe.path, DATASET, stored, order=order)
        return (Hdf5Cube(DATASET, replace(cube, targets=read_targets(probe.path, TARGETS)), hints),)


_MLPERF_DATASET, _MLPERF_TARGETS = "x", "y"
_MLPERF_AXES = "DHWC"


class MlperfSplit:
    """Cubes that MLPerf HPC's script cut out of raw universes."""

    name = "MLPerf CosmoFlow split HDF5"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether an HDF5 file holds ``x``, (N, N, N, 4) int16, and ``y``, four numbers, and nothing else."""
        found = extents_of(probe, _MLPERF_DATASET, _MLPERF_TARGETS)
        # Every tool calls something x and y: less than all of the layout is no sign of it.
        return (
            bool(found)
            and len(hdf5_tree(probe).datasets) == 2
            and len(found[0]) == 4
            and len(set(found[0][:3])) == 1
            and (found[0][3], found[1]) == (len(COSMOLOGY), (len(COSMOLOGY),))
            and hdf5_tree(probe).datasets[_MLPERF_DATASET].dtype.newbyteorder("=") == np.int16
        )

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the one cube."""
        chosen_datasets(f"{probe.path}", [_MLPERF_DATASET], hints)
        stored = hdf5_tree(probe).datasets[_MLPERF_DATASET]
        order = layout_axes(f"{probe.path}, dataset {_MLPERF_DATASET!r}", stored, _MLPERF_AXES, given=hints.axes)
        cube = describe_dataset(probe.path, _MLPERF_DATASET, stored, order=order)
        return (Hdf5Cube(_MLPERF_DATASET, replace(cube, targets=read_targets(probe.path, _MLPERF_TARGETS)), hints),)


_NOPFS_DATASET, _NOPFS_TARGETS = "split", "unitPar"


class NopfsSplit:
    """Cubes that the script of NoPFS cut out of raw universes."""

    name = "NoPFS split HDF5"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether an HDF5 file holds ``split``, of four axes, and ``unitPar``."""
        found = extents_of(probe, _NOPFS_DATASET, _NOPFS_TARGETS)
        return bool(found) and len(found[0]) == 4

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the one cube; raises UsageError when its extents do not say which axis holds the redshifts."""
        chosen_datasets(f"{probe.path}", [_NOPFS_DATASET], hints)
        stored = hdf5_tree(probe).datasets[_NOPFS_DATASET]
        subject = f"{probe.path}, dataset {_NOPFS_DATASET!r}"
        layout = hints.axes or _nopfs_axes(subject, stored.shape)
        order = layout_axes(subject, stored, layout, given=hints.axes)
        cube = describe_dataset(probe.path, _NOPFS_DATASET, stored, order=order)
        return (Hdf5Cube(_NOPFS_DATASET, replace(cube, targets=read_targets(probe.path, _NOPFS_TARGETS)), hints),)


def _nopfs_axes(subject: str, shape: tuple[int, ...]) -> str:
    if has_channels_first(shape):
        return "CDHW"
    if has_channels_last(shape):
        return "DHWC"
    raise UsageError(
        subject,
        found=f"shape {shape}",
        expected="(redshifts, N, N, N) or (N, N, N, redshifts), and other redshifts than N",
        remedy="add --axes CDHW for channels first or --axes DHWC for channels last",
    )


_MULTISCALE_DATASET, _MULTISCALE_TARGETS = "3Dmap", "unitPar"
_MULTISCALE_AXES = "DHWC"


class MultiScale:
    """Files of many cubes with a row of parameters each."""

    name = "multiScale_tryG"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether an HDF5 file holds ``3Dmap``, of five axes, and ``unitPar``, of two."""
        return tuple(len(shape) for shape in extents_of(probe, _MULTISCALE_DATASET, _MULTISCALE_TARGETS)) == (5, 2)

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the samples in their order; raises DataError unless each has its parameters."""
        subject = f"{probe.path}, dataset {_MULTISCALE_DATASET!r}"
        chosen_datasets(f"{probe.path}", [_MULTISCALE_DATASET], hints)
        stored = hdf5_tree(probe).datasets[_MULTISCALE_DATASET]
        check_slabs(probe.path, _MULTISCALE_DATASET)
        order = layout_axes(subject, stored, _MULTISCALE_AXES, given=hints.axes, lead="N")
        cube = describe_dataset(probe.path, _MULTISCALE_DATASET, stored, order=order, fixed=(0,))
        rows, count = read_target_rows(probe.path, _MULTISCALE_TARGETS), stored.shape[0]
        if len(rows) != count:
            raise DataError(
                subject, found=f"{count} cubes", expected=f"{len(rows)}, the rows of {_MULTISCALE_TARGETS!r}"
            )
        parts = [replace(cube, targets=row, part=part_name((k,), (count,))) for k, row in enumerate(rows)]
        return tuple(Hdf5Slab(_MULTISCALE_DATASET, part, {0: k}, missing=hints.missing) for k, part in enumerate(parts))
