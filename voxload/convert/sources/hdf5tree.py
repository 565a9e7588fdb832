"""Trees of HDF5 files: what the formats ask of one."""

from __future__ import annotations

from voxload.convert.sources.hdf5facts import Hdf5Tree
from voxload.convert.sources.probe import Probe
from voxload.errors import DataError


def hdf5_tree(probe: Probe) -> Hdf5Tree:
    """Return what an HDF5 file holds; raises DataError when it is none."""
    if probe.hdf5 is None:
        raise DataError(f"{probe.path}", found="no HDF5 signature", expected="an HDF5 file")
    return probe.hdf5


def extents_of(probe: Probe, *names: str) -> tuple[tuple[int, ...], ...]:
    """Return the extents of datasets; empty unless the file is HDF5 and holds them all."""
    tree = probe.hdf5
    if tree is None or not set(names) <= set(tree.datasets):
        return ()
    return tuple(tree.datasets[name].shape for name in names)
