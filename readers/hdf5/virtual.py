"""Virtual datasets: HDF5 datasets whose voxels lie in other datasets or files, none of which may be filled in for."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import h5py
import numpy as np

from voxload.errors import DataError, UsageError, VoxloadError
from voxload.geometry import Box
from voxload.readers.faults import naming_chunk, translated
from voxload.readers.hdf5.checks import check_filters, check_own_storage, check_written
from voxload.readers.hdf5.decoded import DecodedChunks
from voxload.readers.hdf5.external import ExternalFiles, check_present
from voxload.readers.hdf5.file import check_own_file, open_file
from voxload.readers.hdf5.quirks import read_elements
from voxload.readers.hdf5.tablecache import load_table
from voxload.readers.hdf5.virtualmapping import REMEDY, BoxIndex, Mapped, check_cover, read_mapping
from voxload.readers.protocol import Location, Missing, Volume
from voxload.readers.storage.stamp import Stamp
from voxload.readers.storage.traversal import check_within
from voxload.readers.store import is_url

_PREFIX = "HDF5_VDS_PREFIX"
_MAX_OPEN = 32
"""Source datasets of one virtual dataset that stay open between reads: there may be more than a process may open."""
_EXACT_BYTES = 8
"""Integers of so many bytes have no floating type that holds them all."""

Name = tuple[str, str]
"""Path of a file and name of a dataset in it."""


class Linked(Protocol):
    """A dataset whose voxels lie elsewhere; its methods may be called from many threads at once."""

    def read_into(self, box: Box, out: Volume) -> None:
        """Read `box`, in stored indices, into `out`: in C order, of the box's extents and a native type.

        Raises DataError when any voxel of it is gone, or may not be the one that it was when the dataset was opened.
        """
        ...

    def stamps(self) -> list[Stamp]:
        """Return the stamps of all files in which voxels lie, as they were when the dataset was opened."""
        ...

    def close(self) -> None:
        """Close the files."""
        ...


@dataclass(frozen=True, slots=True)
class Opening:
    """How a dataset is opened that may lead to others."""

    missing: Missing
    """What to do about chunks that were never written, and voxels that no source is mapped to."""
    within: str | None = None
    """Folder in which the files of the voxels have to lie, see `Location.within`; None allows any place."""
    chain: tuple[Name, ...] = ()
    """The datasets that led to it, the outermost first."""

    @classmethod
    def of(cls, location: Location, missing: Missing) -> Opening:
        """Return how the dataset at a location is opened."""
        folder = os.path.dirname(location.path) or "."  # noqa: PTH120 - a string, as the location has it
        return cls(missing, folder if location.within == "" else location.within)

    def entering(self, path: str, name: str) -> Opening:
        """Return how the sources of dataset `name` are opened; refuses a dataset that is its own source."""
        key = (str(Path(path).resolve()), name.strip("/"))
        if key in self.chain:
            raise UsageError(f"{path}:{name}", found="virtual storage that is its own source", remedy=REMEDY)
        return Opening(self.missing, self.within, (*self.chain, key))


def open_linked(dataset: h5py.Dataset, path: str, opening: Opening) -> Linked | None:
    """Return what reads a virtual or external dataset of the file at `path`; None of any other dataset.

    Raises
    ------
    UsageError
        Where HDF5 might fill in for something and it cannot be told beforehand: patterns of sources, mappings that are
        no boxes, URLs. When a file of the voxels lies outside of where the opening allows.
    DataError
        When a source is not there or too small, or voxels have none or two.
    """
    if not (dataset.is_virtual or dataset.external):
        return None
    subject = f"{path}:{dataset.name.removeprefix('/')}"
    if is_url(path):
        check_own_storage(dataset, subject)
    with _within(subject):
        return (
            VirtualSources(dataset, path, opening)
            if dataset.is_virtual
            else _Named(ExternalFiles(dataset, opening.within), subject)
        )


class VirtualSources:
    """Reads a virtual dataset from its sources, one by one through h5py; see the Linked contract.

    libhdf5 reads a virtual dataset by itself, but takes a source that it cannot open for one that was never written,
    even where all that is lacking is a file descriptor, and hands out fill values. Here every source is opened when
    the dataset is, and each voxel comes from a source that is open and unchanged.

    Parameters
    ----------
    dataset
        The virtual dataset.
    path
        Its file.
    opening
        How it is opened.

    Notes
    -----
    Source: HDF5 2.0, H5Pset_virtual and H5Pset_virtual_prefix, which say where source files are looked for.
    """

    def __init__(self, dataset: h5py.Dataset, path: str, opening: Opening) -> None:
        if os.environ.get(_PREFIX):
            raise UsageError(found=f"virtual storage while {_PREFIX} is set", remedy=f"unset {_PREFIX}; or {REMEDY}")
        self._subject = f"{path}:{dataset.name.removeprefix('/')}"
        self._dtype, self._fill = dataset.dtype, dataset.fillvalue
        self._opening = opening.entering(path, str(dataset.name))
        self._lock = threading.Lock()
        self._open: OrderedDict[Name, SourceDataset] = OrderedDict()
        self._stamps: dict[Name, Stamp] = {}
        self._further: dict[Name, list[Stamp]] = {}
        mapping = read_mapping(dataset)
        self._is_covered = check_cover(mapping, dataset.shape, opening.missing)
        files = {name: find_source(name, path) for name in {mapped.file for mapped in mapping}}
        for found in files.values() if opening.within is not None else ():
            check_within(found, opening.within or ".", subject="virtual storage")
        try:
            self._mapping = [self._checked(mapped, files[mapped.file]) for mapped in mapping]
        except BaseException:
            self.close()
            raise
        self._names = [(files[mapped.file], mapped.dataset) for mapped in mapping]
        self._index = BoxIndex([mapped.box for mapped in mapping]) if mapping else None

    def read_into(self, box: Box, out: Volume) -> None:
        """Read `box`, in stored indices, into `out`."""
        if not self._is_covered:
            out[...] = self._fill
        with _within(self._subject), self._lock:
            for number in self._index.meeting(box) if self._index else ():
                mapped = self._mapping[number]
                common = mapped.box.intersect(box)
                if common is not None:
                    part = out[common.relative_to(box.start).slices]
                    self._source(self._names[number]).read_part(mapped.within_source(common), part)

    def stamps(self) -> list[Stamp]:
        """Return the stamps of the sources, and of what these have sources in, in the order of the mapping."""
        found = {one.path: one for name in self._names for one in (self._stamps[name], *self._further[name])}
        return list(found.values())

    def close(self) -> None:
        """Close the sources."""
        while self._open:
            self._open.popitem()[1].close()

    def _checked(self, mapped: Mapped, path: str) -> Mapped:
        """Open a source for the first time; return its mapping with the source's box."""
        source = self._source((path, mapped.dataset))
        with _within(f"{path}:{mapped.dataset}"):
            if not _fits(source.dataset.dtype, self._dtype):
                found = f"virtual storage of {self._dtype} with a source of {source.dataset.dtype}"
                raise UsageError(found=found, expected="a source whose values all fit", remedy=REMEDY)
            return mapped.checked(source.dataset.shape)

    def _source(self, name: Name) -> SourceDataset:
        """Return an open source, as it was when it was opened first."""
        found = self._open.pop(name, None)
        if found is None:
            found = SourceDataset(name, self._opening, self._stamps.get(name))
            self._stamps[name] = found.stamp
            self._further.setdefault(name, found.further())
        self._open[name] = found
        while len(self._open) > _MAX_OPEN:
            self._open.popitem(last=False)[1].close()
        return found


