"""CosmoUniverseSource: the raw cosmoUniverse HDF5 layout of the CosmoFlow simulations.

One universe a file: ``full`` (N, N, N, redshifts) particle counts, int16, redshift last, and ``unitPar``, the
cosmological parameters scaled to [-1, 1]. Source: the CosmoFlow data sets of NERSC and their readers in LBANN
and MLPerf HPC, which assert these names and shapes.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from voxload.convert.sources.cubeaxes import cube_axes, has_channels_first, has_channels_last
from voxload.convert.sources.hdf5cube import Hdf5Cube, describe_dataset
from voxload.convert.sources.hdf5targets import read_targets
from voxload.convert.sources.hdf5tree import extents_of
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import RawCube, ReadInto, Source
from voxload.convert.sources.volumenames import chosen
from voxload.errors import DataError, UsageError
from voxload.text import listed

DATASET = "full"
"""Name of the cube in the file, and where it is converted to."""
TARGETS = "unitPar"
"""Name of the parameters in the file."""

_AXES = "DHWC"


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
        chosen(f"{probe.path}", [DATASET], hints)
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
        order = cube_axes(subject, shape, given=axes or _AXES)
        cube = describe_dataset(path, DATASET, found[DATASET], order=order)
        self._cube = Hdf5Cube(DATASET, replace(cube, targets=read_targets(path, TARGETS)), hints)

    def describe(self) -> RawCube:
        """Return what is known of the universe."""
        return self._cube.describe()

    def open(self) -> AbstractContextManager[ReadInto]:
        """Open the file for reading."""
        return self._cube.open()
