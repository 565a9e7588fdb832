"""ExternalFiles: an HDF5 dataset whose bytes lie in other files, raw."""

from __future__ import annotations

import os
from math import prod
from pathlib import Path

import h5py

from voxload.errors import DataError, UsageError
from voxload.geometry import Box
from voxload.readers.hdf5.quirks import read_elements
from voxload.readers.hdf5.virtualmapping import REMEDY
from voxload.readers.protocol import Volume
from voxload.readers.storage.stamp import Stamp
from voxload.readers.storage.traversal import check_within

_PREFIX = "HDF5_EXTFILE_PREFIX"


class ExternalFiles:
    """Reads a dataset of external storage through h5py; see the Linked contract.

    HDF5 opens the files anew for each read, by names that it takes relative to the working directory, and hands out
    zeros for bytes that they lack. So they are looked at when the dataset is opened, and before and after each read.

    Parameters
    ----------
    dataset
        Has external storage.
    within
        Folder in which the files have to lie; None allows any place.

    Raises
    ------
    DataError
        When a file is not there, or too short; names it.
    UsageError
        Where the environment has HDF5 look for the files elsewhere, or they lie outside of where they have to.

    Notes
    -----
    Source: HDF5 2.0, H5Pset_external and H5Pset_efile_prefix.
    """

    def __init__(self, dataset: h5py.Dataset, within: str | None) -> None:
        if os.environ.get(_PREFIX):
            raise UsageError(found=f"external storage while {_PREFIX} is set", remedy=f"unset {_PREFIX}; or {REMEDY}")
        self._dataset = dataset
        self._folder = Path.cwd()
        self._within = within
        self._stamps: list[Stamp] = []
        self._is_relative = False
        wanted = prod(dataset.shape) * dataset.id.get_type().get_size()
        for name, offset, size in dataset.external:
            used = min(wanted, size)  # the last may be of any size, which is a very large number here
            self._add(name, offset + used)
            wanted -= used
            if not wanted:
                return
        raise DataError(found=f"external files that lack {wanted} bytes", expected="a file for every byte")

    def read_into(self, box: Box, out: Volume) -> None:
        """Read `box`, in stored indices, into `out`."""
        self._check()
        read_elements(self._dataset, box.slices, out)
        self._check()

    def stamps(self) -> list[Stamp]:
        """Return the stamps of the files, as they were when the dataset was opened."""
        return list(self._stamps)

    def close(self) -> None:
        """Do nothing: the files are open during a read only."""

    def _add(self, name: str, size: int) -> None:
        """Note a file of which the first `size` bytes are wanted."""
        path = self._folder / name
        if self._within is not None:
            check_within(str(path), self._within, subject="external storage")
        self._is_relative |= not Path(name).is_absolute()
        if not path.is_file():
            raise DataError(
                str(path),
                found="no such file",
                expected="a file of the external storage",
                remedy="restore it; HDF5 takes names without a folder to be relative to the working directory",
            )
        stamp = Stamp.of(str(path))
        if stamp.size < size:
            raise DataError(
                str(path), found=f"{stamp.size} bytes", expected=f"{size} or more", remedy="restore it: it is cut short"
            )
        self._stamps.append(stamp)

    def _check(self) -> None:
        """Refuse files that changed since the dataset was opened, and a working directory in which there are others."""
        if self._is_relative and Path.cwd() != self._folder:
            raise UsageError(
                found=f"external storage relative to the working directory, which is now {Path.cwd()}",
                expected=f"{self._folder}, as when it was opened",
                remedy="open it again",
            )
        for stamp in self._stamps:
            check_present(stamp)


def check_present(stamp: Stamp) -> None:
    """Refuse a file that changed or is gone: unlike the bytes of an open file, its bytes may not last."""
    if not Path(stamp.path).exists():
        raise DataError(
            stamp.path,
            found="no file any more",
            expected="the file as it was",
            remedy="restore it, and open the dataset again",
        )
    stamp.check_unchanged()