class SourceDataset:
    """One open source of a virtual dataset; for one thread at a time.

    Parameters
    ----------
    name
        The file and the dataset.
    opening
        How it is opened.
    stamp
        The file as it must be; None takes it as it is.
    """

    def __init__(self, name: Name, opening: Opening, stamp: Stamp | None) -> None:
        path, self._name = name
        self._subject = f"{path}:{self._name}"
        self._missing = opening.missing
        with ExitStack() as undo, translated(self._subject):
            if not Path(path).is_file():
                remedy = "restore the source file, or write the virtual dataset anew"
                raise DataError(path, found="no such file", expected="a source of a virtual dataset", remedy=remedy)
            self.stamp = stamp or Stamp.of(path)
            self._file = open_file(path)
            undo.callback(self._file.close)
            check_present(self.stamp)
            self.dataset = self._find(path)
            check_filters(self.dataset, self._subject)
            is_chunked = bool(self.dataset.chunks) and not self.dataset.is_virtual
            self._decoded = DecodedChunks(self.dataset, self._subject) if is_chunked else None
            self._linked = open_linked(self.dataset, path, opening)
            undo.pop_all()
        self._table = None

    def read_part(self, box: Box, out: Volume) -> None:
        """Read `box` of the source into `out`, which has as many voxels in the same order."""
        scratch = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
        target = scratch.reshape(box.shape)
        check_present(self.stamp)
        if self._linked is not None:
            self._linked.read_into(box, target)
        else:
            self._read(box, target)
        if scratch is not out:
            out[...] = scratch

    def further(self) -> list[Stamp]:
        """Return the stamps of the other files in which its own voxels lie."""
        return [] if self._linked is None else self._linked.stamps()

    def close(self) -> None:
        """Close the file."""
        if self._linked is not None:
            self._linked.close()
        self._file.close()

    def _read(self, box: Box, target: Volume) -> None:
        with translated(self._subject):
            table = load_table(self.dataset, self.stamp) if self._decoded else None
            if self._missing is Missing.ERROR:
                check_written(self.dataset, table, box, self._subject)
            if self._decoded is not None and table is not None:
                self._decoded.read_into(table, box, target)
                return
            with naming_chunk(self._subject, box, self.dataset.shape, lambda part: self.dataset[part.slices]):
                read_elements(self.dataset, box.slices, target)

    def _find(self, path: str) -> h5py.Dataset:
        found = self._file.get(self._name)
        if not isinstance(found, h5py.Dataset):
            remedy = "restore the source file, or write the virtual dataset anew"
            raise DataError(path, found=f"no dataset {self._name!r}", expected="a source", remedy=remedy)
        check_own_file(found, self._file, self._subject)
        if not found.ndim:
            raise UsageError(self._subject, found="virtual storage with a source without axes", remedy=REMEDY)
        return found


