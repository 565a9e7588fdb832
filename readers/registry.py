"""Registry: which format reads a path."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import entry_points

from voxload.errors import NotFoundError, UsageError
from voxload.files.regular import check_regular
from voxload.readers.chunks.storedchunks import ChunkSource
from voxload.readers.faults import translated
from voxload.readers.flat.formats import NpyFormat, RawFormat
from voxload.readers.foreign import foreign_error, not_multiscale
from voxload.readers.hdf5 import Hdf5Format
from voxload.readers.protocol import Format, Location, Missing, Reader
from voxload.readers.remote import RemoteStore
from voxload.readers.shards import ShardFormat, shard_of
from voxload.readers.storage.traversal import check_links, check_within
from voxload.readers.store import is_url
from voxload.readers.views.located import located
from voxload.readers.views.stacked import StackedReader
from voxload.readers.xarrays import XarrayFormat
from voxload.readers.zarr import ZarrFormat

ENTRY_POINTS = "voxload.readers"
"""Entry-point group: each entry names a class without arguments that keeps the Format contract."""

_INSTALLED = tuple(entry_points(group=ENTRY_POINTS))
"""Looked for when this is imported: it takes longer than opening a file, and the first read should not wait for it."""
_HDF5_SUFFIXES = (".h5", ".hdf5", ".hdf", ".he5", ".nc", ".nc4")
"""Ends of URLs that are asked first whether they are HDF5 files: those of HDF5, HDF-EOS5 and netCDF-4."""
_NPY_SUFFIX = ".npy"
_OBJECTS = XarrayFormat()
"""Of names that stand for no bytes."""
_SHARDS = ShardFormat()
"""Of names that go on behind a file's."""


@lru_cache(maxsize=1)
def formats() -> tuple[Format, ...]:
    """Return all formats, the installed ones of others first: they may know a special case of ours."""
    installed = tuple(point.load()() for point in _INSTALLED)
    return (*installed, Hdf5Format(), ZarrFormat(), NpyFormat())


def find_format(path: str) -> Format:
    """Return the format of `path`, found by looking at the data; headerless files come last.

    Raises
    ------
    NotFoundError
        When there is nothing at `path`.
    UsageError
        When it is a folder, or a URL, that no format knows.
    """
    if _OBJECTS.claims(path):
        return _OBJECTS
    if _SHARDS.claims(path):
        return _SHARDS
    with translated(path):
        if not is_url(path) and not os.path.exists(path):  # noqa: PTH110 - a Path takes longer to make than to ask
            raise NotFoundError(path, found="no such file or folder", remedy="check the path")
        if not is_url(path):
            check_regular(path)
        for known in _in_order(path):
            if known.claims(path):
                return known
        raw = RawFormat()
        if raw.claims(path):
            return raw
        store = RemoteStore(path) if is_url(path) else None
        if store is not None and store.size("") is None:
            raise NotFoundError(
                store.locate(""),
                found="no such object, and no volume that any reader knows",
                remedy="check the URL, or what is in the store",
            )
    foreign = foreign_error(path) if is_url(path) else None
    raise foreign or UsageError(
        path,
        found="no volume that any reader knows",
        expected="an HDF5, Zarr, npy or raw file, or a URL of an HDF5 file or Zarr hierarchy",
        remedy="check the path; other formats register under the entry points voxload.readers",
    )


def holds(known: Format, path: str, name: str) -> bool:
    """Tell whether a format finds the volume `name` in `path`; formats that cannot look for one list them all."""
    with translated(path):
        look = getattr(known, "holds", None)
        return bool(look(path, name)) if look is not None else name in known.datasets(path)


def is_crowded(known: Format, path: str, most: int) -> bool:
    """Tell whether `path` holds more than `most` volumes; of a format that cannot tell, by a list of them."""
    with translated(path):
        look = getattr(known, "is_crowded", None)
        return bool(look(path, most)) if look is not None else len(known.datasets(path)) > most


def _in_order(path: str) -> tuple[Format, ...]:
    """Return all formats in the order of asking, which costs requests of a URL: the likelier of two comes first.

    A file is looked through for an HDF5 superblock, unless it is named as what it then turns out to be.
    """
    if path.endswith(_NPY_SUFFIX) and not is_url(path):
        return tuple(sorted(formats(), key=lambda known: isinstance(known, Hdf5Format)))
    if not is_url(path) or path.lower().endswith(_HDF5_SUFFIXES):
        return formats()
    return tuple(sorted(formats(), key=lambda known: isinstance(known, Hdf5Format)))


def open_reader(location: Location, *, missing: str | Missing = Missing.ERROR) -> Reader:
    """Open the volume at `location`, a part of one, or several as one, with the format that knows it."""
    if location.stored is not location:
        whole = open_reader(location.stored, missing=missing)
        try:
            return located(whole, location, owns=True)
        except BaseException:
            whole.close()
            raise
    if location.also:
        return _stacked(location, missing)
    _check_place(location)
    policy = Missing.parse(missing)
    found = find_format(location.path)
    if location.level is not None and not isinstance(found, ZarrFormat):
        raise not_multiscale(location)
    reader = found.open(location, policy)
    if location.checksums is not None and not isinstance(reader, ChunkSource):
        reader.close()
        raise UsageError(
            f"{location}",
            found=f"checksums in {location.checksums.path}, and a reader of {found.name} that cannot verify them",
            expected="a volume stored in chunks, HDF5 or Zarr",
            remedy="convert it, or leave the catalogue's column checksums empty for it",
        )
    return reader


def _stacked(location: Location, missing: str | Missing) -> Reader:
    """Open all volumes that a location names."""
    readers: list[Reader] = []
    try:
        for one in (replace(location, also=()), *location.also):
            readers.append(open_reader(one, missing=missing))  # noqa: PERF401 - those that are open are closed below
        return StackedReader(readers, location)
    except BaseException:
        for reader in readers:
            reader.close()
        raise


@lru_cache(maxsize=2**16)
def _check_shard(shard: str, folder: str) -> None:
    """Refuse an archive that lies outside of a folder: its links are those that were found when it was first opened."""
    check_within(shard, folder, subject=shard)


def _check_place(location: Location) -> None:
    """Refuse a volume, or checksums of it, that lie outside of the folder in which they have to."""
    if location.within:
        shard = shard_of(location.path)
        if shard:
            _check_shard(shard, location.within)
            return
        check_within(location.path, location.within, subject=str(location))
        check_links(location.path, location.within, subject=str(location), is_new=False)
        if location.checksums is not None:
            check_within(location.checksums.path, location.within, subject=f"checksums of {location}")