def find_source(name: str, owner: str) -> str:
    """Return the path of a source file, where libhdf5 would find it for a virtual dataset of the file `owner`.

    Where there is none, the place at which libhdf5 looks first.
    """
    if name == ".":
        return owner
    folder, path = Path(owner).absolute().parent, Path(name)
    # A name with a folder from the root on that is not there is looked for as if it had no folder.
    base = Path(path.name) if path.is_absolute() else path
    places = [folder / path, folder / base, Path.cwd() / base, Path(owner).resolve().parent / base]
    return str(next((place for place in places if place.exists()), places[0]))


def _fits(source: np.dtype[np.generic], target: np.dtype[np.generic]) -> bool:
    """Tell whether every value of `source` is one of `target`."""
    if source.kind == target.kind:
        return source.itemsize <= target.itemsize
    is_rounded = source.itemsize == _EXACT_BYTES and source.kind in "iu" and target.kind == "f"
    return source.kind in "iu" and target.kind in "if" and not is_rounded and np.can_cast(source, target)


class _Named:
    """A Linked dataset whose errors name it."""

    def __init__(self, linked: Linked, subject: str) -> None:
        self._linked, self._subject = linked, subject

    def read_into(self, box: Box, out: Volume) -> None:
        with _within(self._subject):
            self._linked.read_into(box, out)

    def stamps(self) -> list[Stamp]:
        return self._linked.stamps()

    def close(self) -> None:
        self._linked.close()


@contextmanager
def _within(subject: str) -> Iterator[None]:
    """Say of which dataset an error is, and keep what it says of the source."""
    try:
        yield
    except VoxloadError as error:
        raise error.within(subject, remedy=REMEDY) from error
